//! Several locks at once: one request for all of them, and nothing is held while the call waits.
//!
//! 1. **All or none.** Redis grants all locks of a request or none. In a cluster the locks of each slot have a
//!    request of their own, in the order of the slots: if one is refused, the client releases what the requests
//!    before it were granted. One that was not answered is the first the next time: the others stay free.
//! 2. A call that is refused waits in the queue of the lock that another owner has, among its waiters by its age,
//!    and takes no hand-off there: it asks for all again. So it cannot be in a circle of callers that wait for
//!    each other.
//! 3. **A set that is never free as a whole is taken one by one.** After [`REFUSALS_BEFORE_ONE_BY_ONE`] refusals, and a
//!    third of the command timeout, the call waits for each lock in turn, and holds those before it meanwhile. All
//!    calls have one order of locks. The call waits for each lock no longer than that time again, then gives all back:
//!    others may have taken them in another order. In each queue it has the place of its age: behind a crowd that comes
//!    again and again, a new place would not have its turn in that time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::clock;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::handle::Handle;
use crate::join::join_all;
use crate::lease::{Lease, whole_millis};
use crate::metrics::Series;
use crate::possession::{AcquiredHold, Ask, FoundBy, GiveBack, Held, Possession};
use crate::protocol::{Acquired, Wanted};
use crate::releaser::PossessionSession;
use crate::token::TokenBlock;
use crate::wait::Ticket;

use super::{Acquisition, One, Question, Stage, Tried, Wait};

/// This many refusals show that the locks come and go, and that it is not one owner that keeps one of them.
const REFUSALS_BEFORE_ONE_BY_ONE: u32 = 16;

/// A request for this many locks takes the server about as long as a large batch.
const MAX_LOCKS_PER_REQUEST: usize = 64;

/// One hold of each of several locks, which have been put in the one order that all calls have.
#[derive(Clone, Copy)]
pub(super) struct All<'a> {
    handles: &'a [Arc<Handle>],
    /// Since when the call waits with empty hands, and how often Redis has refused it meanwhile.
    since: Instant,
    refusals: &'a AtomicU32,
    /// Which lock the request is about that is under way, or that was not answered.
    asks_for: &'a AtomicUsize,
    /// Its place among those that wait, in whichever queue; zero if it has not waited.
    place: &'a AtomicU64,
}

/// Acquires one hold of each lock; `None` if the wait ends first.
pub(crate) async fn acquire_all(
    engine: &Engine,
    handles: &[Arc<Handle>],
    lease: Lease,
    wait: Wait,
) -> Result<Option<Vec<AcquiredHold>>, Error> {
    let none = Series::default();
    let series = handles.first().map_or(&none, |first| &first.names.series);
    let attempt = engine.events.attempt(series, None);
    let granted = Box::pin(acquire_together(engine, handles, lease, wait)).await;
    attempt.end(&granted);
    granted
}

async fn acquire_together(
    engine: &Engine,
    handles: &[Arc<Handle>],
    lease: Lease,
    wait: Wait,
) -> Result<Option<Vec<AcquiredHold>>, Error> {
    let (refusals, asks_for, place) = (AtomicU32::new(0), AtomicUsize::new(0), AtomicU64::new(0));
    let (since, refusals, asks_for, place) = (clock::now(), &refusals, &asks_for, &place);
    let all = All { handles, since, refusals, asks_for, place };
    let mut acquisition = Acquisition::new(engine, all, lease, wait)?;
    let (mut had_a_part, mut trouble) = (false, None);
    loop {
        let granted = acquisition.acquire().await.map_err(|error| behind(error, had_a_part))?;
        if granted.is_some() || !acquisition.goes_on() {
            // Redis has said nothing since it failed to answer: the locks need not be busy.
            let trouble = trouble.filter(|_| refusals.load(Ordering::Relaxed) == 0);
            return match (granted, trouble) {
                (None, Some(error)) => Err(behind(error, had_a_part)),
                (granted, _) => Ok(granted),
            };
        }
        trouble = None;
        let has_warned = acquisition.warn_at().is_some_and(|at| at <= clock::now());
        let granted = match acquisition.one_by_one().await {
            // A call that waits already waits an outage out, with empty hands.
            Err(error) if waits_it_out(&error, wait) => {
                trouble = Some(error);
                Ok(None)
            }
            granted => granted,
        };
        if !matches!(granted, Ok(None)) {
            acquisition.has_waited();
        }
        if let Some(granted) = granted.map_err(|error| behind(error, had_a_part))? {
            All::has_acquired(&acquisition, &granted);
            return Ok(Some(granted));
        }
        had_a_part = true;
        let place = place.load(Ordering::Relaxed);
        acquisition.stage = Stage::Again { has_warned, place };
        acquisition.question.since = clock::now();
        refusals.store(0, Ordering::Relaxed);
    }
}

