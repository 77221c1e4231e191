//! Hands a lock from one holder of this client to the next without releasing it.
//!
//! While Redis has the name under this client's possession, no other client can get it. So when a
//! holder gives its last guard back and another call of this client is parked, that call has the
//! lock at once, under the same possession. Redis hears of it if its lease or its hold count has to change, if an
//! `unlock` waits until Redis confirms that the hold before was there to its end, if Redis keeps a queue, if the next
//! holders need fencing tokens, and now and then to count the clients that wait.
//!
//! 1. **The client has the name all the while.** A hand-off starts from a possession that is valid, and
//!    the new hold is valid no longer than that (see [`crate::possession`]). If Redis finds the name gone,
//!    the holder loses it.
//! 2. **One request at a time, for all that has come.** The client's thread [updates](Handoffs::update_redis) Redis about a
//!    possession: it sends what its state is then. A request that was not answered is sent again, behind
//!    the first one and as the state is by then.
//! 3. No new holder waits for that. Only the `unlock` of the one before does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};

use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::clock;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::events::Events;
use crate::loss::Losses;
use crate::possession::{
    AcquiredHold, Confirm, FoundBy, HoldState, Permit, Possession, Possessions, Update,
};
use crate::protocol::{Call, Terms, Updated};
use crate::released::ReleasedNames;
use crate::transport::Router;
use crate::wait::{Waiter, Waiters};

mod gather;
mod releases;
use gather::RoundTrip;
pub(crate) use releases::gone_when_asked_again;

/// The most undos that go on for longer than a lease: see [`Handoffs::standstills`].
const MAX_STANDSTILLS: usize = 1_024;

pub(crate) struct Handoffs {
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) events: Arc<Events>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) possessions: Arc<Possessions>,
    /// Renewals have been answered, or failed.
    answered: Arc<Notify>,
    pub(crate) config: Arc<Config>,
    pub(crate) released_names: ReleasedNames,
    /// Places for the undos that go on because a server stands still. Closed when the client is dropped.
    pub(crate) standstills: Semaphore,
    round_trip: RoundTrip,
}

/// The tries to tell Redis of a possession, since the last one that it answered.
struct Tries {
    backoff: Backoff,
    /// No other one begins later.
    end: Option<Instant>,
    /// Redis may execute the last one yet.
    in_doubt: bool,
    /// When the first request was sent whose callers have yet to hear what came of it, and how many callers those are.
    unanswered: Option<(Instant, usize)>,
}

impl Default for Tries {
    fn default() -> Self {
        Self { backoff: Backoff::in_background(), end: None, in_doubt: false, unanswered: None }
    }
}

/// What is left to do after a lock was handed off.
pub(crate) struct HandedOff {
    /// The client's thread has to [update Redis](Handoffs::update_redis).
    pub(crate) needs_update: bool,
    /// The waiter, which has its hold in its grant slot.
    pub(crate) waiter: Arc<Waiter>,
    /// The hold, if the waiter has left: the caller must give it back.
    pub(crate) declined: Option<AcquiredHold>,
}

impl Handoffs {
    pub(crate) fn new(
        losses: Arc<Losses>,
        possessions: Arc<Possessions>,
        answered: Arc<Notify>,
        config: Arc<Config>,
    ) -> Self {
        let (waiters, events) = (losses.waiters.clone(), losses.events.clone());
        Self {
            waiters,
            events,
            losses,
            possessions,
            answered,
            config,
            released_names: ReleasedNames::default(),
            standstills: Semaphore::new(MAX_STANDSTILLS),
            round_trip: RoundTrip::default(),
        }
    }

    /// Hands off a lock whose last guard has just been given back. `None` if no waiter can take it, or if
    /// another client has its turn: then the caller must release it. `permit` is that of the possession, if
    /// the caller has it. Redis confirms later that the hold was there to its end, for `confirm`.
    pub(crate) fn hand_off(
        &self,
        possession: &Arc<Possession>,
        permit: Option<&Permit>,
        confirm: Option<Confirm>,
    ) -> Option<HandedOff> {
        let names = &possession.names;
        if self.config.max_handoffs == 0 || !self.waiters.has_next_waiter(names) {
            return None;
        }
        let now = clock::now();
        let (streak, left) = {
            let holds = possession.holds.lock();
            holds.hands_off_until(now)?;
            // A request may be under way, and the next one is about the new holder. (A grant that came in a message lasts
            // for its grace, which the client has weighed.)
            if holds.had_a_hold() && !holds.lasts_for(2, self.round_trip(), now) {
                return None;
            }
            (holds.streak(now), holds.key_left(now))
        };
        if self.defers_to_others(possession, now) {
            return None;
        }
        let longest = self.config.command_timeout.saturating_add(LONGEST_PAUSE);
        let turn = streak.is_within(self.config.fair_turn, now);
        let (waiter, (granted, needs_update, gap), effects) =
            self.waiters.take_next(names, turn, longest, left, now, |waiter| {
                if waiter.handle.kind.is_shared() {
                    // A writer has the lock: Redis has to hear that readers come.
                    return None;
                }
                let has_permit = permit.is_some();
                let to = waiter.as_recipient()?;
                let handed = possession.pass_to(to, has_permit, confirm, &self.config, now)?;
                waiter.handle.enter(possession);
                let hold = (handed.hold, handed.from_holder);
                let granted = AcquiredHold::passed(possession.clone(), hold, waiter.requested);
                Some((granted, handed.needs_update, handed.gap))
            })?;
        possession.announce_end(gap);
        // The new holder is woken last: what is woken last runs first on this worker.
        self.waiters.run(effects);
        let declined = waiter.hand(granted).err();
        Some(HandedOff { needs_update, waiter, declined })
    }

