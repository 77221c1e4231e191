//! A party that wants a lock: a thread in Java, or handles of a client of ours, by the same calls. So a case is written
//! once for both.

use std::sync::Arc;
use std::time::SystemTime;

use redlatch::{ErrorKind, LockClient};
use tokio::task::JoinHandle;

use crate::java::{Call, Java, Thread};
use crate::setup::Setup;
use crate::sides::{Ask, Guard, Locks, Side};
use crate::support::{MINUTE, SOON, soon, wait_until};

/// What a hand-off by message may take on a busy machine. No lease is nearly as short.
pub(crate) const PROMPT: Micros = 2_000_000;

/// By how much a lease may end before its time: Redis counts whole milliseconds.
const GRAIN: Micros = 2_000;

/// Of the wall clock, on which processes agree.
pub(crate) type Micros = u64;

pub(crate) fn now() -> Micros {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    now.as_micros().try_into().expect("before the year 586,000")
}

/// Fails unless somebody got it when a lease was over, which ended between these times.
pub(crate) fn assert_at_the_end(what: &str, got: Micros, first: Micros, last: Micros) {
    assert!(got + GRAIN >= first, "{what}: {} us before the end", first - got);
    assert!(got < last + PROMPT, "{what}: {} us after it", got - last);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Java,
    Rust,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Java, Kind::Rust];

impl Kind {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Java => Self::Rust,
            Self::Rust => Self::Java,
        }
    }
}

pub(crate) struct Party<'a> {
    setup: &'a Setup,
    name: String,
    who: Who,
}

enum Who {
    Java {
        thread: Thread,
        waits: Option<Call>,
    },
    Rust {
        locks: Arc<Locks>,
        waits: Option<JoinHandle<(Guard, Micros)>>,
        has_waited: bool,
        guards: Vec<Guard>,
    },
}

/// Has a thread in Java call for that lock.
fn call(thread: &Thread, name: &str, side: Side, ask: Ask) -> Call {
    let minute = MINUTE.as_millis();
    match ask {
        Ask::Lock => thread.begin(&side.verb("lock"), &[&name]),
        Ask::For(lease) => thread.begin(&side.verb("lockFor"), &[&name, &lease.as_millis()]),
        Ask::TryLock => thread.begin(&side.verb("tryLock"), &[&name, &minute, &-1]),
        Ask::TryLockWithLease => thread.begin(&side.verb("tryLock"), &[&name, &minute, &minute]),
    }
}

impl<'a> Party<'a> {
    /// A thread of that Java, which nobody else may use.
    pub(crate) fn java(setup: &'a Setup, java: &Arc<Java>, thread: &str, name: &str) -> Self {
        let who = Who::Java { thread: java.thread(thread), waits: None };
        Self { setup, name: name.to_owned(), who }
    }

    /// New handles of that client.
    pub(crate) fn rust(setup: &'a Setup, client: &LockClient, name: &str) -> Self {
        let locks = Locks { plain: client.lock(name), read_write: client.read_write_lock(name) };
        let (locks, guards) = (Arc::new(locks), Vec::new());
        let who = Who::Rust { locks, waits: None, has_waited: false, guards };
        Self { setup, name: name.to_owned(), who }
    }

    /// A thread of the setup's Java, or a new client of ours.
    pub(crate) async fn new(setup: &'a Setup, kind: Kind, thread: &str, name: &str) -> Self {
        match kind {
            Kind::Java => Self::java(setup, &setup.java, thread, name),
            Kind::Rust => Self::rust(setup, &setup.client().await, name),
        }
    }

    /// Takes what it can have at once.
    pub(crate) async fn takes_by(&mut self, side: Side, ask: Ask) {
        match &mut self.who {
            Who::Java { thread, .. } => {
                call(thread, &self.name, side, ask).answer().await.value();
            }
            Who::Rust { locks, guards, .. } => {
                guards.push(soon("the lock", locks.acquire(side, ask)).await);
            }
        }
    }

    pub(crate) async fn takes(&mut self, side: Side) {
        self.takes_by(side, Ask::Lock).await;
    }

    /// Whether it can have it at once. If so, it has it.
    pub(crate) async fn tries(&mut self, side: Side) -> bool {
        let name = &self.name;
        match &mut self.who {
            Who::Java { thread, .. } => thread.get(&side.verb("tryLock"), &[name, &0, &-1]).await,
            Who::Rust { locks, guards, .. } => {
                let Locks { plain, read_write } = &**locks;
                let tried = async {
                    match side {
                        Side::Plain => plain.try_lock_now().await.map(|it| it.map(Guard::Plain)),
                        Side::Read => read_write.try_read_now().await.map(|it| it.map(Guard::Read)),
                        Side::Write => {
                            read_write.try_write_now().await.map(|it| it.map(Guard::Write))
                        }
                    }
                };
                let got = soon("a try", tried).await.expect("an answer");
                let has_it = got.is_some();
                guards.extend(got);
                has_it
            }
        }
    }

