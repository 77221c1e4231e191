//! Hands a lock from one holder of this client to the next without giving it back.
//!
//! While this client has a name in Redis, under whichever of its owners, nobody else can get it.
//! So when a holder's last guard goes and another of this client is parked, that one has the lock
//! at once, and Redis hears of it behind that.
//!
//! 1. **The client has the name all the while.** A hand-over starts from a hold that is believed,
//!    and until it is confirmed the new hold is believed no longer than the old one was. If Redis
//!    finds the name gone, every hold that came of it is lost.
//! 2. **Hand-overs of a name go out in order, one request at a time**; those that come meanwhile
//!    travel together in the next. A request that was not answered is sent again, with what has
//!    come since behind it: Redis goes on from the owner that it finds.
//! 3. The gates of both owners stay here until their step is confirmed, so that nothing else is
//!    sent for them. Only the last in the chain can go on: its lock is handed over again.
//! 4. **So many hand-overs are unconfirmed at a time, and no more.** The one that makes the chain full
//!    is awaited: the new holder has the lock when Redis has confirmed it, and until then it cannot
//!    be handed on. So neither memory nor the time that `unlock` takes grows with a Redis that is far
//!    away, or stands still.
//! 5. While other clients wait, a run of hand-overs ends after a while (see [`crate::holds`]).
//!
//! Lock order: the chains, the board of the waiters, an account. Nobody is woken meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(not(test))]
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Outcome};
use crate::holds::{Ask, Gate, Granted, Owner};
use crate::lease::{Term, believed_until};
use crate::loss::{FoundBy, found_gone};
use crate::protocol::{Call, HandedOver, Names};
use crate::released::ReleasedNames;
use crate::token::FencingToken;
use crate::transport::Router;
use crate::waiters::{Ticket, Told, Waiters};
use crate::watchdog::Watchdog;

mod chain;
mod releases;
pub(crate) use chain::Confirmed;
use chain::{Chain, Request, Step, To, enter, hand};

// The same, and a place where the tests' scheduler may let another task run.
#[cfg(test)]
use tests::Mutex;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Before a request that failed so often is tried again.
fn pause_after(failures: u32) -> Duration {
    Duration::from_millis(25 << failures.min(6)).min(LONGEST_PAUSE)
}

pub(crate) struct Relay {
    chains: Mutex<HashMap<Box<str>, Chain>>,
    waiters: Arc<Waiters>,
    watchdog: Arc<Watchdog>,
    config: Arc<Config>,
    released: ReleasedNames,
}

/// What is left to do after a lock was passed on.
pub(crate) struct Passed {
    /// Somebody has to [carry](Relay::carry) it to Redis.
    pub(crate) carry: bool,
    /// For whoever awaits that it is confirmed.
    pub(crate) confirmed: Option<Confirmed>,
    /// Whom it was passed to, if that one has gone: it has to be given back.
    pub(crate) declined: Option<(Arc<Owner>, Granted)>,
}

/// How it goes for whoever tells Redis.
#[derive(Default)]
struct Course {
    /// Requests in a row that were not answered, or refused.
    failures: u32,
    give_up: Option<Instant>,
    left: Vec<Left>,
}

/// An owner with a debt, and the lease that would end it.
pub(crate) type Left = (Arc<Owner>, Duration);

impl Relay {
    pub(crate) fn new(
        waiters: &Arc<Waiters>,
        watchdog: &Arc<Watchdog>,
        config: &Arc<Config>,
    ) -> Self {
        let (waiters, watchdog) = (waiters.clone(), watchdog.clone());
        let (chains, config) = (Mutex::default(), config.clone());
        Self { chains, waiters, watchdog, config, released: ReleasedNames::default() }
    }

