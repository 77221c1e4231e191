//! What the board wants of Redis: which channels are subscribed, and what follows from an answer
//! or a cut.

use std::sync::Arc;
use std::time::Instant;

use super::line::Subscription;
use super::{Board, Wakes};

/// What the driver has to tell Redis.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) subscribe: Vec<Arc<str>>,
    pub(crate) unsubscribe: Vec<Arc<str>>,
    /// When to look again if nothing happens before.
    pub(crate) next: Option<Instant>,
}

impl<S> Board<S> {
    /// What to tell Redis now. What it names counts as asked for.
    pub(crate) fn plan(&mut self, now: Instant) -> Plan {
        let mut plan = Plan::default();
        if self.closed {
            // The connection goes, and its subscriptions with it.
            self.channels.clear();
        }
        self.channels.retain(|name, channel| {
            let wanted = channel.subscription == Subscription::Wanted;
            if let Some(until) = channel.kept_until {
                if wanted || until <= now {
                    plan.unsubscribe.extend((!wanted).then(|| name.clone()));
                    return false;
                }
                plan.next = Some(plan.next.map_or(until, |next| next.min(until)));
            } else if wanted {
                channel.subscription = Subscription::Asked;
                plan.subscribe.push(name.clone());
            }
            true
        });
        self.next_look = plan.next;
        plan
    }

    /// Redis confirmed the subscriptions: the heads ask now (invariant 2).
    pub(crate) fn subscribed(&mut self, names: &[Arc<str>], now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        for name in names {
            let Some(channel) = self.channels.get_mut(name) else {
                continue;
            };
            // Not if the connection was cut since: then this answer is of before.
            if channel.subscription == Subscription::Asked {
                self.outage = None;
                channel.subscription = Subscription::Live;
                if !seeded!("no-second-try") {
                    channel.ask_now(now, &mut wakes);
                }
            }
        }
        wakes
    }

    /// The connection was cut, and every subscription with it. Everybody looks up, because from
    /// now on the time of an outage counts.
    pub(crate) fn cut(&mut self, now: Instant) -> Wakes<S> {
        for channel in self.channels.values_mut() {
            channel.subscription = Subscription::Wanted;
        }
        if self.waiting > 0 {
            self.outage.get_or_insert(now);
        }
        self.everybody()
    }

    /// Redis did not subscribe these. They are asked for again with the next plan; until then
    /// their waiters go by the due time alone.
    pub(crate) fn not_subscribed(&mut self, names: &[Arc<str>]) {
        for name in names {
            if let Some(channel) = self.channels.get_mut(name) {
                channel.subscription = Subscription::Wanted;
            }
        }
    }
}
