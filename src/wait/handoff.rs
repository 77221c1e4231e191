//! Gives a waiter a lock that this client has already, without a request by the waiter.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Config;
use crate::handle::Handle;
use crate::protocol::Names;
use crate::token::TokenBlock;

use super::change::{LONGEST_PARK, NextWaiter};
use super::subscriptions::LINGER;
use super::{Effects, Waiter, Waiters};

impl Waiters {
    /// Whether a waiter can take the lock: one is in the queue that is not asking Redis.
    pub(crate) fn has_next_waiter(&self, names: &Names) -> bool {
        self.next_lease(names).is_some()
    }

    /// The lease that the next waiter of a lock asks for.
    pub(crate) fn next_lease(&self, names: &Names) -> Option<Duration> {
        let mut queues = self.queues.lock();
        queues.at(clock::now()).next_waiter(names).map(|next| next.waiter.requested)
    }

    /// Takes the next waiter from the queue of a lock that this client has, if `takes` gives it the lock.
    /// Where Redis keeps a queue, it must be the next of all clients, unless it may go `before_older` ones.
    /// The waiter has then left the queue. The caller must [run](Self::run) the returned effects.
    ///
    /// The waiter behind a head that is asking takes the lock only if the head hears of the hand-off before
    /// the new holder's lease could end. Where another call of its handle waits, that may be the head, and then
    /// it nests.
    ///
    /// The queue then has a new head, which must set its timer before the new holder's lease could end, or what is
    /// `left` of the one in force, if Redis does not hear of the new one.
    /// A wake-up now would delay the new holder, so the caller wakes the head [later](Self::wake_head),
    /// within `longest_request`. If the lease could end before that, the effects wake the head.
    pub(crate) fn take_next<T>(
        &self,
        names: &Names,
        before_older: bool,
        longest_request: Duration,
        left: Duration,
        now: Instant,
        takes: impl FnOnce(&Waiter) -> Option<T>,
    ) -> Option<(Arc<Waiter>, T, Effects<Waiter>)> {
        let mut queues = self.queues.lock();
        let NextWaiter { ticket, waiter, passes } = queues.at(now).next_waiter(names)?;
        let waiter = waiter.clone();
        let lease = waiter.requested.min(left);
        let ends_soon = lease.min(LONGEST_PARK) <= longest_request;
        if passes && (ends_soon || waiter.handle.waiting.load(Ordering::Relaxed) > 1) {
            return None;
        }
        if let Some(entry) = queues.own_entry(names)
            && !before_older
            && !entry.is_next(waiter.since)
        {
            return None;
        }
        let taken = takes(&waiter)?;
        queues.record_hand_off(names, ticket, lease);
        self.waiting.store(queues.cx.waiting, Ordering::Release);
        let mut effects = queues.take_effects();
        // Behind one that is passed there is no new head. The one behind the new holder has the timer of that from now on.
        if !ends_soon && !passes {
            effects.wake.clear();
        }
        Some((waiter, taken, effects))
    }

    /// Takes those readers from the queue of a lock that this client reads that may come in, if `takes` gives them
    /// the lock: all before the first writer, of this client or another one. The caller has to hand it to them. One
    /// that is asking Redis, or that is given nothing, joins when it goes on.
    pub(crate) fn take_readers<T>(
        &self,
        handle: &Arc<Handle>,
        now: Instant,
        takes: impl Fn(&Waiter) -> Option<T>,
    ) -> Vec<(Arc<Waiter>, T)> {
        if handle.waiting.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let names = &handle.names;
        self.change_at(now, |queues| {
            if queues.closed {
                return Vec::new();
            }
            let reads = |waiter: &Waiter| Arc::ptr_eq(&waiter.handle, handle);
            let readers = queues.get(names).map(|queue| queue.readers(reads)).unwrap_or_default();
            let (mut taken, mut tickets) = (Vec::new(), Vec::new());
            for (ticket, waiter, is_asking) in readers {
                if let Some(given) = (!is_asking).then(|| takes(&waiter)).flatten() {
                    tickets.push(ticket);
                    taken.push((waiter, given));
                } else {
                    waiter.nests.store(true, Ordering::Relaxed);
                    queues.cx.effects.wake.push(waiter);
                }
            }
            queues.change(names, |queue, cx| queue.record_let_in(&tickets, cx));
            if !tickets.is_empty() {
                queues.keep_if_empty(names, LINGER);
            }
            taken
        })
    }

    /// The names of that lock as its waiters have them.
    pub(crate) fn names_of(&self, names: Names) -> Arc<Names> {
        let known = self.queues.lock().names_of(&names);
        known.unwrap_or_else(|| names.into())
    }

    /// How many fencing tokens this client draws for the waiters of a lock that need some: enough for those
    /// that come while a request for more is under way. None if it hands nothing off: what it draws and does not use has
    /// the tokens run ahead of the time.
    pub(crate) fn tokens_wanted(&self, names: &Names, config: &Config) -> u32 {
        if !config.takes_grants() {
            return 0;
        }
        let queues = self.queues.lock();
        let parked = queues.get(names).into_iter().flat_map(|queue| queue.parked());
        // The next ones have the tokens. To look at all of a crowd takes its time, under the mutex.
        let next = parked.take(TokenBlock::MOST_CALLS);
        let fenced = next.filter(|waiter| waiter.handle.kind.has_token()).count();
        TokenBlock::size_for(fenced)
    }

    /// Wakes the head of the lock's queue, which then sets its timer. `lease` is that of which Redis has heard just
    /// now, if any.
    pub(crate) fn wake_head(&self, names: &Names, lease: Option<Duration>) {
        self.change(|queues| {
            queues.change(names, |queue, cx| queue.record_heard_hand_off(lease, cx));
        });
    }
}