    /// Passes the lock on whose last hold `owner` has given back in its account. `None` if nobody
    /// is there to take it, or somebody else's turn has come: then it has to be released. The
    /// owner's gate is left in `gate` if it could be had.
    pub(crate) fn pass(
        &self,
        owner: &Arc<Owner>,
        gate: &mut Option<Gate>,
        tell: bool,
    ) -> Option<Passed> {
        if self.config.hand_overs == 0 || !self.waiters.somebody_waits(&owner.names) {
            return None;
        }
        // Outlives the mutexes, because its drop may wake somebody.
        let mut spare = None;
        let mut chains = self.chains.lock();
        let now = clock::now();
        let chain = chains.get(owner.names.key());
        if !enter(chain, owner, gate) {
            return None;
        }
        let full = chain.is_some_and(Chain::is_full);
        let over = owner.account.lock().run_is_over(&self.config, now);
        if let Some(others) = over
            && let (true, stirred) = self.waiters.turn_ends(&owner.names, Some(others), now)
        {
            drop(chains);
            self.waiters.stir(stirred);
            return None;
        }
        let passing = owner.account.lock().passing(now)?;
        let fits = |next: &Arc<Owner>| {
            let gate = next.try_enter()?;
            if next.account.lock().can_take() {
                return Some(gate);
            }
            spare = Some(gate);
            None
        };
        let longest = self.config.command_timeout.saturating_add(LONGEST_PAUSE);
        let taken = self.waiters.take_next(&owner.names, full, longest, now, fits)?;
        let (seat, ticket, awaits, to_gate, stirred) = taken;
        owner.account.lock().releasing(passing.owed);

        let until = believed_until(now, seat.asked);
        let awaited = awaits.then_some(ticket);
        let (to, granted) = hand(&seat, awaited, until, &passing, now);
        let (told, confirmed) = tell.then(oneshot::channel).unzip();
        let step = Step {
            from: owner.clone(),
            owed: passing.owed,
            told,
            seat: seat.clone(),
            to,
            until,
            run: passing.run,
            from_gate: gate.take(),
            to_gate: Some(to_gate),
        };
        let carry = add(&mut chains, step);
        drop(chains);
        // The new holder is woken last: what is woken last runs first on this worker.
        self.waiters.stir(stirred);
        let declined = granted.and_then(|granted| seat.hand(granted).err());
        let declined = declined.map(|granted| (seat.owner.clone(), granted));
        Some(Passed { carry, confirmed, declined })
    }

    /// Tells Redis of the hand-overs of that lock until there are none left to tell. Returns whose
    /// debts are left to be paid.
    pub(crate) async fn carry(&self, router: &Router, names: &Names) -> Vec<Left> {
        let mut course = Course::default();
        while let Some(request) = self.request(names) {
            if course.failures > 0 {
                tokio::time::sleep(pause_after(course.failures)).await;
            }
            let owners: Vec<&str> = request.owners.iter().map(|owner| &*owner.id).collect();
            let kind = request.owners.last().expect("BUG: a hand-off by no owner").kind;
            let mut call = Call::new(router, clock::now() + self.config.command_timeout);
            let server = router.movable_server_of(names.key());
            // Not if this client is about to unsubscribe: then a listener is another client.
            let listens = self.waiters.keeps_hearing(names);
            let answer = call.hand_over(kind, names, &owners, request.lease, listens).await;
            self.note_release(names, server, router);
            if self.hear(names, &request, answer, &mut course) {
                break;
            }
        }
        course.left
    }

    fn request(&self, names: &Names) -> Option<Request> {
        self.chains.lock().get(names.key()).map(Chain::request)
    }

    /// What follows from an answer. True if whoever asked is done.
    fn hear(
        &self,
        names: &Names,
        request: &Request,
        answer: Result<(HandedOver, bool), Error>,
        course: &mut Course,
    ) -> bool {
        let (steps, now) = (request.owners.len() - 1, clock::now());
        let mut lease = None;
        let over = match answer {
            Ok((HandedOver::Done { token, listening }, _)) => {
                lease = Some(request.lease);
                (course.failures, course.give_up) = (0, None);
                let (taken, over) = self.take(names, steps);
                course.left.extend(self.done(names, taken, token, listening, now));
                over
            }
            Ok((HandedOver::Nothing, repeated)) => {
                self.gone(names, course.failures > 0 || repeated);
                true
            }
            Err(error) if error.kind() == ErrorKind::NotALock => {
                self.gone(names, course.failures > 0);
                true
            }
            Err(error) => {
                course.failures += 1;
                let (longest, awaited) = self.failed(names, steps, &error);
                let longest = longest + self.config.command_timeout;
                // Nobody builds on a hand-over that is awaited.
                let over = awaited || now >= *course.give_up.get_or_insert(now + longest);
                if over {
                    let reached = error.kind() != ErrorKind::Unavailable;
                    let told = if reached { Told::Refused } else { Told::Nothing };
                    course.left.extend(self.given_up(names, told));
                } else {
                    tracing::warn!(name = %names.key(), %error, "a hand-over failed; trying again");
                }
                over
            }
        };
        // It may have no timer yet: the hand-off did not wake it.
        self.waiters.wake_head(names, lease);
        over
    }

