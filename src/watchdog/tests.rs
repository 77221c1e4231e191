//! Callers that put handles on the schedule and the driver that takes them off, under many
//! schedules. No time passes: a start that was overlooked is not made good by the next look.

use shuttle::future::{block_on, spawn, yield_now};
use tokio::sync::Semaphore;

use super::*;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::possession::Possessions;
use crate::protocol::Names;
use crate::token::TokenBlock;

use crate::tests::explore::{explore, fault, some_time};
use crate::tests::parts::losses;

const HOUR: Duration = Duration::from_secs(3600);

/// How callers notify the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InsertIf {
    AsItIs,
    /// A fault: only if it waits at that moment.
    IfItWaits,
    /// A fault: only if no handle is on the schedule.
    IfItIdles,
}

fn handle() -> Arc<Handle> {
    let names = Arc::new(Names::new("", "lock"));
    Arc::new(Handle::new(Kind::Reentrant, names, &Possessions::default()))
}

fn insert(watchdog: &Watchdog, handle: &Arc<Handle>, due: Instant, when: InsertIf) {
    match when {
        InsertIf::AsItIs => watchdog.insert(handle, due),
        InsertIf::IfItWaits => {
            if watchdog.schedule.lock().insert(due, handle) {
                watchdog.changed.notify_waiters();
            }
        }
        InsertIf::IfItIdles => {
            let mut schedule = watchdog.schedule.lock();
            let idles = schedule.len() == 0;
            schedule.insert(due, handle);
            drop(schedule);
            if idles {
                watchdog.changed.notify_one();
            }
        }
    }
}

/// Until every handle that is due has had its turn, and as often as it is due.
async fn play(when: InsertIf) {
    const CALLERS: u32 = 3;
    let watchdog = Arc::new(Watchdog::new(&Config::default(), losses(Arc::default())));
    let turns = Arc::new(Semaphore::new(0));

    let (driven, seen) = (watchdog.clone(), turns.clone());
    spawn(async move {
        loop {
            for _handle in driven.due().await {
                seen.add_permits(1);
                yield_now().await;
            }
        }
    });

    let now = Instant::now();
    let (later, latest) = (handle(), handle());
    for caller in 0..CALLERS {
        let (watchdog, later, latest) = (watchdog.clone(), later.clone(), latest.clone());
        spawn(async move {
            let handle = handle();
            some_time().await;
            if caller == 0 {
                insert(&watchdog, &latest, now + 2 * HOUR, when);
                insert(&watchdog, &later, now + HOUR, when);
            }
            insert(&watchdog, &handle, now, when);
            yield_now().await;
            insert(&watchdog, &handle, now, when);
            // A handle that goes need not be seen.
            std::mem::forget(handle);
        });
    }
    drop(turns.acquire_many(2 * CALLERS).await);
    assert_eq!(watchdog.schedule.lock().len(), 2, "who is not due stays");
}

#[test]
fn whoever_is_due_gets_a_turn_under_every_schedule() {
    explore(16_000, || block_on(play(InsertIf::AsItIs)));
}

#[test]
fn a_start_that_is_told_only_to_a_driver_that_waits_is_seen_to_be_lost() {
    let said = fault(|| block_on(play(InsertIf::IfItWaits)));
    assert!(said.contains("deadlock"), "{said}");
}

#[test]
fn a_start_that_is_told_only_to_a_driver_that_idles_is_seen_to_be_lost() {
    let said = fault(|| block_on(play(InsertIf::IfItIdles)));
    assert!(said.contains("deadlock"), "{said}");
}

/// The client's thread looks at a handle that is due while a call of it has yet to ask for its next possession.
#[test]
fn a_handle_that_is_due_between_two_possessions_is_watched_again() {
    let possessions = Arc::new(Possessions::default());
    let names = Arc::new(Names::new("", "lock"));
    let (handle, now) = (Handle::new(Kind::Reentrant, names, &possessions), clock::now());
    let acquire = |possession: &Arc<Possession>| {
        let ask = handle.asks_for(possession).expect("it holds no other");
        let (lease, tokens) = (Lease::Watchdog, TokenBlock::default());
        let (hold, ..) = possession.holds.lock().record_grant(ask, lease, HOUR, tokens, now);
        (hold, handle.start_watching())
    };
    let first = handle.begins(&possessions);
    let (hold, due) = acquire(&first);
    assert!(due.is_some());
    {
        let mut holds = first.holds.lock();
        holds.give_back(hold);
        let pending = holds.pending(now, HOUR).expect("a release");
        holds.release_confirmed(pending);
    }
    let next = handle.begins(&possessions);
    assert!(handle.renewal(now, HOUR, Duration::MAX).is_none());
    let (_, due) = acquire(&next);
    assert!(due.is_some(), "the watchdog renews it");
}
