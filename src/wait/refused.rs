//! The channels that a server has refused, and when the client asks for them again: pure state.
//!
//! Each refusal doubles the pause, because a user that may subscribe to nothing costs Redis a command for each
//! channel. What the server grants later is found within the longest pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::host::HashMap;

/// How long the client waits, after the server has first refused a channel, before it asks for that channel again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The pause doubles with each refusal, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

#[derive(Default)]
pub(super) struct Refused {
    /// Until when a channel is not asked for, and the pauses after that.
    pauses: HashMap<Arc<str>, (Instant, Backoff)>,
}

impl Refused {
    /// Whether that channel is not to be asked for.
    pub(super) fn has(&self, channel: &str, now: Instant) -> bool {
        self.pauses.get(channel).is_some_and(|(until, _)| now < *until)
    }

    /// When the next of them is asked for again.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.pauses.values().map(|(until, _)| *until).filter(|until| now < *until).min()
    }

    pub(super) fn record(&mut self, channels: Vec<Arc<str>>, now: Instant) {
        // What was not refused for long begins anew.
        self.pauses.retain(|_, (until, _)| now < *until + LONGEST_PAUSE);
        for channel in channels {
            let begins = || (now, Backoff::new(FIRST_PAUSE, LONGEST_PAUSE));
            let (until, backoff) = self.pauses.entry(channel).or_insert_with(begins);
            *until = now + backoff.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn what_is_refused_again_and_again_is_asked_for_ever_more_seldom_and_then_forgotten() {
        let (mut refused, mut now) = (Refused::default(), clock::now());
        let channel: Arc<str> = "channel".into();
        for pause in [1, 2, 4, 8, 16, 16].map(Duration::from_secs) {
            refused.record(vec![channel.clone()], now);
            assert_eq!(refused.next(now), Some(now + pause));
            assert!(refused.has(&channel, now + pause / 2) && !refused.has("other", now));
            now += pause;
            assert!(!refused.has(&channel, now) && refused.next(now).is_none());
        }
        now += LONGEST_PAUSE;
        refused.record(vec!["other".into()], now);
        assert_eq!(refused.pauses.len(), 1);
        refused.record(vec![channel], now);
        assert_eq!(refused.next(now), Some(now + FIRST_PAUSE));
    }
}
