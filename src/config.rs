//! The options of a client, checked in one place.

use std::time::Duration;

use crate::error::Error;
use crate::metrics::Grouping;

/// How long a client that waits for a fair lock counts as alive after its last request. It refreshes
/// its entries each third of that, so that two refreshes can fail. Redis skips a dead client when its turn comes,
/// usually well before this: no client is subscribed to its channel, or the grace ends.
pub(crate) const QUEUE_TERM: Duration = Duration::from_secs(10);

/// The options that the modules share, after [`Config::check`].
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) watchdog_timeout: Duration,
    pub(crate) max_hold: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) outage_limit: Duration,
    pub(crate) warn_waits_longer_than: Duration,
    pub(crate) name_prefix: String,
    pub(crate) label: Option<Box<str>>,
    pub(crate) max_handoffs: u32,
    pub(crate) max_handoff_time: Duration,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) fair_grace: Duration,
    pub(crate) fair_turn: Duration,
    pub(crate) metrics_group: Grouping,
}

/// How many replicas have to have a lock, and how long they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            watchdog_timeout: Duration::from_secs(30),
            max_hold: Duration::MAX,
            command_timeout: Duration::from_secs(3),
            outage_limit: Duration::from_secs(30),
            warn_waits_longer_than: Duration::from_secs(30),
            name_prefix: String::new(),
            label: None,
            max_handoffs: 100,
            max_handoff_time: Duration::from_millis(10),
            replicas: None,
            fair_grace: Duration::from_secs(1),
            fair_turn: Duration::ZERO,
            metrics_group: Grouping::default(),
        }
    }
}

impl Config {
    /// The name that a user gave, of the key that it became.
    pub(crate) fn without_prefix<'a>(&self, key: &'a str) -> &'a str {
        &key[self.name_prefix.len()..]
    }

    /// The time between two renewals of a default lease.
    pub(crate) fn renewal_period(&self) -> Duration {
        self.watchdog_timeout / 3
    }

    /// Whether Redis may grant a fair lock to this client: only a hand-off makes that a waiter's.
    pub(crate) fn takes_grants(&self) -> bool {
        self.max_handoffs > 0
    }

    /// Refuses what can never work, before any I/O.
    pub(crate) fn check(&self) -> Result<(), Error> {
        const MILLISECOND: Duration = Duration::from_millis(1);
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        between("watchdog_timeout", self.watchdog_timeout, Duration::from_millis(30), DAY)?;
        let hour = Duration::from_secs(60 * 60);
        let ten = Duration::from_millis(10);
        between("command_timeout", self.command_timeout, ten, hour)?;
        between("warn_waits_longer_than", self.warn_waits_longer_than, ten, Duration::MAX)?;
        // After the term a client does not count as alive, whatever its grace.
        between("fair_grace", self.fair_grace, ten, QUEUE_TERM)?;
        self.label.as_deref().map_or(Ok(()), check_label)?;
        let Some(Replicas { count, timeout }) = self.replicas else { return Ok(()) };
        if count == 0 {
            return Err(Error::invalid("replicas: there is nothing to wait for with a count of 0"));
        }
        // A client that waited for replicas until the lease has ended would never grant the lock.
        between("the timeout of replicas", timeout, MILLISECOND, self.watchdog_timeout / 2)
    }
}

/// Refuses what the name of a connection cannot have, and what a list of clients has no room for.
fn check_label(label: &str) -> Result<(), Error> {
    const MAX_LENGTH: usize = 64;
    let wrong = match label.chars().find(|c| !c.is_ascii_graphic()) {
        _ if label.is_empty() => "it is empty".to_owned(),
        Some(c) => format!("it has {c:?}"),
        None if label.len() > MAX_LENGTH => format!("it has {}", label.len()),
        None => return Ok(()),
    };
    let must = format!("it must be 1 to {MAX_LENGTH} printable ASCII characters without spaces");
    Err(Error::invalid(format!("the label cannot be used: {wrong}; {must}")))
}

fn between(option: &str, value: Duration, least: Duration, most: Duration) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let bounds = match most {
        Duration::MAX => format!("at least {least:?}"),
        most => format!("from {least:?} to {most:?}"),
    };
    Err(Error::invalid(format!("{option} is {value:?}; it must be {bounds}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_lease_is_renewed_every_third_of_it() {
        let config = Config { watchdog_timeout: Duration::from_secs(42), ..Config::default() };
        assert_eq!(config.renewal_period(), Duration::from_secs(14));
    }

    #[test]
    fn a_label_that_no_connection_can_have_is_refused() {
        let label = |label: &str| Config { label: Some(label.into()), ..Config::default() }.check();
        for good in ["orders-7b9c", "a", "a:b", "!~", &"x".repeat(64)] {
            label(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for (bad, why) in [
            ("", "it is empty"),
            ("two words", "it has ' '"),
            ("line\n", "it has '\\n'"),
            ("\0", "it has '\\0'"),
            ("caf\u{e9}", "it has '\u{e9}'"),
            ("\u{7f}", "it has '\\u{7f}'"),
            (&"x".repeat(65), "it has 65"),
        ] {
            let error = label(bad).expect_err(bad);
            assert_eq!(error.kind(), crate::error::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(why), "{bad:?}: {error}");
        }
    }

    #[test]
    fn options_out_of_bounds_are_refused_by_name() {
        let day = Duration::from_secs(24 * 60 * 60);
        for (option, value, accepted) in [
            ("watchdog_timeout", Duration::from_millis(29), false),
            ("watchdog_timeout", Duration::from_millis(30), true),
            ("watchdog_timeout", day, true),
            ("watchdog_timeout", day + Duration::from_millis(1), false),
            ("command_timeout", Duration::from_millis(9), false),
            ("command_timeout", day / 24, true),
            ("command_timeout", day / 24 + Duration::from_millis(1), false),
            ("command_timeout", Duration::from_millis(10), true),
            ("command_timeout", Duration::MAX, false),
            ("fair_grace", Duration::from_millis(9), false),
            ("fair_grace", Duration::from_millis(10), true),
            ("fair_grace", QUEUE_TERM, true),
            ("fair_grace", QUEUE_TERM + Duration::from_millis(1), false),
            ("warn_waits_longer_than", Duration::ZERO, false),
            ("warn_waits_longer_than", Duration::from_millis(9), false),
            ("warn_waits_longer_than", Duration::from_millis(10), true),
            ("warn_waits_longer_than", Duration::MAX, true),
        ] {
            let mut config = Config::default();
            match option {
                "watchdog_timeout" => config.watchdog_timeout = value,
                "fair_grace" => config.fair_grace = value,
                "warn_waits_longer_than" => config.warn_waits_longer_than = value,
                _ => config.command_timeout = value,
            }
            match config.check() {
                Ok(()) => assert!(accepted, "{option} = {value:?} was accepted"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!accepted && text.contains(option), "{text}");
                    assert!(
                        !text.contains(&format!("{:?}", Duration::MAX)) || value == Duration::MAX,
                        "{text}"
                    );
                }
            }
        }
    }
}