/// Whether the call goes on: until the outage limit, or until its wait is over.
fn waits_it_out(error: &Error, wait: Wait) -> bool {
    error.kind() == ErrorKind::Unavailable && !matches!(wait, Wait::Once)
}

/// Locks that are held only until all are, or until the call gives up.
struct Taken<'a> {
    engine: &'a Engine,
    holds: Vec<Held>,
}

impl Taken<'_> {
    fn explain(&self, error: Error) -> Error {
        behind(error, !self.holds.is_empty())
    }
}

/// What a call says that failed, perhaps when Redis had granted it a part: the client gives that back in the
/// background, and it is not true that nothing was executed.
fn behind(error: Error, has_a_part: bool) -> Error {
    if has_a_part { error.unknown() } else { error }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.engine.process.is_this_one() {
            let give_back = |hold| {
                self.engine.releaser.give_back_held(hold, GiveBack::Now, clock::now());
            };
            self.holds.iter().for_each(give_back);
        }
    }
}

impl Acquisition<'_, All<'_>> {
    /// How long a call waits with empty hands at least, or for one lock with others in its hand.
    fn step(&self) -> Duration {
        self.engine.config.command_timeout / 3
    }

    /// Takes the locks one after the other; `None` if one does not come in time.
    async fn one_by_one(&self) -> Result<Option<Vec<AcquiredHold>>, Error> {
        let All { handles, asks_for, place, .. } = self.question;
        let many = u32::try_from(handles.len()).unwrap_or(u32::MAX);
        // The lease of the first one must not end before the last one comes. The watchdog renews none of them: a call
        // that is not polled meanwhile keeps them no longer.
        let step = self.step().min(self.requested / many.saturating_mul(2));
        let enough = (step * many).saturating_add(self.engine.config.command_timeout);
        let lease = Lease::Fixed(whole_millis(enough.min(self.requested)));
        let mut taken = Taken { engine: self.engine, holds: Vec::new() };
        for (of, handle) in handles.iter().enumerate() {
            let until = self.until().into_iter().fold(clock::now() + step, Instant::min);
            let one = One { handle, sides: None, recurs: false };
            let mut one = Acquisition::new(self.engine, one, lease, Wait::Until(until))?;
            one.stage = Stage::Part { place: place.load(Ordering::Relaxed) };
            let granted = Box::pin(one.acquire()).await;
            if granted.is_err() {
                // The next request for all is about this one first: it holds none of the others in vain.
                asks_for.store(of, Ordering::Relaxed);
            }
            match granted.map_err(|error| taken.explain(error))? {
                Some(hold) => taken.holds.push(hold),
                None => return Ok(None),
            }
        }
        // All of them nest, and the lease of all counts from one request. With full hands this call waits for
        // nothing.
        let Some(tried) = self.try_until(clock::now(), None, None).await else { return Ok(None) };
        let tried = tried.map_err(|error| taken.explain(error))?;
        drop(taken);
        Ok(match tried {
            Tried::Granted(granted) => Some(granted),
            Tried::Refused { .. } => None,
        })
    }

