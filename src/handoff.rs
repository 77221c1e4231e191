//! Hands a lock from one holder of this client to the next without releasing it.
//!
//! While Redis has the name under any owner of this client, no other client can get it. So when a
//! holder gives its last guard back and another call of this client is parked, that call has the
//! lock at once, and Redis is updated asynchronously.
//!
//! 1. **The client has the name all the while.** A hand-off starts from a hold that is valid,
//!    and until it is confirmed the new hold is valid no longer than the old one was. If Redis
//!    finds the name gone, every hold that came of it is lost.
//! 2. **Hand-offs of a name go out in order, one request at a time.** Those that come meanwhile
//!    share the next request. A request that was not answered is sent again, followed by what has
//!    come since: Redis goes on from the owner that it finds.
//! 3. The permits of both owners stay here until Redis has confirmed their hand-off, so that no
//!    other request is sent for them. Only the last owner in the queue can hand the lock off again.
//! 4. **The number of unconfirmed hand-offs is limited.** The one that makes the queue full is
//!    awaited: the new holder has the lock when Redis has confirmed it, and cannot hand it off
//!    before. So neither memory nor the time that `unlock` takes grows with a Redis that is far
//!    away or hangs.
//! 5. While other clients wait, a streak of hand-offs ends after a while (see [`crate::owner`]). Where
//!    Redis keeps a queue, it ends when one of another client may have come earlier, and `fair_turn` is over.
//!
//! Lock order: the handoff queues, the wait queues, a hold state. No waiter is woken meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::clock;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Loss, Outcome, log_failure};
use crate::host::HashMap;
use crate::lease::{Validity, valid_until};
use crate::loss::found_gone;
use crate::owner::{Ask, FoundBy, Granted, Owner, Permit};
use crate::protocol::{HandOffReply, Names, Session};
use crate::released::ReleasedNames;
use crate::sync::OuterMutex;
use crate::token::FencingToken;
use crate::transport::Router;
use crate::wait::{HandoffOutcome, Ticket, Waiters, WakeList};
use crate::watchdog::Watchdog;

mod gather;
mod queue;
mod releases;
mod retry;
mod unsent;
use gather::Trip;
pub(crate) use queue::Confirmation;
use queue::{Handoff, HandoffQueue, Request, To, hand, take_permit};
use retry::{LONGEST_PAUSE, PendingOwner, RetryState};

pub(crate) struct Handoffs {
    queues: OuterMutex<HashMap<Box<str>, HandoffQueue>>,
    pub(crate) waiters: Arc<Waiters>,
    watchdog: Arc<Watchdog>,
    pub(crate) config: Arc<Config>,
    pub(crate) released_names: ReleasedNames,
    trip: Trip,
}

/// What is left to do after a lock was handed off.
pub(crate) struct HandedOff {
    /// The client's thread has to [flush](Handoffs::flush) it to Redis.
    pub(crate) flush: bool,
    /// For a caller that awaits the confirmation.
    pub(crate) confirmation: Option<Confirmation>,
    /// The new owner, if its waiter has left: the caller must give the lock back.
    pub(crate) declined: Option<(Arc<Owner>, Granted)>,
}

impl Handoffs {
    pub(crate) fn new(
        waiters: &Arc<Waiters>,
        watchdog: &Arc<Watchdog>,
        config: &Arc<Config>,
    ) -> Self {
        let (waiters, watchdog) = (waiters.clone(), watchdog.clone());
        let (queues, config) = (OuterMutex::default(), config.clone());
        let (released_names, trip) = Default::default();
        Self { queues, waiters, watchdog, config, released_names, trip }
    }

    /// Hands off the lock that `owner` has just fully released in its hold state. `None` if no
    /// waiter can take it, or if another client has its turn: then the caller must release it.
    /// Leaves the owner's permit in `permit` if the permit was free.
    pub(crate) fn hand_off(
        &self,
        owner: &Arc<Owner>,
        permit: &mut Option<Permit>,
        confirm: bool,
    ) -> Option<HandedOff> {
        self.hand_off_by(owner, permit, confirm, false)
    }

