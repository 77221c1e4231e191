//! What the client logs about servers that do not answer, and when: the pure decision.
//!
//! 1. An outage is one warning when it begins, one at the first failure that comes [`INTERVAL`] or
//!    more after the last warning, for all servers together, and one when it is over. In between, the
//!    client logs each failure at debug.
//! 2. A server about which there was a warning less than [`INTERVAL`] ago begins another outage
//!    without a line. So a server that comes and goes floods no log.
//! 3. A connection that breaks and is made again is no outage.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Between two warnings about the same outage.
const INTERVAL: Duration = Duration::from_secs(10);

/// The outages of one client's servers.
#[derive(Default)]
pub(super) struct Outages {
    /// By the numbers of their nodes.
    servers: Mutex<Servers>,
    /// Whether some server does not answer.
    pub(super) any: AtomicBool,
}

impl Outages {
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Servers) -> T) -> T {
        let mut servers = self.servers.lock();
        let changed = change(&mut servers);
        self.any.store(servers.any(), Ordering::Relaxed);
        changed
    }
}

#[derive(Default)]
pub(super) struct Servers {
    outages: BTreeMap<usize, Outage>,
    warned: Option<Instant>,
}

#[derive(Default)]
struct Outage {
    /// When it began; `None` if the server answers.
    since: Option<Instant>,
    failures: u64,
    /// Whether a warning said that it began.
    is_logged: bool,
    /// The last warning about this server.
    warned: Option<Instant>,
}

/// What to log of a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Begins,
    Lasts(Summary),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) lasted: Duration,
    /// How many requests have failed at all servers that do not answer; or at the one server that answers again.
    pub(super) failures: u64,
    pub(super) servers: usize,
}

impl Outage {
    /// Ends it, if it began before `sent`: what to log, if a warning said that it began.
    fn end(&mut self, sent: Instant, now: Instant) -> Option<Summary> {
        let since = self.since.take_if(|since| *since <= sent)?;
        let failures = std::mem::take(&mut self.failures);
        let lasted = rounded(now.saturating_duration_since(since));
        let is_logged = std::mem::take(&mut self.is_logged);
        is_logged.then_some(Summary { lasted, failures, servers: 1 })
    }
}

impl Servers {
    pub(super) fn is_silent(&self, server: usize) -> bool {
        self.outages.get(&server).is_some_and(|outage| outage.since.is_some())
    }

    pub(super) fn record_failure(&mut self, server: usize, now: Instant) -> Option<Line> {
        let is_old = |warned: Option<Instant>| {
            warned.is_none_or(|warned| now.saturating_duration_since(warned) >= INTERVAL)
        };
        let outage = self.outages.entry(server).or_default();
        let since = *outage.since.get_or_insert(now);
        outage.failures += 1;
        let begins = !outage.is_logged;
        if !is_old(if begins { outage.warned } else { self.warned }) {
            return None;
        }
        (outage.is_logged, outage.warned, self.warned) = (true, Some(now), Some(now));
        if begins && outage.failures == 1 {
            return Some(Line::Begins);
        }
        let lasting = || self.outages.values().filter(|outage| outage.since.is_some());
        Some(Line::Lasts(Summary {
            lasted: rounded(now.saturating_duration_since(since)),
            failures: lasting().map(|outage| outage.failures).sum(),
            servers: lasting().count(),
        }))
    }

    /// The server has answered a request that was sent at `sent`: what to log if its outage is over.
    pub(super) fn record_answer(
        &mut self,
        server: usize,
        sent: Instant,
        now: Instant,
    ) -> Option<Summary> {
        self.outages.get_mut(&server)?.end(sent, now)
    }

    /// The server is out of use: what to log if that ends an outage.
    pub(super) fn forget(&mut self, server: usize, now: Instant) -> Option<Summary> {
        self.outages.remove(&server)?.end(now, now)
    }

    fn any(&self) -> bool {
        self.outages.values().any(|outage| outage.since.is_some())
    }
}

/// To be read by people.
fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_millis().try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(lasted: u64, failures: u64, servers: usize) -> Summary {
        Summary { lasted: Duration::from_millis(lasted), failures, servers }
    }

    #[test]
    fn an_outage_is_a_line_when_it_begins_one_every_ten_seconds_and_one_when_it_is_over() {
        let (mut servers, begun) = (Servers::default(), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        let lines: Vec<_> =
            (0..600).filter_map(|tenth| servers.record_failure(1, at(100 * tenth))).collect();
        let lasts = |nth: u64| Line::Lasts(summary(10_000 * nth, 100 * nth + 1, 1));
        assert_eq!(lines[0], Line::Begins);
        assert_eq!(lines[1..], [1, 2, 3, 4, 5].map(lasts));
        // An answer to a request that was sent before the outage began is no end of it.
        assert_eq!(servers.record_answer(1, begun - INTERVAL, at(60_000)), None);
        let over = servers.record_answer(1, at(59_000), at(60_000));
        assert_eq!(over, Some(summary(60_000, 600, 1)));
        assert_eq!(servers.record_answer(1, at(60_000), at(60_001)), None);
        assert!(!servers.any());
    }

    #[test]
    fn a_server_that_comes_and_goes_is_a_line_every_ten_seconds() {
        let (mut servers, begun) = (Servers::default(), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        let mut lines = Vec::new();
        for second in (0..30).map(|second| 1000 * second) {
            let begins = servers.record_failure(1, at(second));
            lines.push((begins, servers.record_answer(1, at(second + 500), at(second + 501))));
        }
        lines.retain(|said| *said != (None, None));
        let said = || (Some(Line::Begins), Some(summary(501, 1, 1)));
        assert_eq!(lines, [said(), said(), said()]);
    }

    #[test]
    fn several_servers_share_the_lines_of_an_outage_that_lasts() {
        let (mut servers, begun) = (Servers::default(), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        assert_eq!(servers.record_failure(1, at(0)), Some(Line::Begins));
        assert_eq!(servers.record_failure(2, at(1)), Some(Line::Begins));
        assert_eq!(servers.record_failure(1, at(10_000)), None);
        assert_eq!(servers.record_failure(2, at(10_001)), Some(Line::Lasts(summary(10_000, 4, 2))));
        assert_eq!(servers.record_failure(1, at(10_002)), None);
        assert_eq!(servers.record_answer(2, at(11_000), at(11_001)).map(|_| ()), Some(()));
        assert!(servers.any());
        assert_eq!(servers.forget(1, at(12_000)), Some(summary(12_000, 3, 1)));
        assert_eq!(servers.forget(1, at(12_001)), None);
        assert!(!servers.any());
    }
}