    /// Asks Redis once for all locks. `None` if it has to be asked again.
    async fn ask_all(&self, deadline: Instant) -> Result<Option<Tried<Vec<AcquiredHold>>>, Error> {
        let All { handles, asks_for, .. } = self.question;
        let silent = asks_for.load(Ordering::Relaxed);
        let mut requests: Vec<Together<'_>> = Vec::new();
        for (of, handle) in handles.iter().enumerate() {
            asks_for.store(of, Ordering::Relaxed);
            let (session, ask) = self.prepare(handle, deadline, clock::now()).await?;
            let slot = self.engine.router.slot_of(handle.names.key());
            match requests.last_mut() {
                Some(last) if last.slot == slot && last.parts.len() < MAX_LOCKS_PER_REQUEST => {
                    last.parts.push((session, ask));
                }
                _ => requests.push(Together::new(of, slot, session, ask)),
            }
        }
        requests.sort_by_key(|request| !request.all().contains(&silent));
        for (before, request) in requests.iter_mut().enumerate() {
            asks_for.store(request.first, Ordering::Relaxed);
            let answer = request.ask(self.requested).await;
            if let Err((of, refused)) = answer.map_err(|error| behind(error, before > 0))? {
                asks_for.store(0, Ordering::Relaxed);
                let possession = request.parts[of - request.first].0.possession();
                return self.process_refusal(of, possession, refused, deadline).await;
            }
        }
        asks_for.store(0, Ordering::Relaxed);
        requests.sort_by_key(|request| request.first);
        let misses_one = |requests: &[Together<'_>]| {
            requests.iter().flat_map(|one| &one.parts).any(nests_no_more)
        };
        // The holds on which a nested one was to stand may be lost by now.
        if misses_one(&requests) {
            return Ok(None);
        }
        self.await_all_replicas(&mut requests).await?;
        let mut granted = Vec::with_capacity(handles.len());
        for request in &requests {
            for (handle, (session, ask)) in handles[request.all()].iter().zip(&request.parts) {
                let (possession, tokens) = (session.possession(), TokenBlock::default());
                let Some(hold) = self.add_granted(handle, possession, *ask, tokens, request.sent)
                else {
                    granted.iter().for_each(|hold| self.engine.releaser.give_back(hold));
                    return Ok(None);
                };
                granted.push(hold);
            }
        }
        let (session, ask) = &requests[0].parts[0];
        self.entered(&handles[0], session.possession(), ask.count > 1);
        Ok(Some(Tried::Granted(granted)))
    }

    /// Another owner has the lock of that handle, or the holds are gone on which a nested one of that possession was to
    /// stand.
    async fn process_refusal(
        &self,
        of: usize,
        possession: &Possession,
        refused: Acquired,
        deadline: Instant,
    ) -> Result<Option<Tried<Vec<AcquiredHold>>>, Error> {
        let handle = &self.question.handles[of];
        let loss = match refused {
            Acquired::Refused { remaining, holder, .. } => {
                if self.reclaim(&handle.names, &holder, deadline).await {
                    return Ok(None);
                }
                self.question.refusals.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(Tried::Refused { of, remaining, holder }));
            }
            Acquired::Gone(loss) => loss,
            Acquired::Granted(_) => Loss::KeyGone,
        };
        self.engine.losses.found_gone(possession, FoundBy::NestedAcquire, loss);
        Ok(None)
    }

    /// Waits until enough replicas have the grants. If too few have one, gives all back at once.
    async fn await_all_replicas(&self, requests: &mut [Together<'_>]) -> Result<(), Error> {
        let Some(replicas) = self.engine.config.replicas else { return Ok(()) };
        let trouble = {
            // What one of them waits for, all that was written before it has, too.
            let waits =
                requests.iter().map(|request| self.replicated(&request.parts[0].0, replicas));
            let answers = requests.iter().zip(join_all(waits).await);
            answers.into_iter().find_map(|(request, answer)| Some((request.first, answer.err()?)))
        };
        let Some((of, error)) = trouble else { return Ok(()) };
        self.question.asks_for.store(of, Ordering::Relaxed);
        let now = clock::now();
        let parts = requests.iter_mut().flat_map(|request| &mut request.parts);
        let released = join_all(parts.map(|(session, _)| session.send_release(now))).await;
        // The client tries again in the background.
        Err(if released.iter().all(Result::is_ok) { error.undone() } else { error })
    }
}

