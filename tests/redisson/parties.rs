//! A party of a read-write lock: a thread in Java, or a client of ours, by the same calls.

use std::sync::Arc;
use std::time::Duration;

use redlatch::{ErrorKind, LockClient, ReadGuard, ReadWriteLock, WriteGuard};
use tokio::task::JoinHandle;

use crate::java::{Call, Java, Thread};
use crate::owners::{Kind, Micros, now};
use crate::setup::Setup;
use crate::support::{SOON, soon, wait_until};

/// What a party does with the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

pub(crate) const SIDES: [Side; 2] = [Side::Read, Side::Write];

pub(crate) enum Guard {
    Read(ReadGuard),
    Write(WriteGuard),
}

pub(crate) struct Party<'a> {
    setup: &'a Setup,
    pub(crate) name: String,
    who: Who,
}

enum Who {
    Java {
        thread: Thread,
        waits: Option<Call>,
    },
    Rust {
        lock: Arc<ReadWriteLock>,
        waits: Option<JoinHandle<(Guard, Micros)>>,
        guards: Vec<Guard>,
    },
}

impl Side {
    fn verb(self, verb: &str) -> String {
        let side = if self == Self::Read { "read" } else { "write" };
        format!("{side}.{verb}")
    }
}

impl Guard {
    fn side(&self) -> Side {
        match self {
            Self::Read(_) => Side::Read,
            Self::Write(_) => Side::Write,
        }
    }

    /// The field that it has in the hash.
    fn field(&self) -> String {
        match self {
            Self::Read(guard) => guard.owner(),
            Self::Write(guard) => guard.owner(),
        }
        .to_owned()
    }

    async fn unlock(self) -> Result<(), redlatch::Error> {
        match self {
            Self::Read(guard) => guard.unlock().await,
            Self::Write(guard) => guard.unlock().await,
        }
    }
}

async fn acquires(lock: &ReadWriteLock, side: Side, lease: Option<Duration>) -> Guard {
    let granted = match (side, lease) {
        (Side::Read, None) => lock.read().await.map(Guard::Read),
        (Side::Read, Some(lease)) => lock.read_with_lease(lease).await.map(Guard::Read),
        (Side::Write, None) => lock.write().await.map(Guard::Write),
        (Side::Write, Some(lease)) => lock.write_with_lease(lease).await.map(Guard::Write),
    };
    granted.expect("the lock")
}

impl<'a> Party<'a> {
    /// A thread of that Java, which nobody else may use.
    pub(crate) fn java(setup: &'a Setup, java: &Arc<Java>, thread: &str, name: &str) -> Self {
        let who = Who::Java { thread: java.thread(thread), waits: None };
        Self { setup, name: name.to_owned(), who }
    }

    /// A new handle of that client.
    pub(crate) fn rust(setup: &'a Setup, client: &LockClient, name: &str) -> Self {
        let lock = Arc::new(client.read_write_lock(name));
        let who = Who::Rust { lock, waits: None, guards: Vec::new() };
        Self { setup, name: name.to_owned(), who }
    }

    /// A thread of the setup's Java, or a new client of ours.
    pub(crate) async fn new(setup: &'a Setup, kind: Kind, thread: &str, name: &str) -> Self {
        match kind {
            Kind::Java => Self::java(setup, &setup.java, thread, name),
            Kind::Rust => Self::rust(setup, &setup.client().await, name),
        }
    }

    /// Takes what it can have at once. `None` leaves the lease to the watchdog.
    pub(crate) async fn takes_for(&mut self, side: Side, lease: Option<Duration>) {
        let name = &self.name;
        match &mut self.who {
            Who::Java { thread, .. } => {
                let answer = match lease {
                    None => thread.ask(&side.verb("lock"), &[name]).await,
                    Some(lease) => {
                        thread.ask(&side.verb("lockFor"), &[name, &lease.as_millis()]).await
                    }
                };
                answer.value();
            }
            Who::Rust { lock, guards, .. } => {
                guards.push(soon("the lock", acquires(lock, side, lease)).await);
            }
        }
    }

    pub(crate) async fn takes(&mut self, side: Side) {
        self.takes_for(side, None).await;
    }

    /// Whether it can have it at once. If so, it has it.
    pub(crate) async fn tries(&mut self, side: Side) -> bool {
        let name = &self.name;
        match &mut self.who {
            Who::Java { thread, .. } => thread.get(&side.verb("tryLock"), &[name, &0, &-1]).await,
            Who::Rust { lock, guards, .. } => {
                let tried = async {
                    match side {
                        Side::Read => lock.try_read_now().await.map(|got| got.map(Guard::Read)),
                        Side::Write => lock.try_write_now().await.map(|got| got.map(Guard::Write)),
                    }
                };
                let got = soon("a try", tried).await.expect("an answer");
                let has_it = got.is_some();
                guards.extend(got);
                has_it
            }
        }
    }

