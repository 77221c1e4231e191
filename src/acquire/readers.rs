//! A read-write lock: a reader that joins those that its client has already, without a request, and a handle that
//! reads and writes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::clock;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Outcome};
use crate::handle::{Handle, Sides};
use crate::lease::{Lease, valid_until};
use crate::possession::{AcquiredHold, Ask, FoundBy, HandleId, Held, Join, Part, Possession};
use crate::protocol::QueueEntry;
use crate::wait::{Ticket, Waiter};

use super::{Acquisition, One, Stage, Tried, Wait, acquire_one};

/// A number that no handle has: it stands for "as no handle".
const NO_HANDLE: HandleId = 0;

/// Joins the readers of this client, if there are some and the call need not wait for its turn: then it sends no
/// request, and is over before it has a future.
pub(crate) fn read_beside(
    engine: &Engine,
    sides: &Sides,
    lease: Lease,
    now: Instant,
) -> Result<Option<Held>, Error> {
    let attempt = engine.events.attempt(&sides.read.names.series, Some(sides.read.kind));
    if let Some(part) = take_part(engine, sides, lease, now) {
        let granted = Ok(Some(Held::Part(part)));
        attempt.end(&granted);
        return granted;
    }
    let recurs = sides.is_inside(now);
    let one = One { handle: &sides.read, sides: Some(sides), recurs };
    let granted = lease.checked(engine.config.watchdog_timeout).map(|requested| {
        let acquisition = Acquisition {
            engine,
            question: one,
            lease,
            requested,
            wait: Wait::Once,
            begun: now,
            stage: Stage::Whole,
            awaits_replicas: AtomicBool::default(),
        };
        acquisition.join_readers(recurs, now)
    });
    match &granted {
        Ok(None) => attempt.forget(),
        _ => attempt.end(&granted),
    }
    granted
}

/// Takes a part of a joint hold, of which the caller's handle had one before: what most readers do where many read.
fn take_part(engine: &Engine, sides: &Sides, lease: Lease, now: Instant) -> Option<Part> {
    if lease != Lease::Watchdog || !engine.waiters.lets_in(&sides.read.names) || sides.writes(now) {
        return None;
    }
    let joint = sides.joint()?;
    joint.take_part(sides.reads_as(), now, || sides.add_part(&joint))
}

