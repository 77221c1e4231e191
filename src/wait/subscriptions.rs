//! Which channels this client wants to be subscribed, and what follows from an answer or a cut: pure state.
//!
//! A subscription is wanted while there is a waiter, and for [`LINGER`] after the last one was
//! granted the lock: the next call soon after costs no SUBSCRIBE. If the last waiter gave up,
//! nothing is kept. With the subscription this client keeps what it knows of the lock, so a new
//! caller need not ask what a message would have reported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host::HashMap;
use crate::protocol::Names;

/// How long a subscription stays after the last waiter has got the lock.
pub(crate) const LINGER: Duration = Duration::from_millis(200);

/// What a driver has to send to its server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) subscribe: Vec<Arc<str>>,
    pub(crate) unsubscribe: Vec<Arc<str>>,
}

#[derive(Default)]
pub(super) struct Subscriptions {
    by_channel: HashMap<Arc<str>, Subscription>,
    /// Those that no connection has yet, so that a driver need not look at all.
    wanted: BTreeSet<Arc<str>>,
    /// Those that no waiter needs, by the time until which they are kept.
    kept: BTreeSet<(Instant, Arc<str>)>,
    /// When the driver checks next without a notification.
    next_check: Option<Instant>,
}

pub(super) struct Subscription {
    channel: Arc<str>,
    state: State,
    /// The number of the connection on which the driver last asked for the subscription.
    on: Option<u64>,
    /// No waiter is left: until when the subscription is kept all the same. Then it is in `kept`.
    kept_until: Option<Instant>,
    /// Two locks can share a channel: `a` and `{a}`, or a plain lock and a fair one.
    pub(super) locks: Vec<Arc<Names>>,
}

/// What a waiter finds that wants a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// There is no subscription: the driver has something to do.
    New,
    /// The lock has a subscription, or will have one.
    There,
    /// Another lock on the same channel has a subscription: from here on its messages are for this lock, too.
    Live,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Wanted,
    /// Not confirmed yet.
    Sent,
    Live,
}

impl Subscription {
    /// The subscription does not exist any more. Returns whether it was live.
    fn end(&mut self, wanted: &mut BTreeSet<Arc<str>>) -> bool {
        wanted.insert(self.channel.clone());
        std::mem::replace(&mut self.state, State::Wanted) == State::Live
    }

    /// How long it is kept without a waiter; `None` if there is one.
    fn keep(&mut self, until: Option<Instant>, kept: &mut BTreeSet<(Instant, Arc<str>)>) {
        if let Some(before) = self.kept_until.take() {
            kept.remove(&(before, self.channel.clone()));
        }
        kept.extend(until.map(|until| (until, self.channel.clone())));
        self.kept_until = until;
    }
}

impl Subscriptions {
    /// A waiter comes, which needs the subscription if there is one. Returns whether it is live for that lock.
    pub(super) fn keep(&mut self, names: &Arc<Names>) -> bool {
        let known = self.by_channel.get_mut(names.channel());
        let Some(subscription) = known.filter(|known| known.locks.contains(names)) else {
            return false;
        };
        subscription.keep(None, &mut self.kept);
        subscription.state == State::Live
    }

    /// A waiter of that lock parks, which needs the messages on a channel.
    pub(super) fn want(&mut self, channel: &str, names: &Arc<Names>) -> Wanted {
        let Some(subscription) = self.by_channel.get_mut(channel) else {
            let (state, locks) = (State::Wanted, vec![names.clone()]);
            let channel: Arc<str> = channel.into();
            let named = channel.clone();
            let subscription =
                Subscription { channel: named, state, on: None, kept_until: None, locks };
            self.wanted.insert(channel.clone());
            self.by_channel.insert(channel, subscription);
            return Wanted::New;
        };
        subscription.keep(None, &mut self.kept);
        if subscription.locks.contains(names) {
            return Wanted::There;
        }
        subscription.locks.push(names.clone());
        if subscription.state == State::Live { Wanted::Live } else { Wanted::There }
    }

    /// Whether there is a subscription for that lock, or will be.
    pub(super) fn has(&self, names: &Names) -> bool {
        self.locks(names.channel()).iter().any(|lock| **lock == *names)
    }

    /// Whether a waiter for that lock may need the messages on a channel.
    pub(super) fn is_wanted_for(&self, channel: &str, names: &Names) -> bool {
        let wanted = self.by_channel.get(channel).filter(|known| known.kept_until.is_none());
        wanted.is_some_and(|wanted| wanted.locks.iter().any(|lock| **lock == *names))
    }

    /// The last waiter has left: true if the driver has something to do.
    pub(super) fn keep_until(&mut self, channel: &str, until: Instant) -> bool {
        let Some(subscription) = self.by_channel.get_mut(channel) else { return false };
        if subscription.state == State::Wanted {
            // No server is known to have it. In an outage no driver would forget it, however long that is.
            subscription.keep(None, &mut self.kept);
            self.wanted.remove(channel);
            self.by_channel.remove(channel);
            return false;
        }
        subscription.keep(Some(until), &mut self.kept);
        self.next_check.is_none_or(|check| until < check)
    }