    /// Redis has confirmed the first steps.
    fn done(
        &self,
        names: &Names,
        mut done: Vec<Step>,
        token: Option<FencingToken>,
        listening: Option<u64>,
        now: Instant,
    ) -> Option<Left> {
        let ourselves = u64::from(self.waiters.hears(names));
        // Where Redis does not say it may be anybody.
        let others = listening.map_or(1, |listening| listening.saturating_sub(ourselves));
        for step in &mut done {
            step.from.account.lock().released(step.owed);
            if let Some(told) = step.told.take() {
                let _ = told.send(Ok(true));
            }
        }
        let last = done.last()?;
        last.run.note(u32::try_from(others).unwrap_or(u32::MAX));
        let owner = &last.seat.owner;
        match &last.to {
            To::Holds(hold, term) => {
                let watch = {
                    let mut account = owner.account.lock();
                    account.confirmed(*hold, term, last.until, now);
                    account.start_watching()
                };
                if let Some(since) = watch {
                    self.watchdog.watch(owner, since);
                }
                None
            }
            To::Awaits(ask, ticket) => self.grant(last, *ask, *ticket, token, now),
        }
    }

    /// What was awaited is confirmed: the lock comes, with its token if it is fenced.
    fn grant(
        &self,
        step: &Step,
        ask: Ask,
        ticket: Ticket,
        token: Option<FencingToken>,
        now: Instant,
    ) -> Option<Left> {
        let (owner, lease) = (&step.seat.owner, step.seat.asked);
        let term = Arc::new(Term::new(step.until));
        let (hold, token) = {
            let mut account = owner.account.lock();
            let run = step.run.clone();
            let hold = account.handed(ask, step.seat.lease, term.clone(), run, now);
            account.confirmed(hold, &term, step.until, now);
            (hold, account.fenced(token))
        };
        self.waiters.told(&step.seat, ticket, Told::Granted);
        step.seat.hand(Granted { hold, term, lease, token }).err()?;
        owner.account.lock().give_back(hold);
        Some((owner.clone(), lease))
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Redis has the name under none of the owners.
    fn gone(&self, names: &Names, unsure: bool) {
        for step in self.take(names, usize::MAX).0 {
            // What was sent before and never answered may have been executed, and the lease may
            // have ended since.
            if unsure {
                step.from.account.lock().released(step.owed);
            } else {
                found_gone(&self.waiters, &step.from, FoundBy::HandOver);
            }
            found_gone(&self.waiters, &step.seat.owner, FoundBy::HandOver);
            if let Some(told) = step.told {
                let _ = told.send(Ok(unsure));
            }
            if let To::Awaits(_, ticket) = step.to {
                self.waiters.told(&step.seat, ticket, Told::Refused);
            }
        }
        // Whoever stands in line counted on its being held.
        self.waiters.look(names);
    }

    /// The request was not answered, or refused. Returns the longest lease that may be in force,
    /// and whether the last step is awaited.
    fn failed(&self, names: &Names, steps: usize, error: &Error) -> (Duration, bool) {
        let mut chains = self.chains.lock();
        let Some(chain) = chains.get_mut(names.key()) else {
            return (Duration::ZERO, true);
        };
        let (told, longest, awaited) =
            (chain.take_told(steps), chain.longest_lease(), chain.is_awaited());
        drop(chains);
        for told in told {
            let message = format!("a hand-over failed, and is tried again: {error}");
            let _ = told.send(Err(Error::new(error.kind(), Outcome::Unknown, message)));
        }
        (longest, awaited)
    }

    /// Leaves what was not confirmed to the accounts: they know what they owe.
    fn given_up(&self, names: &Names, told: Told) -> Vec<Left> {
        let mut debts = Vec::new();
        for step in self.take(names, usize::MAX).0 {
            if let To::Awaits(_, ticket) = step.to {
                self.waiters.told(&step.seat, ticket, told);
            }
            debts.push((step.from, self.config.watchdog_timeout.max(step.seat.asked)));
            debts.push((step.seat.owner.clone(), step.seat.asked));
        }
        debts
    }

    /// Takes the first steps out. The flag says that none are left: whoever carried them is done,
    /// because from here on the next step asks for somebody else to carry it.
    fn take(&self, names: &Names, steps: usize) -> (Vec<Step>, bool) {
        let mut chains = self.chains.lock();
        let Some(chain) = chains.get_mut(names.key()) else {
            return (Vec::new(), true);
        };
        let taken = chain.take(steps);
        let over = chain.is_empty();
        if over {
            chains.remove(names.key());
        }
        (taken, over)
    }
}

/// Puts a step at the end of its chain. True if it is the first there.
fn add(chains: &mut HashMap<Box<str>, Chain>, step: Step) -> bool {
    let key = step.from.names.key();
    // `entry` would take a name of its own for each step.
    if let Some(chain) = chains.get_mut(key) {
        chain.push(step);
        return false;
    }
    let (key, mut chain) = (key.into(), Chain::default());
    chain.push(step);
    chains.insert(key, chain);
    true
}

#[cfg(test)]
mod tests;