    /// The same. With `awaits` the next owner has the lock only when Redis has confirmed that.
    pub(crate) fn hand_off_by(
        &self,
        owner: &Arc<Owner>,
        permit: &mut Option<Permit>,
        confirm: bool,
        awaits: bool,
    ) -> Option<HandedOff> {
        if self.config.max_handoffs == 0 || !self.waiters.somebody_waits(&owner.names) {
            return None;
        }
        // Outlives the mutexes, because its drop may wake a task.
        let mut spare = None;
        let mut queues = self.queues.lock();
        let now = clock::now();
        let queue = queues.get(owner.names.key());
        if !take_permit(queue, owner, permit) {
            return None;
        }
        let full = awaits || queue.is_some_and(HandoffQueue::is_full);
        if let Some(wake_list) = self.turn_ends(owner, now) {
            drop(queues);
            self.waiters.wake_all(wake_list);
            return None;
        }
        let start = owner.holds.lock().start_handoff(now, awaits)?;
        let fits = |next: &Arc<Owner>| {
            let permit = next.try_permit()?;
            if next.holds.lock().can_take() {
                return Some(permit);
            }
            spare = Some(permit);
            None
        };
        let longest = self.config.command_timeout.saturating_add(LONGEST_PAUSE);
        let turn = start.streak.is_within(self.config.fair_turn, now);
        let taken = self.waiters.take_next(&owner.names, full, turn, longest, now, fits)?;
        let (waiter, ticket, awaits, to_permit, wake_list) = taken;
        owner.holds.lock().release_sent(start.pending);

        let until = valid_until(now, waiter.requested);
        let awaited = awaits.then_some(ticket);
        let (to, granted) = hand(&waiter, awaited, until, &start, now);
        let (confirm, confirmation) = confirm.then(oneshot::channel).unzip();
        let handoff = Handoff {
            from: owner.clone(),
            pending: start.pending,
            confirm,
            waiter: waiter.clone(),
            to,
            until,
            streak: start.streak,
            from_permit: permit.take(),
            to_permit: Some(to_permit),
        };
        let flush = add(&mut queues, handoff);
        drop(queues);
        // The new holder is woken last: what is woken last runs first on this worker.
        self.waiters.wake_all(wake_list);
        let declined = granted.and_then(|granted| waiter.hand(granted).err());
        let declined = declined.map(|granted| (waiter.owner.clone(), granted));
        Some(HandedOff { flush, confirmation, declined })
    }

    /// Whether it is the turn of other clients, so that the owner has to release the lock. Returns
    /// which waiter the caller has to wake then.
    fn turn_ends(&self, owner: &Owner, now: Instant) -> Option<WakeList> {
        if owner.kind.has_queue() {
            // The order says whose turn it is.
            return None;
        }
        let others = owner.holds.lock().streak_is_over(&self.config, now)?;
        let (ends, wake_list) = self.waiters.turn_ends(&owner.names, Some(others), now);
        ends.then_some(wake_list)
    }

    /// Sends the hand-offs of that lock to Redis until none are left. Returns the owners whose
    /// releases are still pending, and whether Redis has confirmed the last hand-off.
    pub(crate) async fn flush(&self, router: &Router, names: &Names) -> (Vec<PendingOwner>, bool) {
        let mut retry = RetryState::default();
        self.gather(names).await;
        while let Some(request) = self.request(names) {
            if retry.failures > 0 {
                clock::sleep(retry.pause()).await;
            }
            let owners: Vec<&str> = request.owners.iter().map(|owner| &*owner.id).collect();
            let kind = request.owners.last().expect("BUG: a hand-off by no owner").kind;
            let mut call = Session::new(router, clock::now() + self.config.command_timeout);
            let server = router.movable_server_of(names.key());
            // Not if this client is about to unsubscribe: then a listener is another client.
            let listens = self.waiters.keeps_hearing(names);
            let (place, sent) = (self.place_in_queue(kind, names), clock::now());
            let answer =
                call.send_handoffs(kind, names, &owners, request.lease, listens, place).await;
            if answer.is_ok() {
                self.trip.ended(sent);
            }
            self.note_release(kind, names, server, None, router);
            if self.hear(names, &request, answer, &mut retry, || call.abandon()) {
                break;
            }
        }
        (retry.pending, retry.confirmed)
    }