impl Question for All<'_> {
    type Holds = Vec<AcquiredHold>;

    fn handles(&self) -> &[Arc<Handle>] {
        self.handles
    }

    async fn try_once(
        acquisition: &Acquisition<'_, Self>,
        now: Instant,
        gives_up_at: Option<Instant>,
        _: Option<Ticket>,
    ) -> Result<Tried<Vec<AcquiredHold>>, Error> {
        let deadline = acquisition.deadline(now, gives_up_at)?;
        loop {
            if let Some(tried) = acquisition.ask_all(deadline).await? {
                return Ok(tried);
            }
        }
    }

    fn asks_for(&self) -> usize {
        self.asks_for.load(Ordering::Relaxed)
    }

    fn note_place(&self, ticket: Ticket) {
        self.place.store(ticket, Ordering::Relaxed);
    }

    fn takes_hand_offs(&self) -> bool {
        self.handles.len() == 1
    }

    fn handed(_: &Acquisition<'_, Self>, granted: AcquiredHold) -> Vec<AcquiredHold> {
        vec![granted]
    }

    fn is_starved(acquisition: &Acquisition<'_, Self>) -> bool {
        let All { since, refusals, .. } = acquisition.question;
        refusals.load(Ordering::Relaxed) >= REFUSALS_BEFORE_ONE_BY_ONE
            && clock::now().saturating_duration_since(since) >= acquisition.step()
    }
}

/// Whether the holds are lost on which a nested one was to stand.
fn nests_no_more((session, ask): &(PossessionSession<'_>, Ask)) -> bool {
    ask.count > 1 && session.possession().holds.lock().is_lost()
}

/// What is asked for by one request. Its drop undoes what Redis may have granted, behind the request, and
/// leaves nothing to undo of what was not sent.
struct Together<'a> {
    /// Which of all locks is the first one here.
    first: usize,
    slot: Option<u16>,
    parts: Vec<(PossessionSession<'a>, Ask)>,
    may_be_granted: bool,
    /// When, if it has been granted.
    sent: Instant,
}

impl<'a> Together<'a> {
    fn new(first: usize, slot: Option<u16>, session: PossessionSession<'a>, ask: Ask) -> Self {
        let parts = vec![(session, ask)];
        Self { first, slot, parts, may_be_granted: false, sent: clock::now() }
    }

    /// Which of all locks it is about.
    fn all(&self) -> Range<usize> {
        self.first..self.first + self.parts.len()
    }

    /// Sends the request. Returns which of all locks is not to be had, if one is not.
    async fn ask(&mut self, lease: Duration) -> Result<Result<(), (usize, Acquired)>, Error> {
        let names_and_ids = |(session, ask): &(PossessionSession<'_>, Ask)| {
            let possession = session.possession();
            (possession.names.clone(), possession.id(), ask.count)
        };
        let all: Vec<_> = self.parts.iter().map(names_and_ids).collect();
        let wanted =
            all.iter().map(|(names, id, count)| Wanted { names, owner: id, count: *count });
        let wanted: Vec<_> = wanted.collect();
        self.may_be_granted = true;
        let answer = self.parts[0].0.call.acquire_all(&wanted, lease).await;
        self.may_be_granted = match &answer {
            Ok((refused, _, repeated)) => refused.is_none() || *repeated,
            Err(error) => error.outcome() != Outcome::NotExecuted,
        };
        Ok(match answer? {
            (None, sent, _) => {
                self.sent = sent;
                Ok(())
            }
            (Some((at, refused)), ..) => Err((self.first + at, refused)),
        })
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        let call = &self.parts[0].0.call;
        let (connection, undo) = (call.connection.clone(), self.may_be_granted && call.was_sent);
        for (session, ask) in &mut self.parts {
            let mut holds = session.possession().holds.lock();
            if !undo && !holds.is_lost() {
                holds.not_executed(*ask);
            }
            drop(holds);
            session.call.connection.clone_from(&connection);
        }
    }
}
