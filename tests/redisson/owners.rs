//! An owner in Java, or one of ours, by the same calls: a case is written once for both.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redlatch::{Lease, Lock, LockClient, LockGuard};
use tokio::task::JoinHandle;

use crate::java::{Call, Java, Thread};
use crate::setup::Setup;
use crate::support::{SOON, hold, release, soon, wait_until};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// What a hand-off by message may take on a busy machine. No lease is nearly as short.
pub(crate) const PROMPT: Micros = 2_000_000;

/// By how much a lease may end before its time: Redis counts whole milliseconds.
pub(crate) const GRAIN: Micros = 2_000;

/// Of the wall clock, on which processes agree.
pub(crate) type Micros = u64;

pub(crate) fn now() -> Micros {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    now.as_micros().try_into().expect("before the year 586,000")
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

/// By which call somebody waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    /// `lock()`, with the watchdog.
    Lock,
    /// `lock(lease)`, for a minute.
    WithLease,
    /// `tryLock(wait)`, for a minute, with the watchdog.
    TryLock,
    /// `tryLock(wait, lease)`, each a minute.
    TryLockWithLease,
}

pub(crate) const ASKS: [Ask; 4] = [Ask::Lock, Ask::WithLease, Ask::TryLock, Ask::TryLockWithLease];

/// One owner that wants one lock.
pub(crate) enum Owner<'a> {
    Java(Theirs<'a>),
    Rust(Ours<'a>),
}

/// A thread in Java.
pub(crate) struct Theirs<'a> {
    setup: &'a Setup,
    pub(crate) thread: Thread,
    pub(crate) name: String,
    waits: Option<Call>,
}

/// A handle of ours.
pub(crate) struct Ours<'a> {
    setup: &'a Setup,
    pub(crate) lock: Arc<Lock>,
    waits: Option<JoinHandle<(LockGuard, Micros)>>,
    has_waited: bool,
    pub(crate) guards: Vec<LockGuard>,
}

impl<'a> Owner<'a> {
    /// A thread of that Java, which nobody else may use.
    pub(crate) fn java(setup: &'a Setup, java: &Arc<Java>, thread: &str, name: &str) -> Self {
        let thread = java.thread(thread);
        Self::Java(Theirs { setup, thread, name: name.to_owned(), waits: None })
    }

    /// A new owner of that client.
    pub(crate) fn rust(setup: &'a Setup, client: &LockClient, name: &str) -> Self {
        let lock = Arc::new(client.lock(name));
        Self::Rust(Ours { setup, lock, waits: None, has_waited: false, guards: Vec::new() })
    }

    /// A thread of the setup's Java, or a new client of ours.
    pub(crate) async fn new(setup: &'a Setup, kind: Kind, thread: &str, name: &str) -> Self {
        match kind {
            Kind::Java => Self::java(setup, &setup.java, thread, name),
            Kind::Rust => Self::rust(setup, &setup.client().await, name),
        }
    }

    /// Locks what is free, or its own.
    pub(crate) async fn takes(&mut self) {
        match self {
            Self::Java(it) => drop(it.thread.ask("lock", &[&it.name]).await.value()),
            Self::Rust(it) => it.guards.push(hold(&it.lock).await),
        }
    }

    /// Asks for what somebody else holds. When this returns, it is parked: from now on it is a
    /// message that wakes it, or the end of the lease. (Or it has it, if a lease has ended by now.)
    pub(crate) async fn waits(&mut self, ask: Ask) {
        match self {
            Self::Java(it) => it.wait(ask).await,
            Self::Rust(it) => it.wait(ask).await,
        }
    }

    /// Whether it still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        match self {
            Self::Java(it) => it.is_waiting(),
            Self::Rust(it) => it.is_waiting(),
        }
    }

    /// Whoever waited gets it. Returns when that was.
    pub(crate) async fn gets(&mut self) -> Micros {
        match self {
            Self::Java(it) => {
                let answer = it.waits.take().expect("a call").answer().await;
                let got = answer.ended;
                assert_ne!(answer.value(), "false", "Java gave up");
                got
            }
            Self::Rust(it) => {
                let task = it.waits.take().expect("a task");
                let (guard, got) = soon("our turn", task).await.expect("a task that succeeds");
                it.guards.push(guard);
                got
            }
        }
    }

    /// Gives one hold back. Returns when it began to.
    pub(crate) async fn gives_back(&mut self) -> Micros {
        match self {
            Self::Java(it) => {
                let answer = it.thread.ask("unlock", &[&it.name]).await;
                let begun = answer.begun;
                answer.value();
                begun
            }
            Self::Rust(it) => {
                let begun = now();
                release(it.guards.pop().expect("a hold")).await;
                begun
            }
        }
    }

    /// The owner that it is in Redis, where it holds the lock.
    pub(crate) async fn owner(&self) -> String {
        match self {
            Self::Java(it) => it.thread.owner().await,
            Self::Rust(it) => it.guards.last().expect("a hold").owner().to_owned(),
        }
    }
}

impl Theirs<'_> {
    fn is_waiting(&self) -> bool {
        self.waits.as_ref().is_some_and(|call| !call.is_done())
    }

    async fn wait(&mut self, ask: Ask) {
        let (name, minute) = (&self.name, MINUTE.as_millis());
        self.waits = Some(match ask {
            Ask::Lock => self.thread.begin("lock", &[name]),
            Ask::WithLease => self.thread.begin("lockFor", &[name, &minute]),
            Ask::TryLock => self.thread.begin("tryLock", &[name, &minute, &-1]),
            Ask::TryLockWithLease => self.thread.begin("tryLock", &[name, &minute, &minute]),
        });
        let parked = async {
            while self.is_waiting() && !self.thread.is_parked().await {
                tokio::task::yield_now().await;
            }
        };
        soon("Java parks", parked).await;
        let listens = self.setup.subscribers(&self.name) > 0;
        assert!(listens || !self.is_waiting(), "Java listens to another channel");
    }
}

impl Ours<'_> {
    fn is_waiting(&self) -> bool {
        self.waits.as_ref().is_some_and(|task| !task.is_finished())
    }

    async fn wait(&mut self, ask: Ask) {
        let setup = self.setup;
        // Refused, it subscribes, and is refused once more; or it still is subscribed.
        let lingers = self.has_waited && setup.subscribers(self.lock.name()) > 0;
        let refusals = setup.calls("evalsha") + if lingers { 1 } else { 2 };
        self.has_waited = true;
        let lock = self.lock.clone();
        self.waits = Some(tokio::spawn(async move {
            let granted = match ask {
                Ask::Lock => lock.lock().await,
                Ask::WithLease => lock.lock_with_lease(MINUTE).await,
                Ask::TryLock => lock.try_lock(MINUTE, Lease::Watchdog).await.map(Option::unwrap),
                Ask::TryLockWithLease => lock.try_lock(MINUTE, MINUTE).await.map(Option::unwrap),
            };
            (granted.expect("the lock"), now())
        }));
        wait_until("we are parked", SOON, || {
            let listens = setup.subscribers(self.lock.name()) > 0;
            !self.is_waiting() || listens && setup.calls("evalsha") >= refusals
        })
        .await;
    }
}