    /// Whether it is the turn of other clients, so that this one has to release the lock.
    fn defers_to_others(&self, possession: &Possession, now: Instant) -> bool {
        let names = &possession.names;
        if names.is_in_order() {
            // The order says which client has its turn.
            return false;
        }
        let others = possession.holds.lock().turn_of_others(&self.config, now);
        others.is_some_and(|others| self.waiters.begin_deferral(names, Some(others), now))
    }

    /// Tells Redis what it has to hear of a possession, until that is all: false if the client gave up, or if a request of
    /// this found the possession gone.
    pub(crate) async fn update_redis(&self, router: &Router, possession: &Arc<Possession>) -> bool {
        let (mut tries, mut draws) = (Tries::default(), true);
        let mut call = Call::new(router, clock::now());
        self.gather(possession).await;
        let permit = match possession.try_updating() {
            Some(permit) => permit,
            None => possession.permit().await,
        };
        let _updating = Updating::begin(possession, &permit);
        let heard = loop {
            self.renewal_ends(possession).await;
            let block = draws.then(|| self.waiters.tokens_wanted(&possession.names, &self.config));
            let asked = clock::now();
            let (left, update) = {
                let mut holds = possession.holds.lock();
                if holds.waits_for_renewal(self.config.watchdog_timeout) {
                    // The lock was handed off meanwhile, for a lease that is shorter.
                    continue;
                }
                (holds.left(asked), holds.next_update(&self.config, block, asked))
            };
            let Some(update) = update else {
                if tries.in_doubt {
                    // Nothing goes behind it.
                    call.abandon();
                }
                for confirm in possession.lose_what_was_asked_for(clock::now()) {
                    let _ = confirm.send(Ok(false));
                }
                break true;
            };
            call.answer_timeout = self.answer_timeout(router, possession, left);
            call.deadline = asked + call.answer_timeout;
            let told = match self.send_update(&mut call, possession, update).await {
                Ok(Ok(updated)) => {
                    tries = Tries::default();
                    // Else Redis cannot draw any, and would be asked again and again.
                    draws &= update.tokens == 0 || updated.tokens.left() > 0;
                    self.record_update(possession, update, updated, asked);
                    Some(update.lease)
                }
                Ok(Err((loss, repeated))) => {
                    let tried_before = tries.end.is_some();
                    self.found_gone(possession, update, loss, repeated, tried_before);
                    break false;
                }
                Err(error) => {
                    let next =
                        self.not_heard(&mut tries, &mut call, possession, update, asked, &error);
                    let Some(pause) = next else { break false };
                    clock::sleep(pause).await;
                    None
                }
            };
            // The head may have no timer yet: the hand-off did not wake it.
            self.waiters.wake_head(&possession.names, told);
            self.gather(possession).await;
        };
        self.waiters.wake_head(&possession.names, None);
        heard
    }

    /// Redis has not answered a try. Returns how long to wait before the next one; `None` if that was the last.
    fn not_heard(
        &self,
        tries: &mut Tries,
        call: &mut Call<'_>,
        possession: &Possession,
        update: Update,
        asked: Instant,
        error: &Error,
    ) -> Option<Duration> {
        let (now, timeout) = (clock::now(), self.config.command_timeout);
        {
            let mut holds = possession.holds.lock();
            if error.outcome() == Outcome::NotExecuted {
                holds.forget_asked();
            }
            holds.stop_requests_in_gap();
        }
        tries.in_doubt = error.is_in_doubt();
        let (since, many) = *tries.unanswered.get_or_insert((asked, update.confirms));
        let is_unavailable = error.kind() == ErrorKind::Unavailable;
        // Otherwise the next try may still answer these callers in time.
        if call.answer_timeout == timeout || !is_unavailable || now >= since + timeout {
            tries.unanswered = None;
            self.record_failure(possession, many, error);
        }
        let longest = update.lease.saturating_add(timeout);
        if now >= *tries.end.get_or_insert_with(|| now + longest) {
            // Nothing goes behind the last try, which may be under way. Callers that came since hear that, too.
            call.abandon();
            possession.holds.lock().gives_update_up();
            self.record_failure(possession, usize::MAX, error);
            return None;
        }
        self.events.hand_off_failed(error, possession.names.key(), now);
        let left = possession.holds.lock().left(now);
        let longest = if left.is_zero() { LONGEST_PAUSE } else { left / 4 };
        Some(tries.backoff.next().min(longest))
    }