    /// The locks on a channel.
    pub(super) fn locks(&self, channel: &str) -> &[Arc<Names>] {
        self.by_channel.get(channel).map_or(&[], |subscription| &*subscription.locks)
    }

    pub(super) fn is_live(&self, channel: &str) -> bool {
        let subscription = self.by_channel.get(channel);
        subscription.is_some_and(|subscription| subscription.state == State::Live)
    }

    /// Whether the channel is subscribed on that connection and stays so, because a waiter of this client needs it.
    pub(super) fn stays_live(&self, channel: &str, on: u64) -> bool {
        let known = self.by_channel.get(channel).filter(|known| known.on == Some(on));
        known.is_some_and(|known| known.state == State::Live && known.kept_until.is_none())
    }

    /// Whether there is something to send to a server now on the connection `on`, and when to check
    /// again if nothing happens before. `mine` says whether a channel is for that server.
    pub(super) fn is_dirty(
        &mut self,
        now: Instant,
        on: u64,
        mine: impl Fn(&str) -> bool,
    ) -> (bool, Option<Instant>) {
        let of = |channel: &Arc<str>| &self.by_channel[channel];
        let is_over = self.over(now).any(|(_, channel)| of(channel).on == Some(on));
        let mut wanted = self.wanted.iter();
        let is_wanted = wanted.any(|channel| of(channel).kept_until.is_some() || mine(channel));
        let mut kept = self.kept.iter().filter(|(_, channel)| of(channel).state != State::Wanted);
        self.next_check = kept.find(|(until, _)| *until > now).map(|(until, _)| *until);
        (is_over || is_wanted, self.next_check)
    }

    /// Those that are kept no longer.
    fn over(&self, now: Instant) -> impl Iterator<Item = &(Instant, Arc<str>)> {
        self.kept.iter().take_while(move |(until, _)| *until <= now)
    }

    /// What to send to a server now on the connection `on`. Its channels count as asked for. `unsubscribed`
    /// gets the channels whose subscriptions end, with each of their locks.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        on: u64,
        mine: impl Fn(&str) -> bool,
        mut unsubscribed: impl FnMut(&str, &Names),
    ) -> Plan {
        let mut plan = Plan::default();
        for channel in std::mem::take(&mut self.wanted) {
            let Some(subscription) = self.by_channel.get_mut(&channel) else { continue };
            if subscription.kept_until.is_some() {
                subscription.keep(None, &mut self.kept);
                self.by_channel.remove(&channel);
            } else if mine(&channel) {
                (subscription.state, subscription.on) = (State::Sent, Some(on));
                plan.subscribe.push(channel);
            } else {
                self.wanted.insert(channel);
            }
        }
        let over: Vec<_> = self.over(now).cloned().collect();
        for kept in over {
            if self.by_channel[&kept.1].on == Some(on) {
                self.kept.remove(&kept);
                let (_, channel) = kept;
                let subscription = self.by_channel.remove(&channel);
                let locks = subscription.iter().flat_map(|subscription| &subscription.locks);
                locks.for_each(|names| unsubscribed(&channel, names));
                plan.unsubscribe.push(channel);
            }
        }
        plan
    }

    /// Redis confirmed the subscription on that connection. False if the connection was cut since: then the
    /// answer is outdated.
    pub(super) fn confirm(&mut self, channel: &str, on: u64) -> bool {
        let known = self.by_channel.get_mut(channel);
        known.filter(|known| known.state == State::Sent && known.on == Some(on)).is_some_and(
            |known| {
                known.state = State::Live;
                true
            },
        )
    }

    /// Redis did not subscribe that channel, or does not any more. The next plan asks for it again. Returns
    /// whether it was subscribed, if it is known on that connection.
    pub(super) fn deny(&mut self, channel: &str, on: u64) -> Option<bool> {
        let known = self.by_channel.get_mut(channel);
        let wanted = &mut self.wanted;
        known.filter(|known| known.on == Some(on)).map(|known| known.end(wanted))
    }

    /// Those on another connection than that on which their messages come, and on which.
    pub(super) fn elsewhere(&self, heard_on: impl Fn(&str) -> Option<u64>) -> Vec<(Arc<str>, u64)> {
        let asked_for = self.by_channel.iter().filter(|(_, known)| known.state != State::Wanted);
        let all = asked_for.filter_map(|(channel, known)| Some((channel.clone(), known.on?)));
        all.filter(|(channel, on)| heard_on(channel).is_some_and(|there| there != *on)).collect()
    }

    /// The connection `on` was cut, and with it every subscription on it. Returns which, and whether each was
    /// live.
    pub(super) fn cut(&mut self, on: u64) -> Vec<(Arc<str>, bool)> {
        let all = self.by_channel.iter_mut();
        let there = all.filter(|(_, subscription)| subscription.on == Some(on));
        let wanted = &mut self.wanted;
        there.map(|(channel, subscription)| (channel.clone(), subscription.end(wanted))).collect()
    }

    /// Whether a waiter needs a message that would come on the connection `on`.
    pub(super) fn counts_on(&self, on: u64) -> bool {
        self.by_channel.values().any(|subscription| {
            subscription.on == Some(on)
                && subscription.state != State::Wanted
                && subscription.kept_until.is_none()
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_channel.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