    fn request(&self, names: &Names) -> Option<Request> {
        self.queues.lock().get(names.key()).map(HandoffQueue::request)
    }

    /// Processes an answer. True if the flush is done. `abandon` comes before owners go on, if a request may
    /// still be executed.
    fn hear(
        &self,
        names: &Names,
        request: &Request,
        answer: Result<(HandOffReply, bool), Error>,
        retry: &mut RetryState,
        abandon: impl FnOnce(),
    ) -> bool {
        let (handoffs, now, name) = (request.owners.len() - 1, clock::now(), names.key());
        let mut lease = None;
        let over = match answer {
            Ok((HandOffReply::Done { token, listening, elsewhere }, _)) => {
                self.waiters.heard(names, elsewhere);
                lease = Some(request.lease);
                (retry.failures, retry.unanswered, retry.give_up) = (0, 0, None);
                let (taken, over) = self.take(names, handoffs);
                retry.pending.extend(self.done(names, taken, token, listening, now));
                over
            }
            Ok((HandOffReply::Nothing(loss), repeated)) => {
                let unanswered = if repeated { handoffs } else { retry.unanswered };
                self.lose_unconfirmed(names, unanswered, loss);
                true
            }
            Err(error) if error.kind() == ErrorKind::NotALock => {
                self.lose_unconfirmed(names, retry.unanswered, Loss::KeyGone);
                true
            }
            Err(error) => {
                retry.failures += 1;
                if error.outcome() != Outcome::NotExecuted {
                    retry.unanswered = handoffs;
                }
                let (longest, awaited) = self.failed(names, handoffs, &error);
                let longest = longest + self.config.command_timeout;
                // No later hand-off starts from one that is awaited.
                let over = awaited || now >= *retry.give_up.get_or_insert(now + longest);
                if over {
                    let outcome = match error.kind() {
                        ErrorKind::Unavailable => HandoffOutcome::Unanswered,
                        _ => HandoffOutcome::Refused,
                    };
                    if retry.unanswered > 0 {
                        abandon();
                    }
                    retry.pending.extend(self.given_up(names, outcome));
                } else {
                    log_failure!(error, self.waiters, name, "a hand-off failed; trying again");
                }
                over
            }
        };
        // The head may have no timer yet: the hand-off did not wake it.
        self.waiters.wake_head(names, lease);
        retry.confirmed = lease.is_some();
        over
    }

    /// Redis has confirmed the first hand-offs.
    fn done(
        &self,
        names: &Names,
        mut done: Vec<Handoff>,
        token: Option<FencingToken>,
        listening: Option<u64>,
        now: Instant,
    ) -> Option<PendingOwner> {
        let ourselves = u64::from(self.waiters.hears(names));
        // Without a count from Redis, another client may wait.
        let others = listening.map_or(1, |listening| listening.saturating_sub(ourselves));
        for handoff in &mut done {
            handoff.from.holds.lock().release_confirmed(handoff.pending);
            if let Some(confirm) = handoff.confirm.take() {
                let _ = confirm.send(Ok(true));
            }
        }
        let last = done.last()?;
        last.streak.note(u32::try_from(others).unwrap_or(u32::MAX));
        let owner = &last.waiter.owner;
        match &last.to {
            To::Holds(hold, validity) => {
                let watch = {
                    let mut holds = owner.holds.lock();
                    holds.confirmed(*hold, validity, last.until, now);
                    holds.start_watching()
                };
                if let Some(since) = watch {
                    self.watchdog.watch(owner, since);
                }
                None
            }
            To::Awaits(ask, ticket) => self.grant(last, *ask, *ticket, token, now),
        }
    }

