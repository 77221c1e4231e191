//! Plays a scene under many schedules: at every use of a mutex and at every await, `shuttle`
//! decides which task goes on. A scene in which no task can go on is a deadlock, and an error.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use shuttle::future::{JoinHandle, spawn, yield_now};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::AtomicBool;
use shuttle::{Config, FailurePersistence, Runner};
use tokio::runtime::{Builder, Runtime};

/// The variable that asks for fewer schedules, where the tests run over and over.
const FEWER: &str = "REDLATCH_SCHEDULES";

/// How often a schedule goes against its order of priority: seldom is enough for most faults,
/// which are then found sooner than by schedules that are random throughout.
const DEPTH: usize = 3;

/// How many cases of a property are played: fewer in a build without optimization.
pub(crate) const CASES: u32 = if cfg!(debug_assertions) { 256 } else { 1024 };

/// About as long as a scene takes.
const MOMENTS: u32 = 16;

/// A runtime for timers, which no thread drives: in a scene no time passes. Never dropped, because a scene that went
/// wrong leaves its timers behind.
static TIMERS: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));

/// Plays a scene under `schedules` schedules, half of them random throughout; under a quarter of them in a
/// build without optimization.
pub(crate) fn explore(schedules: usize, scene: impl Fn() + Send + Sync + Copy + 'static) {
    let schedules = if cfg!(debug_assertions) { schedules / 4 } else { schedules };
    let fewer = std::env::var(FEWER).ok().map(|most| most.parse().expect(FEWER));
    let half = schedules.min(fewer.unwrap_or(schedules)).div_ceil(2);
    let random = run(RandomScheduler::new(half), FailurePersistence::Print, scene);
    let by_priority = run(PctScheduler::new(DEPTH, half), FailurePersistence::Print, scene);
    println!("{random} random schedules, {by_priority} by priority");
    assert_eq!((random, by_priority), (half, half), "not every schedule was played");
}

/// What goes wrong in a scene in which something has to.
pub(crate) fn fault(scene: impl Fn() + Send + Sync + Copy + 'static) -> String {
    let play = || run(RandomScheduler::new(100_000), FailurePersistence::None, scene);
    let panic = catch_unwind(AssertUnwindSafe(play)).expect_err("no schedule shows the fault");
    let said = panic.downcast_ref::<String>().cloned();
    said.or(panic.downcast_ref::<&str>().map(|said| (*said).to_owned())).expect("words")
}

fn run(
    scheduler: impl Scheduler + 'static,
    failure_persistence: FailurePersistence,
    scene: impl Fn() + Send + Sync + 'static,
) -> usize {
    let _entered = TIMERS.enter();
    let mut config = Config::new();
    config.failure_persistence = failure_persistence;
    config.stack_size = 0x4_0000;
    Runner::new(scheduler, config).run(scene)
}

/// Lets others go on, for longer in some schedules than in others.
pub(crate) async fn some_time() {
    for _ in 0..shuttle::rand::thread_rng().gen_range(0..MOMENTS) {
        yield_now().await;
    }
}

/// The calls of a scene. The first of them are dropped, each at any moment.
pub(crate) struct Calls {
    calls: Vec<JoinHandle<()>>,
    dropped: usize,
}

impl Calls {
    pub(crate) fn begin<F>(many: usize, dropped: usize, call: impl Fn(usize) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let calls: Vec<_> = (0..many).map(|me| spawn(call(me))).collect();
        for call in &calls[..dropped] {
            let call = call.abort_handle();
            spawn(async move {
                some_time().await;
                call.abort();
            });
        }
        Self { calls, dropped }
    }

    /// Until all of them have ended, or were dropped.
    pub(crate) async fn end(self) {
        for (me, call) in self.calls.into_iter().enumerate() {
            let ended = call.await;
            assert!(ended.is_ok() || me < self.dropped, "{ended:?}");
        }
    }
}

/// A mutex as the modules use it. Others may go on before it is locked and after it is unlocked;
/// `shuttle` has one that does not let them go on after.
#[derive(Default)]
pub(crate) struct Mutex<T> {
    state: parking_lot::Mutex<T>,
    looked_at: AtomicBool,
}

pub(crate) struct Locked<'a, T> {
    state: Option<parking_lot::MutexGuard<'a, T>>,
    looked_at: &'a AtomicBool,
}

impl<T> From<T> for Mutex<T> {
    fn from(state: T) -> Self {
        Self { state: state.into(), looked_at: AtomicBool::default() }
    }
}

impl<T> Mutex<T> {
    pub(crate) fn lock(&self) -> Locked<'_, T> {
        others_may_go_on(&self.looked_at);
        let state = self.state.try_lock().expect("no task goes on while it is locked");
        Locked { state: Some(state), looked_at: &self.looked_at }
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        self.state = None;
        if !std::thread::panicking() {
            others_may_go_on(self.looked_at);
        }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.state.as_ref().expect("until it is dropped")
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.state.as_mut().expect("until it is dropped")
    }
}

/// A mutex under which other tasks may go on: its users lock another one under it.
#[derive(Default)]
pub(crate) struct OuterMutex<T>(shuttle::sync::Mutex<T>);

impl<T> OuterMutex<T> {
    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        // Once a test has panicked, the state that it left does not matter.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T> From<T> for OuterMutex<T> {
    fn from(state: T) -> Self {
        Self(shuttle::sync::Mutex::new(state))
    }
}

/// Every look at one of `shuttle`'s atomics is a scheduling point.
fn others_may_go_on(looked_at: &AtomicBool) {
    looked_at.load(Ordering::SeqCst);
}
