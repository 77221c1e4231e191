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
//! 4. While other clients wait, a run of hand-overs ends after a while (see [`crate::holds`]).
//!
//! Lock order: the chains, the board of the waiters, an account.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock;
use crate::config::Config;
use crate::connection::Link;
use crate::error::{Error, ErrorKind};
use crate::holds::{Ask, Gate, Granted, Owner};
use crate::lease::{Term, believed_until};
use crate::protocol::{Call, HandedOver, Names};
use crate::token::FencingToken;
use crate::waiters::{Ticket, Waiters};
use crate::watchdog::Watchdog;

mod chain;
pub(crate) use chain::Told;
use chain::{Chain, Step, To};

/// Between two tries of a request that is refused again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Relay {
    chains: Mutex<HashMap<Box<str>, Chain>>,
    waiters: Arc<Waiters>,
    watchdog: Arc<Watchdog>,
    config: Arc<Config>,
}

/// What is left to do after a lock was passed on.
pub(crate) struct Passed {
    /// Somebody has to [carry](Relay::carry) it to Redis.
    pub(crate) carry: bool,
    /// Whom it was passed to, if that one has gone: it has to be given back.
    pub(crate) declined: Option<(Arc<Owner>, Granted)>,
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
        Self { chains: Mutex::default(), waiters, watchdog, config: config.clone() }
    }

    /// Passes the lock on whose last hold `owner` has given back in its account. `None` if nobody
    /// is there to take it, or somebody else's turn has come: then it has to be released. The
    /// owner's gate is left in `gate` if it could be had.
    pub(crate) fn pass(
        &self,
        owner: &Arc<Owner>,
        gate: &mut Option<Gate>,
        told: &mut Option<Told>,
    ) -> Option<Passed> {
        if self.config.hand_overs == 0 || !self.waiters.somebody_waits(&owner.names) {
            return None;
        }
        let mut chains = self.chains.lock();
        let now = clock::now();
        let goes_on = chains.get(owner.names.key()).is_some_and(|chain| chain.ends_with(owner));
        if !goes_on && gate.is_none() {
            *gate = Some(owner.try_enter()?);
        }
        let passing = {
            let account = owner.account.lock();
            if let Some(others) = account.run_is_over(&self.config, now) {
                drop(account);
                self.waiters.stand_back(&owner.names, others);
                return None;
            }
            account.passing(now)?
        };
        let (seat, ticket, to_gate) = self.waiters.take_next(&owner.names, |next| {
            let gate = next.try_enter()?;
            next.account.lock().can_take().then_some(gate)
        })?;
        owner.account.lock().releasing(passing.owed);

        let until = believed_until(now, seat.asked);
        let mut granted = None;
        let to = {
            let mut account = seat.owner.account.lock();
            let ask = account.ask(now);
            if seat.owner.names.is_fenced() {
                To::Awaits(ask, ticket)
            } else {
                let believed = if seeded!("unconfirmed-is-believed") {
                    until
                } else {
                    until.min(passing.until)
                };
                let term = Arc::new(Term::new(believed));
                let hold = account.handed(ask, seat.lease, term.clone(), passing.run.clone(), now);
                granted =
                    Some(Granted { hold, term: term.clone(), lease: seat.asked, token: None });
                To::Holds(hold, term)
            }
        };
        let chain = chains.entry(owner.names.key().into()).or_default();
        let carry = chain.is_empty();
        chain.push(Step {
            from: owner.clone(),
            owed: passing.owed,
            told: told.take(),
            seat: seat.clone(),
            to,
            until,
            run: passing.run,
            from_gate: gate.take(),
            to_gate: Some(to_gate),
        });
        drop(chains);
        let declined = granted.and_then(|granted| seat.hand(granted).err());
        Some(Passed { carry, declined: declined.map(|granted| (seat.owner.clone(), granted)) })
    }

    /// Tells Redis of the hand-overs of that lock until there are none left to tell. Returns whose
    /// debts are left to be paid, and the lease that would end them.
    pub(crate) async fn carry(&self, link: &Link, names: &Names) -> Vec<Left> {
        let mut pause = Duration::from_millis(50);
        let mut give_up = None;
        let mut unsure = false;
        let mut debts = Vec::new();
        loop {
            let request = match self.chains.lock().get(names.key()) {
                Some(chain) => chain.request(),
                None => return debts,
            };
            let steps = request.owners.len() - 1;
            let last = &request.owners[steps];
            let ids: Vec<&str> = request.owners.iter().map(|owner| &*owner.id).collect();
            let mut call = Call::new(link, clock::now() + self.config.command_timeout);
            let answer = call.hand_over(&last.names, &ids, request.lease).await;
            let now = clock::now();
            match answer {
                Ok((HandedOver::Done { token, listening }, _)) => {
                    (unsure, give_up) = (false, None);
                    let (taken, over) = self.take(names, steps);
                    debts.extend(self.done(names, taken, token, listening, now));
                    if over {
                        return debts;
                    }
                }
                Ok((HandedOver::Nothing, repeated)) => {
                    self.gone(names, unsure || repeated, now);
                    return debts;
                }
                Err(error) if error.kind() == ErrorKind::NotALock => {
                    self.gone(names, unsure, now);
                    return debts;
                }
                Err(error) => {
                    unsure = true;
                    let (longest, awaited) = self.failed(names, steps, &error);
                    let give_up =
                        *give_up.get_or_insert(now + longest + self.config.command_timeout);
                    // Nobody builds on a hand-over that is awaited.
                    if awaited || now >= give_up {
                        debts.extend(self.given_up(names));
                        return debts;
                    }
                    tracing::warn!(name = %names.key(), %error, "a hand-over failed; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
        }
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
                    account.to_watch()
                };
                if let Some(since) = watch {
                    self.watchdog.watch(owner, since);
                }
                None
            }
            To::Awaits(ask, ticket) => self.grant(last, *ask, *ticket, token, now),
        }
    }

    /// The awaited token has come, and the lock with it.
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
        self.waiters.told(&step.seat, ticket, true);
        step.seat.hand(Granted { hold, term, lease, token }).err()?;
        owner.account.lock().give_back(hold);
        Some((owner.clone(), lease))
    }

    /// The lock was released to all clients.
    pub(crate) fn freed(&self, names: &Names) {
        self.waiters.freed(names);
    }

    /// Redis has the name under none of the owners.
    fn gone(&self, names: &Names, unsure: bool, now: Instant) {
        let mut lost = false;
        for step in self.take(names, usize::MAX).0 {
            // What was sent before and never answered may have been executed, and the lease may
            // have ended since.
            if unsure {
                step.from.account.lock().released(step.owed);
            } else {
                lost |= step.from.gone(now);
            }
            lost |= step.seat.owner.gone(now);
            if let Some(told) = step.told {
                let _ = told.send(Ok(unsure));
            }
            if let To::Awaits(_, ticket) = step.to {
                self.waiters.told(&step.seat, ticket, false);
            }
        }
        if lost {
            tracing::warn!(name = %names.key(), "lost a lock: found gone when it was handed over");
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
            let _ = told.send(Err(Error::new(error.kind(), error.outcome(), message)));
        }
        (longest, awaited)
    }

    /// Leaves what was not confirmed to the accounts: they know what they owe.
    fn given_up(&self, names: &Names) -> Vec<Left> {
        let mut debts = Vec::new();
        for step in self.take(names, usize::MAX).0 {
            if let To::Awaits(_, ticket) = step.to {
                self.waiters.told(&step.seat, ticket, false);
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
