//! Which channels this client wants to be subscribed, and what follows from an answer or a cut.

use std::sync::Arc;
use std::time::Instant;

use super::channel::Subscription;
use super::{WaitQueues, Wakes};

/// What a driver has to send to its server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) subscribe: Vec<Arc<str>>,
    pub(crate) unsubscribe: Vec<Arc<str>>,
}

impl<S> WaitQueues<S> {
    /// Whether there is something to send to a server now on the connection `on`, and when to check
    /// again if nothing happens before. `mine` says whether a channel is for that server.
    pub(crate) fn is_dirty(
        &mut self,
        now: Instant,
        on: u64,
        mine: impl Fn(&str) -> bool,
    ) -> (bool, Option<Instant>) {
        let mut dirty = false;
        self.next_look = None;
        for (name, channel) in &self.channels {
            let wanted = channel.subscription == Subscription::Wanted;
            match channel.kept_until {
                _ if self.closed => dirty = true,
                None => dirty |= wanted && mine(name),
                Some(_) if wanted => dirty = true,
                Some(until) if until <= now => dirty |= channel.on == Some(on),
                Some(until) => {
                    self.next_look = Some(self.next_look.map_or(until, |next| next.min(until)));
                }
            }
        }
        (dirty, self.next_look)
    }

    /// What to send to a server now on the connection `on`. Its channels count as asked for.
    pub(crate) fn plan(&mut self, now: Instant, on: u64, mine: impl Fn(&str) -> bool) -> Plan {
        let mut plan = Plan::default();
        if self.closed {
            // The client closes its connections, and the subscriptions end with them.
            self.channels.clear();
        }
        let turns = &mut self.turns;
        self.channels.retain(|name, channel| {
            let wanted = channel.subscription == Subscription::Wanted;
            if let Some(until) = channel.kept_until {
                if wanted {
                    return false;
                }
                if until <= now && channel.on == Some(on) {
                    plan.unsubscribe.push(name.clone());
                    channel.queues.iter().for_each(|queue| turns.hears_no_more(&queue.key));
                    return false;
                }
            } else if wanted && mine(name) {
                channel.subscription = Subscription::Sent;
                channel.on = Some(on);
                plan.subscribe.push(name.clone());
            }
            true
        });
        plan
    }

    /// Redis confirmed the subscriptions: the heads ask now (invariant 2).
    pub(crate) fn subscribed(&mut self, names: &[Arc<str>], on: u64, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        for name in names {
            let Some(channel) = self.channels.get_mut(name) else {
                continue;
            };
            // If the connection was cut since, this answer is outdated.
            if channel.subscription == Subscription::Sent && channel.on == Some(on) {
                channel.outage = None;
                channel.subscription = Subscription::Live;
                channel.ask_now(&self.turns, now, &mut wakes);
            }
        }
        wakes
    }

    /// The connection `on` was cut, and with it every subscription on it. All waiters there wake
    /// up, because the time of an outage counts from now on.
    pub(crate) fn cut(&mut self, on: u64, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        for channel in self.channels.values_mut().filter(|channel| channel.on == Some(on)) {
            let before = wakes.len();
            wakes.extend(channel.everybody().cloned());
            if wakes.len() > before {
                channel.outage.get_or_insert(now);
            }
            channel.is_elsewhere(&mut self.turns, now, &mut wakes);
        }
        wakes
    }

    /// Whether a waiter needs a message that would come on the connection `on`.
    pub(crate) fn counts_on(&self, on: u64) -> bool {
        self.channels.values().any(|channel| {
            let subscribed = channel.subscription != Subscription::Wanted;
            channel.on == Some(on) && subscribed && channel.kept_until.is_none()
        })
    }

    /// Redis did not subscribe these channels, or does not any more. The next plan asks for them
    /// again; until then their waiters rely on the due time alone.
    pub(crate) fn not_subscribed(&mut self, names: &[Arc<str>], on: u64, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        for name in names {
            let channel = self.channels.get_mut(name);
            if let Some(channel) = channel.filter(|channel| channel.on == Some(on)) {
                channel.is_elsewhere(&mut self.turns, now, &mut wakes);
            }
        }
        wakes
    }
}
