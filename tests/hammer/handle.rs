//! A lock under test, of one of the kinds, and a hold of it; every call is written down.

use redlatch::{
    Error, ErrorKind, FairLock, FencedFairLock, FencedLock, FencedLockGuard, Lease, Lock,
};
use redlatch::{FencedReadGuard, FencedReadWriteLock, FencedWriteGuard, FencingToken};
use redlatch::{LockGuard, MultiGuard, MultiLock, ReadGuard, ReadWriteLock, WriteGuard};

use crate::prelude::*;
use crate::record::{BELIEVED, FOLLOWS, NESTED, READ, SEVERAL, WATCHDOG};
use crate::shared::Member;
use crate::witness::owner;

mod change;

enum Of {
    Plain(Lock),
    Fenced(FencedLock),
    Fair(FairLock),
    FencedFair(FencedFairLock),
    ReadWrite(ReadWriteLock),
    FencedReadWrite(FencedReadWriteLock),
    Several(MultiLock),
}

pub(crate) struct Handle {
    lock: Of,
    /// What its records have in common.
    pub(crate) base: Record,
    names: Several,
    /// The number of its client.
    client: u32,
    /// The watchdog timeout of its client.
    watchdog: Duration,
}

/// How to ask for a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    Lock,
    WithLease(Duration),
    Try(Duration, Lease),
    Now,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) ask: Ask,
    /// To read, and not to write; of a read-write lock.
    pub(crate) reads: bool,
    /// The caller has a hold of that handle.
    pub(crate) nested: bool,
}

enum Guard {
    Plain(LockGuard),
    Fenced(FencedLockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    FencedRead(FencedReadGuard),
    FencedWrite(FencedWriteGuard),
    Several(MultiGuard),
}

/// The names that are locked together, in the order of the library, and their owners there; none if there is
/// only one.
#[derive(Clone, Default)]
struct Several(Vec<(u16, u32)>);

impl Several {
    /// Writes a record for each.
    fn put(&self, log: &Recorder, record: Record) {
        let Some(((key, owner), others)) = self.0.split_first() else { return log.put(record) };
        log.put(Record { key: *key, owner: *owner, ..record });
        for (key, owner) in others {
            let flags = record.flags | FOLLOWS;
            log.put(Record { key: *key, owner: *owner, flags, ..record });
        }
    }

    /// As [`Several::put`], of what the end of a runtime did.
    fn put_cut_off(&self, log: &Recorder, record: Record) {
        log.count_cut_off();
        self.put(log, Record { t: now(), ..record });
    }
}

/// One hold, from its grant to its end. If it is dropped, then by the end of a runtime.
pub(crate) struct Hold {
    /// There until the hold is given back.
    guard: Option<Guard>,
    pub(crate) log: Arc<Recorder>,
    /// The number of its client.
    pub(crate) client: u32,
    /// What its records have in common, and the deadline that was read last.
    pub(crate) base: Record,
    names: Several,
}

/// Runs `$body` with the lock or guard inside.
macro_rules! either {
    (Of, $($rest:tt)*) => {
        either!(Of: Plain Fenced Fair FencedFair ReadWrite FencedReadWrite Several, $($rest)*)
    };
    (Guard, $($rest:tt)*) => {
        either!(Guard: Plain Fenced Read Write FencedRead FencedWrite Several, $($rest)*)
    };
    ($kind:ident: $($variant:ident)*, $of:expr, $inner:ident => $body:expr) => {
        match $of {
            $($kind::$variant($inner) => $body,)*
        }
    };
}

/// Calls the lock as it was asked, and wraps the guard.
macro_rules! call {
    ($lock:expr, $ask:expr, $guard:path) => {
        call!($lock, $ask, $guard, lock lock_with_lease try_lock try_lock_now)
    };
    ($lock:expr, $ask:expr, $guard:path, $waits:ident $with_lease:ident $tries:ident $now:ident) => {
        match $ask {
            Ask::Lock => $lock.$waits().await.map(Some),
            Ask::WithLease(lease) => $lock.$with_lease(lease).await.map(Some),
            Ask::Try(wait, lease) => $lock.$tries(wait, lease).await,
            Ask::Now => $lock.$now().await,
        }
        .map(|guard| guard.map($guard))
    };
}

macro_rules! read {
    ($lock:expr, $ask:expr, $guard:path) => {
        call!($lock, $ask, $guard, read read_with_lease try_read try_read_now)
    };
}

macro_rules! write {
    ($lock:expr, $ask:expr, $guard:path) => {
        call!($lock, $ask, $guard, write write_with_lease try_write try_write_now)
    };
}

/// What the records have of a hold of that name that reads, or does not.
fn fenced(key: u16, reads: bool) -> u8 {
    if Names::has_tokens(key) && !reads { FENCED } else { 0 }
}

impl Handle {
    pub(crate) fn new(member: &Member, name: &str, kind: Kind, mut base: Record) -> Self {
        let Member { client, number, watchdog, .. } = member;
        let lock = match kind {
            Kind::Plain => Of::Plain(client.lock(name)),
            Kind::Fenced => Of::Fenced(client.fenced_lock(name)),
            Kind::Fair => Of::Fair(client.fair_lock(name)),
            Kind::FencedFair => Of::FencedFair(client.fenced_fair_lock(name)),
            Kind::ReadWrite if Names::has_tokens(base.key) => {
                Of::FencedReadWrite(client.fenced_read_write_lock(name))
            }
            Kind::ReadWrite => Of::ReadWrite(client.read_write_lock(name)),
        };
        base.flags |= if matches!(kind, Kind::Fenced | Kind::FencedFair) { FENCED } else { 0 };
        let names = Several::default();
        Self { lock, base, names, client: *number, watchdog: *watchdog }
    }