    /// How long Redis may take to hear of a possession that has `left` of its lease left: a third of that, so that
    /// another connection can tell it in time. If it takes longer to make that one, the whole time of a command.
    fn answer_timeout(&self, router: &Router, possession: &Possession, left: Duration) -> Duration {
        let (third, longest) = (left / 3, self.config.command_timeout);
        let is_far = router.dial_time(possession.names.key()) >= third;
        if is_far { longest } else { longest.min(third) }
    }

    /// Waits while a renewal is under way that would make a shorter lease longer again.
    async fn renewal_ends(&self, possession: &Possession) {
        let timeout = self.config.watchdog_timeout;
        self.renewal_ends_while(possession, |holds| holds.waits_for_renewal(timeout)).await;
    }

    /// Waits for renewals as long as the hold state of that possession has to.
    pub(crate) async fn renewal_ends_while(
        &self,
        possession: &Possession,
        waits: impl Fn(&HoldState) -> bool,
    ) {
        loop {
            let answered = self.answered.notified();
            if !waits(&possession.holds.lock()) {
                return;
            }
            answered.await;
        }
    }

    /// Sends one request about a possession.
    pub(crate) async fn send_update(
        &self,
        call: &mut Call<'_>,
        possession: &Possession,
        update: Update,
    ) -> Result<Result<Updated, (Loss, bool)>, Error> {
        let names = &possession.names;
        let server = call.router.movable_server_of(names.key());
        // Else a listener may be another client. A message to this client has its head ask.
        let listens = (!update.retains()).then_some(|on| self.waiters.stays_subscribed(names, on));
        let entry = self.bring_entry(names, update.is_ahead());
        // The new holder may have come to read, too.
        let readers = possession.holds.lock().readers();
        let sent = clock::now();
        let Update { count, lease, tokens, .. } = update;
        let terms = Terms { count, lease, tokens };
        let answer =
            call.update(names, &possession.id(), terms, listens, (entry, readers.as_deref())).await;
        self.note_release(possession, server, call.router);
        let answer = answer?;
        self.round_trip.ended(sent);
        if let Ok(updated) = &answer {
            self.waiters.record_foreign(names, updated.foreign);
        }
        Ok(answer)
    }

    /// Redis has heard of the holder.
    pub(crate) fn record_update(
        &self,
        possession: &Arc<Possession>,
        update: Update,
        Updated { tokens, listening, .. }: Updated,
        asked: Instant,
    ) {
        let ourselves = u64::from(self.waiters.hears_itself(&possession.names));
        // Without a count from Redis, another client may wait.
        let others = listening.map_or(1, |listening| listening.saturating_sub(ourselves));
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        let confirms = {
            let mut holds = possession.holds.lock();
            if self.round_trip_of_gap().is_none() {
                // The last holder has no time for another answer.
                holds.stop_requests_in_gap();
            }
            holds.record_update(update, tokens, others, asked, clock::now())
        };
        for confirm in confirms {
            let _ = confirm.send(Ok(true));
        }
    }

    /// Redis does not have the possession. `repeated`: the request was sent twice; `failed`: an earlier one was not answered.
    fn found_gone(
        &self,
        possession: &Possession,
        update: Update,
        loss: Loss,
        repeated: bool,
        failed: bool,
    ) {
        if !repeated {
            possession.holds.lock().forget_asked();
        }
        if repeated || failed {
            // It may have been there when the first request came, and have ended since.
            self.record_failure(possession, update.confirms, &gone_when_asked_again());
        }
        self.losses.found_gone(possession, FoundBy::HandOff, loss);
    }

    /// The request was not answered, or refused: the callers that wait for it hear that.
    fn record_failure(&self, possession: &Possession, many: usize, error: &Error) {
        let confirms = possession.holds.lock().take_confirms(many);
        for confirm in confirms {
            let message = format!("Redis has not confirmed the hand-off: {error:#}");
            let _ = confirm.send(Err(Error::new(error.kind(), Outcome::Unknown, message)));
        }
    }
}

/// While this is there, the permit of a possession is taken for a hand-off.
struct Updating<'a>(&'a Possession);

impl<'a> Updating<'a> {
    fn begin(possession: &'a Possession, _: &Permit) -> Self {
        possession.holds.lock().set_updating(true);
        Self(possession)
    }
}

impl Drop for Updating<'_> {
    fn drop(&mut self) {
        self.0.holds.lock().set_updating(false);
    }
}

#[cfg(test)]
mod tests;