    /// Asks for what others have. When this returns, it is parked. (Or it has it, if it was free by then.)
    pub(crate) async fn waits(&mut self, side: Side) {
        let (name, setup) = (&self.name, self.setup);
        match &mut self.who {
            Who::Java { thread, waits } => {
                let call = waits.insert(thread.begin(&side.verb("lock"), &[name]));
                let parked = async {
                    while !call.is_done() && !thread.is_parked().await {
                        tokio::task::yield_now().await;
                    }
                };
                soon("Java parks", parked).await;
            }
            Who::Rust { lock, waits, .. } => {
                let client = lock.owner().rsplit_once(':').expect("an owner").0.to_owned();
                let lock = lock.clone();
                let task = tokio::spawn(async move { (acquires(&lock, side, None).await, now()) });
                let task = waits.insert(task);
                let stands = || {
                    // What it wants is in its entry when it has asked as a subscriber.
                    let key = format!("redlatch_rw_waiting:{}", tagged(name));
                    let mode: Option<String> =
                        setup.ask_at(name, &["HGET", &key, &format!("mode:{client}")]);
                    mode.is_some_and(|mode| mode != "arriving")
                };
                wait_until("we are parked", SOON, || task.is_finished() || stands()).await;
            }
        }
    }

    /// Whether it still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.who {
            Who::Java { waits, .. } => waits.as_ref().is_some_and(|call| !call.is_done()),
            Who::Rust { waits, .. } => waits.as_ref().is_some_and(|task| !task.is_finished()),
        }
    }

    /// Whoever waited gets it. Returns when that was.
    pub(crate) async fn gets(&mut self) -> Micros {
        match &mut self.who {
            Who::Java { waits, .. } => {
                let answer = waits.take().expect("a call").answer().await;
                let got = answer.ended;
                answer.value();
                got
            }
            Who::Rust { waits, guards, .. } => {
                let task = waits.take().expect("a task");
                let (guard, got) = soon("our turn", task).await.expect("a task that succeeds");
                guards.push(guard);
                got
            }
        }
    }

    /// Gives one hold back. Returns when it began to.
    pub(crate) async fn gives_back(&mut self, side: Side) -> Micros {
        let name = &self.name;
        match &mut self.who {
            Who::Java { thread, .. } => {
                let answer = thread.ask(&side.verb("unlock"), &[name]).await;
                let begun = answer.begun;
                answer.value();
                begun
            }
            Who::Rust { .. } => {
                let guard = self.last(side);
                let begun = now();
                soon("unlocking", guard.unlock()).await.expect("unlocking");
                begun
            }
        }
    }

    /// Gives back what it has lost, and is told so.
    pub(crate) async fn gives_back_too_late(&mut self, side: Side) {
        let name = &self.name;
        match &mut self.who {
            Who::Java { thread, .. } => {
                thread.ask(&side.verb("unlock"), &[name]).await.assert_not_held();
            }
            Who::Rust { .. } => {
                let unlocked = soon("unlocking", self.last(side).unlock()).await;
                assert_eq!(unlocked.expect_err("a lease that has ended").kind(), ErrorKind::Lost);
            }
        }
    }

    /// Gives one hold back, if it has it and it has not ended.
    pub(crate) async fn tries_to_give_back(&mut self, side: Side) -> bool {
        let name = &self.name;
        match &mut self.who {
            Who::Java { thread, .. } => {
                thread.ask(&side.verb("unlock"), &[name]).await.outcome.is_ok()
            }
            Who::Rust { guards, .. } => {
                let Some(at) = guards.iter().rposition(|guard| guard.side() == side) else {
                    return false;
                };
                soon("unlocking", guards.remove(at).unlock()).await.is_ok()
            }
        }
    }

    /// Frees that side of the lock, whoever has it. Ours frees both, so the party asks first.
    pub(crate) async fn forces(&mut self, side: Side) -> bool {
        let is_locked = self.is_locked(side).await;
        match &mut self.who {
            Who::Java { thread, .. } => thread.get(&side.verb("forceUnlock"), &[&self.name]).await,
            Who::Rust { lock, .. } => is_locked && lock.force_unlock().await.expect("an answer"),
        }
    }

    /// What all its owners begin with in Redis.
    pub(crate) async fn id(&self) -> String {
        match &self.who {
            Who::Java { thread, .. } => thread.owner().await,
            Who::Rust { lock, .. } => lock.owner().rsplit_once(':').expect("an owner").0.to_owned(),
        }
    }

    /// The field that it has in the hash.
    pub(crate) async fn field(&self, side: Side) -> String {
        match &self.who {
            Who::Java { thread, .. } if side == Side::Write => {
                format!("{}:write", thread.owner().await)
            }
            Who::Java { thread, .. } => thread.owner().await,
            Who::Rust { guards, .. } => {
                let mut last = guards.iter().rev().filter(|guard| guard.side() == side);
                last.next().expect("a hold").field()
            }
        }
    }

    /// Whether any owner has that side, as this one finds out.
    pub(crate) async fn is_locked(&self, side: Side) -> bool {
        match &self.who {
            Who::Java { thread, .. } => thread.get(&side.verb("isLocked"), &[&self.name]).await,
            Who::Rust { lock, .. } => match side {
                Side::Read => lock.is_read_locked().await,
                Side::Write => lock.is_write_locked().await,
            }
            .expect("an answer"),
        }
    }

    fn last(&mut self, side: Side) -> Guard {
        let Who::Rust { guards, .. } = &mut self.who else { panic!("Java has none") };
        let at = guards.iter().rposition(|guard| guard.side() == side).expect("a hold");
        guards.remove(at)
    }
}

/// The name as it stands in the keys beside the lock.
pub(crate) fn tagged(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}