    /// Asks for what others have. When this returns, it is parked: from now on it is a message that wakes it, or the
    /// end of the lease. (Or it has it, if it was free by then.)
    pub(crate) async fn waits_by(&mut self, side: Side, ask: Ask) {
        let (name, setup) = (&self.name, self.setup);
        match &mut self.who {
            Who::Java { thread, waits } => {
                let call = waits.insert(call(thread, name, side, ask));
                thread.parks(call).await;
                let listens = side != Side::Plain || setup.subscribers(name) > 0;
                assert!(listens || call.is_done(), "Java listens to another channel");
            }
            Who::Rust { locks, waits, has_waited, .. } => {
                // Refused, it subscribes, and is refused once more; or it still is subscribed.
                let refusals = (side == Side::Plain).then(|| {
                    let lingers = *has_waited && setup.subscribers(name) > 0;
                    setup.calls("evalsha") + if lingers { 1 } else { 2 }
                });
                *has_waited = true;
                let asks = locks.clone();
                let task = tokio::spawn(async move { (asks.acquire(side, ask).await, now()) });
                let task = waits.insert(task);
                let is_parked = || match refusals {
                    Some(refusals) => {
                        setup.subscribers(name) > 0 && setup.calls("evalsha") >= refusals
                    }
                    None => {
                        // What it wants is in its entry when it has asked as a subscriber.
                        let key = format!("redlatch_rw_waiting:{}", tagged(name));
                        let mode = format!("mode:{}", locks.client());
                        let mode: Option<String> = setup.ask_at(name, &["HGET", &key, &mode]);
                        mode.is_some_and(|mode| mode != "arriving")
                    }
                };
                wait_until("we are parked", SOON, || task.is_finished() || is_parked()).await;
            }
        }
    }

    pub(crate) async fn waits(&mut self, side: Side) {
        self.waits_by(side, Ask::Lock).await;
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
                assert_ne!(answer.value(), "false", "Java gave up");
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
        match &mut self.who {
            Who::Java { thread, .. } => {
                let answer = thread.ask(&side.verb("unlock"), &[&self.name]).await;
                let begun = answer.begun;
                answer.value();
                begun
            }
            Who::Rust { guards, .. } => {
                let guard = last(guards, side).expect("a hold");
                let begun = now();
                soon("unlocking", guard.unlock()).await.expect("unlocking");
                begun
            }
        }
    }

    /// One of ours drops a guard. Returns when it began to.
    pub(crate) fn drops(&mut self, side: Side) -> Micros {
        let Who::Rust { guards, .. } = &mut self.who else { panic!("Java has no guard") };
        let guard = last(guards, side).expect("a hold");
        let begun = now();
        drop(guard);
        begun
    }

    /// Whoever has lost the plain lock hears so, if it is one of ours.
    pub(crate) async fn hears_of_its_loss(&self) {
        if let Who::Rust { guards, .. } = &self.who {
            let Some(Guard::Plain(guard)) = guards.last() else { panic!("a hold") };
            soon("the holder is told", guard.lost()).await;
        }
    }

    /// Gives the plain lock back, which it has lost, and is told so.
    pub(crate) async fn gives_back_too_late(&mut self) {
        match &mut self.who {
            Who::Java { thread, .. } => {
                thread.ask("unlock", &[&self.name]).await.assert_not_held();
            }
            Who::Rust { guards, .. } => {
                let Some(Guard::Plain(guard)) = guards.pop() else { panic!("a hold") };
                assert!(guard.is_lost(), "it believes in what it has lost");
                let unlocked = soon("unlocking", guard.unlock()).await;
                let error = unlocked.expect_err("a lock that was lost");
                assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            }
        }
    }

    /// Gives one hold back, if it has it and it has not ended.
    pub(crate) async fn tries_to_give_back(&mut self, side: Side) -> bool {
        match &mut self.who {
            Who::Java { thread, .. } => {
                thread.ask(&side.verb("unlock"), &[&self.name]).await.outcome.is_ok()
            }
            Who::Rust { guards, .. } => match last(guards, side) {
                Some(guard) => soon("unlocking", guard.unlock()).await.is_ok(),
                None => false,
            },
        }
    }

    /// Frees that side of the lock, whoever has it. Ours frees both, so the party asks first.
    pub(crate) async fn forces(&self, side: Side) -> bool {
        let frees = side == Side::Plain || self.is_locked(side).await;
        let forced = match &self.who {
            Who::Java { thread, .. } => {
                return thread.get(&side.verb("forceUnlock"), &[&self.name]).await;
            }
            Who::Rust { .. } if !frees => return false,
            Who::Rust { locks, .. } if side == Side::Plain => locks.plain.force_unlock().await,
            Who::Rust { locks, .. } => locks.read_write.force_unlock().await,
        };
        forced.expect("an answer")
    }

    /// What all its owners begin with in Redis.
    pub(crate) async fn id(&self) -> String {
        match &self.who {
            Who::Java { thread, .. } => thread.owner().await,
            Who::Rust { locks, .. } => locks.client().to_owned(),
        }
    }

    /// The field that it has in the hash, where it has the lock.
    pub(crate) async fn field(&self, side: Side) -> String {
        match &self.who {
            Who::Java { thread, .. } if side == Side::Write => {
                format!("{}:write", thread.owner().await)
            }
            Who::Java { thread, .. } => thread.owner().await,
            Who::Rust { guards, .. } => {
                let guard = guards.iter().rfind(|guard| guard.side() == side);
                guard.expect("a hold").owner().to_owned()
            }
        }
    }

    /// Whether any owner has that side, as this one finds out.
    pub(crate) async fn is_locked(&self, side: Side) -> bool {
        match &self.who {
            Who::Java { thread, .. } => thread.get(&side.verb("isLocked"), &[&self.name]).await,
            Who::Rust { locks, .. } => match side {
                Side::Plain => locks.plain.is_locked().await,
                Side::Read => locks.read_write.is_read_locked().await,
                Side::Write => locks.read_write.is_write_locked().await,
            }
            .expect("an answer"),
        }
    }
}

/// Takes out the last guard of that side.
fn last(guards: &mut Vec<Guard>, side: Side) -> Option<Guard> {
    let at = guards.iter().rposition(|guard| guard.side() == side)?;
    Some(guards.remove(at))
}

/// The name as it stands in the keys beside the lock.
pub(crate) fn tagged(name: &str) -> String {
    if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") }
}