    /// One for several names together.
    pub(crate) fn of_several(member: &Member, names: Names, set: u8, mut base: Record) -> Self {
        let Member { client, number, watchdog, .. } = member;
        let all: Vec<(u16, String)> =
            Names::several(set).map(|key| (key, names.name(key))).collect();
        let lock = client.multi_lock(all.iter().map(|(_, name)| name));
        let number_of = |name: &str| all.iter().find(|(_, one)| one == name).map(|(key, _)| *key);
        let keys = lock.names().filter_map(number_of).map(|key| (key, 0)).collect();
        base.flags |= SEVERAL;
        base.slack = set.into();
        let (lock, names) = (Of::Several(lock), Several(keys));
        Self { lock, base, names, client: *number, watchdog: *watchdog }
    }

    fn asked(&self, ask: Ask) -> (How, Lease, Duration) {
        match ask {
            Ask::Lock => (How::Lock, Lease::Watchdog, Duration::MAX),
            Ask::WithLease(lease) => (How::WithLease, Lease::Fixed(lease), Duration::MAX),
            Ask::Try(wait, lease) => (How::Try, lease, wait),
            Ask::Now => (How::Now, Lease::Watchdog, Duration::ZERO),
        }
    }

    /// Acquires, unless `giving_up` completes first. The task's number is that of the caller,
    /// because a handle may be shared.
    pub(crate) async fn acquire(
        &self,
        log: &Arc<Recorder>,
        (task, req): (u16, u32),
        wish: Wish,
        giving_up: impl Future<Output = ()>,
    ) -> Result<Option<Hold>, Option<ErrorKind>> {
        let Wish { ask, reads, nested } = wish;
        let (how, lease, wait) = self.asked(ask);
        let (watchdog, lease) = match lease {
            Lease::Watchdog => (WATCHDOG, self.watchdog),
            Lease::Fixed(lease) => (0, lease),
        };
        let nested = if nested { NESTED } else { 0 } | if reads { READ } else { 0 };
        let fenced = fenced(self.base.key, reads);
        let base = Record {
            task,
            req,
            how,
            lease: u32::try_from(lease.as_millis()).expect("a short lease"),
            flags: self.base.flags | watchdog | nested | fenced,
            ..self.base
        };
        let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let token = self.client.into();
        let inv = Record { t: now(), event: Event::AcquireInv, aux: wait, token, ..base };
        self.names.put(log, inv);
        let ret = Record { event: Event::AcquireRet, ..base };
        let cut_off = CutOff::new(log, &self.names, ret);
        let answer = answer(self.call(ask, reads), giving_up).await;
        cut_off.disarm();
        let (outcome, answer) = match answer {
            Some(Ok(Some(guard))) => {
                let (log, names) = (log.clone(), self.names.clone());
                let hold = Hold { guard: Some(guard), log, client: self.client, base, names };
                return Ok(Some(hold.granted()));
            }
            Some(Ok(None)) => (Outcome::Busy, Ok(None)),
            Some(Err(error)) => (outcome(&error), Err(Some(error.kind()))),
            None => (Outcome::Cancelled, Err(None)),
        };
        self.names.put(log, Record { t: now(), outcome, ..ret });
        answer
    }

