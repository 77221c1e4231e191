//! C10 for the watchdog alone: its thread stands still, and all others run.
//!
//! One thread of a process cannot be stopped alone. But a program's `tracing` subscriber runs on
//! whichever thread has an event, and this one blocks the watchdog's. (C9, where the user's
//! runtime is blocked and the watchdog runs, is in `leases.rs`.)

use std::fmt::Debug;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::*;

/// A client's thread that has an event about the lock of this name waits for [`GATE`].
const TRIGGER: &str = "trigger";

const LEASE: Duration = ms(1_800);

static GATE: Mutex<()> = Mutex::new(());
static BLOCKED: AtomicBool = AtomicBool::new(false);

struct Blocker;

impl<S: Subscriber> Layer<S> for Blocker {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut about = About(false);
        event.record(&mut about);
        if about.0 && thread::current().name() == Some("redlatch") {
            BLOCKED.store(true, Ordering::Relaxed);
            drop(GATE.lock());
        }
    }
}

/// Whether an event is about the trigger.
struct About(bool);

impl Visit for About {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 |= field.name() == "name" && format!("{value:?}") == TRIGGER;
    }
}

pub(super) fn child(url: &str) {
    let subscriber = tracing_subscriber::registry().with(Blocker);
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
    let runtime = workers();
    let (guard, trigger, other) = runtime.block_on(async {
        let client = client_with(url, LEASE).await;
        let guard = hold(&client.lock("starved")).await;
        renewed(&guard).await;
        let trigger = hold(&client.lock(TRIGGER)).await;
        (Arc::new(guard), trigger, client_with(url, MINUTE).await.lock("starved"))
    });
    let gate = GATE.lock().unwrap();
    drop(trigger);
    block_until("the watchdog's thread is blocked", SOON, || BLOCKED.load(Ordering::Relaxed));
    assert!(!guard.is_lost(), "lost before the watchdog was blocked");
    child::say("blocked");

    let next = runtime.spawn(async move {
        let guard = other.lock().await.expect("its turn");
        (Instant::now(), guard)
    });
    let awaited = Arc::clone(&guard);
    let told = runtime.spawn(async move { awaited.lost().await });
    // The user's own thread, which runs all the time.
    let mut believed = None;
    while !next.is_finished() {
        let now = Instant::now();
        if !guard.is_lost() {
            believed = Some(now);
        }
        thread::sleep(ms(1));
    }
    let (granted, next) = runtime.block_on(next).unwrap();
    let believed = believed.expect("it was believed until its deadline");
    assert!(believed < granted, "two believed in it for {:?}", believed - granted);
    assert!(guard.is_lost(), "two believe in it");
    // Nobody but the runtime's own timer can have told.
    runtime.block_on(soon("the loss", told)).unwrap();
    child::say("lost in time");

    drop(gate);
    let guard = Arc::into_inner(guard).expect("the only one");
    runtime.block_on(async {
        let error = soon("unlocking", guard.unlock()).await.expect_err("the lock is another's");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(!next.is_lost());
        release(next).await;
    });
    child::say("given back");
}

#[test]
fn c10_a_starved_watchdog_costs_the_lock_before_another_has_it() {
    undisturbed(ms(100), starve_the_watchdog);
}

fn starve_the_watchdog() {
    let server = Server::start();
    let mut child = start_child(&format!("starved {}", server.url()));
    child.hear_that("blocked");
    // It is not renewed any more, so what is left only falls.
    let mut last = i64::MAX;
    block_until("the end of the lease", SOON, || {
        let left = server.pttl("starved");
        let ended = !(0..=LEASE.as_millis() as i64).contains(&left);
        assert!(ended || left <= last, "renewed by a thread that stands still");
        last = left;
        ended
    });
    child.hear_that("lost in time");
    child.hear_that("given back");
    assert!(child.ended().success());
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}
