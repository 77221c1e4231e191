//! On which channels a client listens for its queues, and what comes of that.
//!
//! 1. **Each client hears on a channel of its own that it has its turn, if Redis keeps a queue for the lock.**
//! 2. **The first client in that queue listens on the common channel, too.** There Redisson publishes, which does not
//!    know the queue. Those behind the first would ask in vain. When the first one has the lock, or leaves, the
//!    next one has its turn, or asks: then it learns that it is the first. One that becomes the first because the
//!    oldest waiter of another client has left, before others of that one, learns it when it refreshes its entry.

use super::*;

impl<W> Queues<W> {
    fn change_each_on(
        &mut self,
        channel: &str,
        mut change: impl FnMut(&mut WaitQueue<W>, &mut Context<W>),
    ) {
        for names in self.subscriptions.locks(channel) {
            if let Some(queue) = self.by_lock.get_mut(&**names) {
                change(queue, &mut self.cx);
            }
        }
    }

    /// A waiter of that lock parks, and needs the messages on its channel; and as long as its client is the first in
    /// the queue that Redis keeps, those on the common one. Returns whether one of them was live already for another
    /// lock: then the head asks.
    pub(super) fn listens(&mut self, names: &Arc<Names>, is_head: bool) -> bool {
        let mut is_live = self.wants(names.channel(), names);
        if names.is_in_order() && is_head {
            let common = names.common_channel();
            if self.own_entry(names).is_some_and(|entry| entry.is_first()) {
                is_live |= self.wants(common, names);
            } else if self.subscriptions.is_wanted_for(common, names) {
                self.keep_without(common, names, LINGER);
            }
        }
        is_live
    }

    /// Whether this client would hear its own message on the lock's channel, and none of its calls waits for the same key
    /// in another way: one that waits in order has its turn as other clients have theirs.
    pub(in crate::wait) fn hears_itself(&self, names: &Names) -> bool {
        let waits_for_it = |other: &Arc<Names>| {
            other.key() == names.key()
                && **other != *names
                && self.by_lock.get(other).is_some_and(|queue| !queue.is_empty())
        };
        let channel = names.channel();
        let locks = self.subscriptions.locks(channel);
        self.subscriptions.is_live(channel) && !locks.iter().any(waits_for_it)
    }

    fn wants(&mut self, channel: &str, names: &Arc<Names>) -> bool {
        let wanted = self.subscriptions.want(channel, names);
        self.cx.effects.drivers |= wanted == Wanted::New;
        wanted == Wanted::Live
    }

    /// If no waiter is left for the locks on a channel, its subscription is kept for a while, and so is what the
    /// client knows of the locks.
    pub(in crate::wait) fn keep_if_empty(&mut self, names: &Names, keep: Duration) {
        if self.by_lock.get(names).is_none_or(WaitQueue::is_empty) {
            self.keep_without(names.channel(), names, keep);
            if names.is_in_order() {
                self.keep_without(names.common_channel(), names, keep);
            }
        }
    }

    /// A lock does not need its subscription to a channel any more. If no other lock does, it is kept for a while.
    fn keep_without(&mut self, channel: &str, names: &Names, keep: Duration) {
        let locks = self.subscriptions.locks(channel);
        let is_unused = |other: &Arc<Names>| {
            **other == *names || self.by_lock.get(other).is_none_or(WaitQueue::is_empty)
        };
        if locks.iter().any(|other| **other == *names) && locks.iter().all(is_unused) {
            let until = self.cx.at.now + keep;
            self.cx.effects.drivers |= self.subscriptions.keep_until(channel, until);
        }
    }

    /// A message came on a channel, which says to ask `after` that time: zero for now. The common channel of locks
    /// for which Redis keeps a queue says of each release that there was one.
    pub(crate) fn record_message(&mut self, channel: &str, after: Duration) {
        for names in self.subscriptions.locks(channel) {
            let Some(queue) = self.by_lock.get_mut(&**names) else { continue };
            let is_common = names.channel() != channel;
            if is_common && queue.order.own_entry().is_some_and(OwnEntry::is_for_others) {
                continue;
            }
            queue.record_message(if is_common { Duration::ZERO } else { after }, &mut self.cx);
        }
    }

    /// Redis has refused the head, and said whether this client is the first in the queue that it keeps. If so, a message
    /// that was for the first one may have been newer.
    pub(crate) fn record_rank(&mut self, names: &Names, is_first: bool) {
        self.change(names, |queue, cx| {
            if queue.order.own_entry().is_some_and(|own| own.set_first(is_first)) {
                queue.ask_now(cx);
            }
        });
    }

    /// Redis has answered a request about that channel, sent at `asked_at`.
    pub(crate) fn record_answer_on(&mut self, channel: &str, asked_at: Instant) {
        self.change_each_on(channel, |queue, cx| queue.record_reached(asked_at, cx));
    }

    /// Whether there is something to send to a server: see [`Subscriptions::is_dirty`].
    pub(crate) fn is_dirty(
        &mut self,
        on: u64,
        mine: impl Fn(&str) -> bool,
    ) -> (bool, Option<Instant>) {
        let (dirty, next) = self.subscriptions.is_dirty(self.cx.at.now, on, mine);
        (dirty || self.closed && !self.subscriptions.is_empty(), next)
    }

    /// What to send to a server now on the connection `on`.
    pub(crate) fn plan(&mut self, on: u64, mine: impl Fn(&str) -> bool) -> Plan {
        if self.closed {
            // The client closes its connections, and the subscriptions end with them.
            self.subscriptions.clear();
        }
        let (now, by_lock) = (self.cx.at.now, &mut self.by_lock);
        self.subscriptions.plan(now, on, mine, |channel, names| {
            let own = by_lock.get_mut(names).filter(|_| names.channel() == channel);
            if let Some(queue) = own {
                queue.order.record_unsubscribed(false);
            }
        })
    }

    /// Redis confirmed the subscriptions on that connection: the heads ask now.
    pub(crate) fn record_subscribed(&mut self, channels: &[Arc<str>], on: u64) {
        for channel in channels {
            if self.subscriptions.confirm(channel, on) {
                self.change_each_on(channel, WaitQueue::record_subscribed);
            }
        }
    }

    /// Redis did not subscribe these channels on that connection, or does not any more. Until it does, their
    /// waiters rely on the due time alone.
    pub(crate) fn record_unsubscribed(&mut self, channels: &[Arc<str>], on: u64) {
        for channel in channels {
            if let Some(was) = self.subscriptions.deny(channel, on) {
                self.change_each_on(channel, |queue, cx| queue.record_unsubscribed(was, cx));
            }
        }
    }

    /// Other servers may be responsible for channels now. `heard_on` says on which connection the messages of one come, if
    /// that is known.
    pub(crate) fn record_moves(&mut self, heard_on: impl Fn(&str) -> Option<u64>) {
        for (channel, on) in self.subscriptions.elsewhere(heard_on) {
            self.record_unsubscribed(&[channel], on);
        }
    }

    /// The connection `on` was cut, and with it every subscription on it. All waiters there wake
    /// up, because the time of an outage counts from now on.
    pub(crate) fn record_cut(&mut self, on: u64) {
        self.cx.effects.drivers = true;
        for (channel, was) in self.subscriptions.cut(on) {
            self.change_each_on(&channel, |queue, cx| queue.record_cut(was, cx));
        }
    }
}