    async fn call(&self, ask: Ask, reads: bool) -> Result<Option<Guard>, Error> {
        match &self.lock {
            Of::Plain(lock) => call!(lock, ask, Guard::Plain),
            Of::Fenced(lock) => call!(lock, ask, Guard::Fenced),
            Of::Fair(lock) => call!(lock, ask, Guard::Plain),
            Of::FencedFair(lock) => call!(lock, ask, Guard::Fenced),
            Of::ReadWrite(lock) if reads => read!(lock, ask, Guard::Read),
            Of::ReadWrite(lock) => write!(lock, ask, Guard::Write),
            Of::FencedReadWrite(lock) if reads => read!(lock, ask, Guard::FencedRead),
            Of::FencedReadWrite(lock) => write!(lock, ask, Guard::FencedWrite),
            Of::Several(lock) => call!(lock, ask, Guard::Several),
        }
    }

    /// Asks Redis how often this handle holds the lock; a read-write lock does not say that, nor do several.
    pub(crate) async fn hold_count(&self, log: &Recorder, (task, req): (u16, u32)) {
        let base = Record { task, req, ..self.base };
        log.put(Record { t: now(), event: Event::StatusInv, ..base });
        let answer = match &self.lock {
            Of::Plain(lock) => lock.hold_count().await.map(Some),
            Of::Fenced(lock) => lock.hold_count().await.map(Some),
            Of::Fair(lock) => lock.hold_count().await.map(Some),
            Of::FencedFair(lock) => lock.hold_count().await.map(Some),
            Of::ReadWrite(lock) => lock.is_write_locked().await.map(|_| None),
            Of::FencedReadWrite(lock) => lock.is_write_locked().await.map(|_| None),
            Of::Several(_) => Ok(None),
        };
        let ret = Record { t: now(), event: Event::StatusRet, ..base };
        log.put(match answer {
            Ok(None) => Record { outcome: Outcome::Executed, ..ret },
            Ok(Some(count)) => Record { aux: count.into(), outcome: Outcome::Done, ..ret },
            Err(error) => Record { outcome: outcome(&error), ..ret },
        });
    }