    /// Redis has confirmed an awaited hand-off: the lock comes, with its token if it is fenced.
    fn grant(
        &self,
        handoff: &Handoff,
        ask: Ask,
        ticket: Ticket,
        token: Option<FencingToken>,
        now: Instant,
    ) -> Option<PendingOwner> {
        let (owner, lease) = (&handoff.waiter.owner, handoff.waiter.requested);
        let validity = Arc::new(Validity::new(handoff.until));
        let (hold, token) = {
            let mut holds = owner.holds.lock();
            let streak = handoff.streak.clone();
            let hold = holds.handed(ask, handoff.waiter.lease, validity.clone(), streak, now);
            holds.confirmed(hold, &validity, handoff.until, now);
            (hold, holds.fenced(token))
        };
        self.waiters.report(&handoff.waiter, ticket, HandoffOutcome::Granted);
        handoff.waiter.hand(Granted::new(hold, validity, lease, token)).err()?;
        owner.holds.lock().give_back(hold);
        Some((owner.clone(), lease))
    }

    /// Redis has the name under none of the owners. It may have executed the first hand-offs, in
    /// `unanswered` requests, and the lease of the last of these owners may have ended since. Then the
    /// owners before that one had the lock until they handed it off.
    fn lose_unconfirmed(&self, names: &Names, unanswered: usize, loss: Loss) {
        for (at, handoff) in self.take(names, usize::MAX).0.into_iter().enumerate() {
            let executed = at < unanswered;
            if executed {
                handoff.from.holds.lock().release_confirmed(handoff.pending);
            } else {
                found_gone(&self.waiters, &handoff.from, FoundBy::HandOff, loss);
            }
            if at + 1 >= unanswered {
                found_gone(&self.waiters, &handoff.waiter.owner, FoundBy::HandOff, loss);
            }
            if let Some(confirm) = handoff.confirm {
                let _ = confirm.send(Ok(executed));
            }
            if let To::Awaits(_, ticket) = handoff.to {
                self.waiters.report(&handoff.waiter, ticket, HandoffOutcome::Refused);
            }
        }
        // The waiters relied on its being held.
        self.waiters.look(names);
    }

    /// The request was not answered, or refused. Returns the longest lease that may be in force,
    /// and whether the last hand-off is awaited.
    fn failed(&self, names: &Names, handoffs: usize, error: &Error) -> (Duration, bool) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(names.key()) else {
            return (Duration::ZERO, true);
        };
        let (confirms, longest, awaited) =
            (queue.take_confirms(handoffs), queue.longest_lease(), queue.is_awaited());
        drop(queues);
        for confirm in confirms {
            let message = format!("a hand-off failed, and is tried again: {error:#}");
            let _ = confirm.send(Err(Error::new(error.kind(), Outcome::Unknown, message)));
        }
        (longest, awaited)
    }

    /// Takes the first hand-offs out. The flag says that none are left. Then the flush is done, and
    /// the next hand-off asks for another one.
    fn take(&self, names: &Names, handoffs: usize) -> (Vec<Handoff>, bool) {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(names.key()) else { return (Vec::new(), true) };
        let taken = queue.take(handoffs);
        let over = queue.is_empty();
        if over {
            queues.remove(names.key());
        }
        (taken, over)
    }
}

/// Puts a hand-off at the end of its queue. True if it is the first there.
fn add(queues: &mut HashMap<Box<str>, HandoffQueue>, handoff: Handoff) -> bool {
    let key = handoff.from.names.key();
    // `entry` would need a key of its own for each hand-off.
    if let Some(queue) = queues.get_mut(key) {
        queue.push(handoff);
        return false;
    }
    let (key, mut queue) = (key.into(), HandoffQueue::default());
    queue.push(handoff);
    queues.insert(key, queue);
    true
}

#[cfg(test)]
mod tests;