/// Acquires one hold that reads; `None` if the wait ends first. If its handle reads or writes already, it passes all
/// that wait.
pub(crate) async fn acquire_to_read(
    engine: &Engine,
    sides: &Sides,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Held>, Error> {
    let attempt = engine.events.attempt(&sides.read.names.series, Some(sides.read.kind));
    let recurs = sides.is_inside(clock::now());
    let one = One { handle: &sides.read, sides: Some(sides), recurs };
    let granted = acquire_one(engine, one, lease, wait).await;
    attempt.end(&granted);
    granted
}

/// Acquires one hold that writes; `None` if the wait ends first, and an error if it would wait for its own handle.
pub(crate) async fn acquire_to_write(
    engine: &Engine,
    sides: &Sides,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Held>, Error> {
    let attempt = engine.events.attempt(&sides.write.names.series, Some(sides.write.kind));
    let granted = write_or_upgrade(engine, sides, lease, wait).await;
    attempt.end(&granted);
    granted
}

async fn write_or_upgrade(
    engine: &Engine,
    sides: &Sides,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Held>, Error> {
    let one = One { handle: &sides.write, sides: Some(sides), recurs: false };
    // It never waits while its handle reads: that would be for itself.
    while sides.reads(clock::now()) {
        let writes = sides.writes(clock::now());
        let granted = match writes {
            true => acquire_one(engine, one, lease, Wait::Once).await?,
            false => upgrade(engine, sides, one, lease).await?,
        };
        if granted.is_some() {
            return Ok(granted);
        }
        // Else its readers were lost, or its writer, or another call of it writes.
        let now = clock::now();
        if !writes && sides.reads(now) && !sides.writes(now) {
            let deadlocks = !matches!(wait, Wait::Once);
            return if deadlocks { Err(waits_for_itself(&sides.write)) } else { Ok(None) };
        }
    }
    acquire_one(engine, one, lease, wait).await
}

fn waits_for_itself(handle: &Handle) -> Error {
    let key = handle.names.key();
    let message = format!("this handle of `{key}` reads, and would wait for that for ever");
    Error::new(ErrorKind::WouldDeadlock, Outcome::NotExecuted, message)
}

/// Acquires the first hold that writes of a handle that reads; `None` if others read, too, or if its readers are
/// lost.
///
/// While the request is under way it has the permits of both possessions. So no other reader of this client asks
/// then.
async fn upgrade(
    engine: &Engine,
    sides: &Sides,
    one: One<'_>,
    lease: Lease,
) -> Result<Option<Held>, Error> {
    let acquisition = Acquisition::new(engine, one, lease, Wait::Once)?;
    let tried = engine.process.bind(Box::pin(acquisition.ask_beside_readers(sides))).await?;
    let granted = tried.and_then(|tried| acquisition.granted_outside(tried, acquisition.begun));
    if granted.is_some() {
        engine.waiters.wake_to_nest(&sides.write);
    }
    Ok(granted)
}

/// What it is to find that the other side is gone, for a handle that was to stand beside it.
pub(super) fn found_beside(handle: &Handle) -> FoundBy {
    // One that is to write has the permit of the readers.
    if handle.kind.is_shared() { FoundBy::Reader } else { FoundBy::NestedAcquire }
}

impl Acquisition<'_, One<'_>> {
    /// Joins the readers of this client, if there are some. `passes` says that the call need not wait for its turn: its
    /// caller reads already, or it was woken because it came next. Any other has to be the only one
    /// that waits, and the share has to be open.
    pub(super) fn join_readers(&self, passes: bool, now: Instant) -> Option<Held> {
        let Self { engine, lease, requested, question: One { handle, sides, recurs }, .. } = *self;
        let sides = sides.filter(|_| handle.kind.is_shared())?;
        if engine.waiters.is_closed() || !passes && !engine.waiters.lets_in(&handle.names) {
            return None;
        }
        let join = Join {
            handle: handle.number,
            lease,
            requested,
            passes,
            recurs,
            writes_as: sides.reads_as(),
            writes: sides.writes(now),
            has_limit: engine.config.max_hold < Duration::MAX,
            is_let_in: false,
        };
        let join_in = |possession: Arc<Possession>| {
            let mut holds = possession.holds.lock();
            let (granted, watch) = holds.join_on_thread(&possession, join, now)?;
            sides.add(&granted);
            Some((granted, watch))
        };
        let last = sides.readers().and_then(join_in);
        let (granted, watch) = last.or_else(|| handle.possession().and_then(join_in))?;
        if watch {
            engine.watchdog.watch(handle);
        }
        granted.set_handed_off();
        Some(granted)
    }

    /// Has those readers of this client come in that wait and come next, now that one has.
    ///
    /// They have the lock from this moment, and not only when they go on: else the first one that is done would
    /// release it before the last one has come.
    pub(super) fn let_readers_in(&self, possession: &Arc<Possession>) {
        let Self { engine, question: One { handle, .. }, .. } = *self;
        let (now, has_limit) = (clock::now(), engine.config.max_hold < Duration::MAX);
        let readers = engine.waiters.take_readers(handle, now, |waiter| {
            let Waiter { lease, requested, .. } = *waiter;
            // Beside a writer only its own handle reads, and that one does not wait.
            let (writes_as, writes) = (NO_HANDLE, false);
            let join = Join {
                handle: handle.number,
                lease,
                requested,
                passes: true,
                recurs: false,
                writes_as,
                writes,
                has_limit,
                is_let_in: true,
            };
            let (hold, _) = possession.holds.lock().join(join, now)?;
            let granted = AcquiredHold::new(possession.clone(), hold, requested);
            granted.set_handed_off();
            Some(granted)
        });
        for (waiter, granted) in readers {
            if let Err(granted) = waiter.hand(granted) {
                engine.releaser.give_back(&granted);
            }
        }
    }

    /// What a nested request says of this client's entry. One of a reader that has to wait for its turn is refused
    /// while another client is next.
    pub(super) fn nested_entry(&self, ticket: Option<Ticket>) -> Option<QueueEntry> {
        let waits = ticket.is_some() || matches!(self.wait, Wait::Once);
        let One { handle, sides, recurs } = self.question;
        let passes = recurs && sides.is_some_and(|sides| sides.is_inside(clock::now()));
        let in_turn = handle.kind.is_shared() && !passes && waits;
        let entry = self.bring_entry(handle, ticket.filter(|_| in_turn))?;
        Some(QueueEntry { in_turn, ..entry })
    }

    /// The writer of the caller's handle beside which a reader is to stand, for which Redis is about to be asked.
    pub(super) fn own_writer(&self, readers: &Possession, ask: Ask) -> Option<Arc<Possession>> {
        let One { handle, sides, .. } = self.question;
        let write = &sides.filter(|_| handle.kind.is_shared())?.write;
        if ask.count > 1 {
            return readers.holds.lock().writer_of(write.number);
        }
        let writer = write.possession()?;
        if !writer.holds.lock().takes_readers(write.number, readers.id()) {
            return None;
        }
        let mut holds = readers.holds.lock();
        holds.stand_beside(&writer);
        // Redis may keep the lock of the writer for it, whatever becomes of the call.
        holds.may_be_kept_until(valid_until(clock::now(), self.requested));
        drop(holds);
        Some(writer)
    }

    /// The caller has got a guard, which may read. Comes before other calls of its client ask which of them read.
    pub(super) fn add_own_reader(&self, granted: &Held) {
        let One { handle, sides, .. } = self.question;
        if let Some(sides) = sides.filter(|_| handle.kind.is_shared()) {
            sides.add(granted);
        }
    }

    /// Asks Redis for a writer beside the readers of this client, which are all of its handle. `None` if they are not,
    /// or are gone.
    async fn ask_beside_readers(&self, sides: &Sides) -> Result<Option<Tried<Held>>, Error> {
        let own = |one: &_| sides.is_own(one);
        let Some(readers) = sides.read.possession() else { return Ok(None) };
        if !readers.holds.lock().are_all(sides.reads_as(), own, self.begun) {
            return Ok(None);
        }
        let deadline = self.deadline(self.begun, None)?;
        let mut reading = self.session(readers.clone(), deadline);
        let now = reading.acquire_permit(self.begun).await?;
        let (session, ask) = self.prepare(&sides.write, deadline, now).await?;
        let writer = session.possession();
        let stands = {
            let mut holds = readers.holds.lock();
            holds.close_joint_holds();
            let is_own = holds.are_all(sides.reads_as(), own, clock::now());
            let stands = ask.count == 1 && is_own;
            if stands {
                holds.stand_beside(writer);
            }
            stands
        };
        if !stands {
            writer.holds.lock().not_executed(ask);
            return Ok(None);
        }
        writer.holds.lock().set_readers(readers.id());
        let tried = self.ask_first(session, ask, None, Some(&readers)).await?;
        if let Some(Tried::Granted(writer)) = &tried {
            readers.holds.lock().follow(writer.token);
        }
        Ok(tried)
    }
}