    /// Frees the lock, whoever holds it.
    pub(crate) async fn force_unlock(&self, log: &Recorder, (task, req): (u16, u32)) {
        let base = Record { task, req, ..self.base };
        log.put(Record { t: now(), event: Event::ForceInv, ..base });
        let answer = either!(Of, &self.lock, lock => lock.force_unlock().await);
        let ret = Record { t: now(), event: Event::ForceRet, ..base };
        log.put(match answer {
            Ok(freed) => Record { aux: freed.into(), outcome: Outcome::Done, ..ret },
            Err(error) => Record { outcome: outcome(&error), ..ret },
        });
    }
}

impl Hold {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.base.lease.into())
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.base.has(WATCHDOG)
    }

    fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("not given back yet")
    }

    /// Writes down that it is there, and what its guard says.
    fn granted(mut self) -> Self {
        let (t, _) = self.look();
        self.base.token = self.token().unwrap_or(0);
        let guard = self.guard.as_ref().expect("not given back yet");
        (_, self.base.owner) = owner(either!(Guard, guard, guard => guard.owner()));
        if let Guard::Several(guard) = guard {
            for ((_, number), id) in self.names.0.iter_mut().zip(guard.owners()) {
                (_, *number) = owner(id);
            }
        }
        let (event, outcome) = (Event::AcquireRet, Outcome::Granted);
        self.put(Record { t, event, outcome, ..self.base });
        self
    }

    /// One of its names.
    pub(crate) fn pick_key(&self, rng: &mut Rng) -> u16 {
        let all = &self.names.0;
        if all.is_empty() { self.base.key } else { all[rng.usize(..all.len())].0 }
    }

    pub(crate) fn put(&self, record: Record) {
        self.names.put(&self.log, record);
    }

    fn token(&self) -> Option<u64> {
        match self.guard() {
            Guard::Fenced(guard) => Some(guard.token().get()),
            Guard::FencedWrite(guard) => Some(guard.token().get()),
            Guard::FencedRead(guard) => guard.token().map(FencingToken::get),
            _ => None,
        }
    }

    /// Asks the guard. Returns the time that goes with the answer, and the answer.
    fn look(&mut self) -> (u64, bool) {
        let before = now();
        let (lost, left) =
            either!(Guard, self.guard(), guard => (guard.is_lost(), guard.remaining()));
        let after = now();
        self.base.deadline = before + u64::try_from(left.as_nanos()).unwrap_or(u64::MAX / 2);
        self.base.slack = u32::try_from(after - before).unwrap_or(u32::MAX);
        (if lost { after } else { before }, !lost)
    }

    /// Whether the hold may be believed, as code asks that is about to act on it.
    pub(crate) fn is_believed(&mut self) -> bool {
        let (before, known) = (self.base.deadline, self.base.slack);
        let (t, believed) = self.look();
        let flags = self.base.flags | if believed { BELIEVED } else { 0 };
        self.put(Record { t, event: Event::ValidRead, flags, ..self.base });
        if !believed {
            // What it said while it was believed stays the deadline.
            (self.base.deadline, self.base.slack) = (before, known);
        }
        believed
    }

    /// Completes when the lock is lost, and writes that down.
    pub(crate) async fn lost(&self) {
        either!(Guard, self.guard(), guard => guard.lost().await);
        self.put(Record { t: now(), event: Event::LostNotice, ..self.base });
    }

    /// Blocks inside `run_until_lost`. If the value comes out, the library says that the hold was
    /// believed after `blocking` had ended.
    pub(crate) async fn run_blocking(&self, blocking: impl Future<Output = ()>) {
        let work = async {
            blocking.await;
            now()
        };
        let ran = either!(Guard, self.guard(), guard => guard.run_until_lost(work).await);
        if let Ok(t) = ran {
            let flags = self.base.flags | BELIEVED;
            let record = Record { event: Event::ValidRead, how: How::Ran, flags, ..self.base };
            // It says nothing of a deadline.
            self.put(Record { t, deadline: t, ..record });
        }
    }

    /// Gives the hold back, unless `giving_up` completes first; the release goes on all the same.
    pub(crate) async fn unlock(mut self, giving_up: impl Future<Output = ()>) {
        let guard = self.guard.take().expect("not given back yet");
        let base = Record { how: How::Unlock, ..self.base };
        self.put(Record { t: now(), event: Event::ReleaseInv, ..base });
        let ret = Record { event: Event::ReleaseRet, ..base };
        let cut_off = CutOff::new(&self.log, &self.names, ret);
        let call = async { either!(Guard, guard, guard => guard.unlock().await) };
        let answer = answer(call, giving_up).await;
        cut_off.disarm();
        let outcome = match answer {
            Some(Ok(())) => Outcome::Done,
            Some(Err(error)) if error.kind() == ErrorKind::Lost => match error.outcome() {
                redlatch::Outcome::Unknown => Outcome::LostUnknown,
                // One of several was lost, and of the others it does not say.
                _ if !self.names.0.is_empty() => Outcome::LostUnknown,
                _ => Outcome::Lost,
            },
            Some(Err(error)) => outcome(&error),
            None => Outcome::Cancelled,
        };
        self.put(Record { t: now(), event: Event::ReleaseRet, outcome, ..base });
    }

    /// Drops the guard here, or wherever `to` takes it.
    pub(crate) fn drop_guard(mut self, how: How, to: impl FnOnce(Dropped)) {
        let guard = self.guard.take().expect("not given back yet");
        self.put(Record { t: now(), event: Event::GuardDrop, how, ..self.base });
        to(Dropped(guard));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.guard.is_some() {
            let (event, how) = (Event::GuardDrop, How::WithRuntime);
            self.names.put_cut_off(&self.log, Record { event, how, ..self.base });
        }
    }
}

/// Writes down that a call was dropped half-way, if its runtime ends before it does. To be made
/// before the call, so that it is dropped after it.
struct CutOff<'a> {
    log: &'a Recorder,
    names: &'a Several,
    ret: Option<Record>,
}

impl<'a> CutOff<'a> {
    fn new(log: &'a Recorder, names: &'a Several, ret: Record) -> Self {
        Self { log, names, ret: Some(ret) }
    }

    fn disarm(mut self) {
        self.ret = None;
    }
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        if let Some(ret) = self.ret {
            self.names.put_cut_off(self.log, Record { outcome: Outcome::Cancelled, ..ret });
        }
    }
}

/// A guard whose end is written down already.
pub(crate) struct Dropped(#[expect(dead_code, reason = "its drop is what it is for")] Guard);

/// What a call answers, unless it is given up first. Its future ends here, before that is written down.
async fn answer<T>(
    call: impl Future<Output = T>,
    giving_up: impl Future<Output = ()>,
) -> Option<T> {
    tokio::select! {
        biased;
        answer = call => Some(answer),
        () = giving_up => None,
    }
}

fn outcome(error: &Error) -> Outcome {
    match error.outcome() {
        redlatch::Outcome::NotExecuted => Outcome::NotExecuted,
        redlatch::Outcome::Executed => Outcome::Executed,
        _ => Outcome::Unknown,
    }
}
