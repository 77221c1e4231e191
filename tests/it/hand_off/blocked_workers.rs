//! W10: the workers of the user's runtime are blocked at the moment of a hand-off, for longer than
//! the watchdog timeout.
//!
//! A client has a thread of its own that tells Redis of hand-offs. So the new holder keeps the lock,
//! however many workers are blocked; and a waiter that cannot run meanwhile gets a lock that is held,
//! when it runs at last.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

use super::*;

const WORKERS: usize = 3;

/// Renewed in time at the largest distance, where a renewal may take three round trips, on a busy
/// machine.
const TIMEOUT: Duration = ms(2_400);

/// For how long a worker is blocked.
const BLOCKED: Duration = ms(4_000);

fn workers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .expect("a runtime with workers")
}

/// Blocks so many workers of the runtime until the sender is dropped.
fn block(runtime: &Runtime, many: usize) -> mpsc::Sender<()> {
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(std::sync::Mutex::new(ended));
    let (begun, begins) = mpsc::channel();
    for _ in 0..many {
        let (ended, begun) = (ended.clone(), begun.clone());
        runtime.spawn(async move {
            begun.send(()).expect("the test waits");
            // The first has the receiver, and the others wait for the first.
            let _ = ended.lock().expect("no test panics there").recv();
        });
    }
    for _ in 0..many {
        begins.recv_timeout(SOON).expect("a worker that is free");
    }
    end
}

fn owners(server: &Server, name: &str) -> Vec<String> {
    server.holds(name).into_keys().collect()
}

/// The first waiter of this server is parked: subscribed, refused once more, and at rest.
fn until_parked(server: &Server, name: &str, round_trip: Duration) {
    block_until("it is subscribed", SOON, || server.subscribers(name) == 1);
    block_until("it has asked once more", SOON, || server.calls("evalsha") >= 3);
    // The answer comes.
    thread::sleep(2 * round_trip + ms(600));
}

/// The old holder gives the lock back in a worker, to a waiter that blocks its worker as soon as it
/// has the lock. Other workers are blocked before, so that it is so many in all.
///
/// An `unlock` hands it on with a default lease, which has to be renewed; a drop with a longer one, of
/// which Redis has to hear.
fn the_new_holder_blocks(round_trip: Duration, blocked: usize, unlocks: bool) {
    let server = &Server::start();
    let name = format!("blocks:{blocked}:{unlocks}");
    let network = Network::new(server, Distance::round_trip(round_trip));
    let runtime = workers();
    let (old, new): (Lock, Lock) = runtime.block_on(async {
        let client = client_with(network.url(server), TIMEOUT).await;
        (client.lock(&name), client.lock(&name))
    });
    let guard = runtime.block_on(hold(&old));
    let owner = guard.owner().to_owned();
    let (entered, enters) = mpsc::channel();
    let next = runtime.spawn(async move {
        let guard = if unlocks { new.lock().await } else { new.lock_with_lease(MINUTE).await };
        let guard = guard.expect("the lock");
        entered.send(()).expect("the test waits");
        thread::sleep(BLOCKED);
        let lost = guard.is_lost();
        (lost, guard.unlock().await)
    });
    until_parked(server, &name, round_trip);
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let (said, says) = mpsc::channel();
    runtime.spawn(async move {
        gone.await.expect("the test goes on");
        if unlocks {
            let _ = said.send(guard.unlock().await);
        } else {
            drop(guard);
            let _ = said.send(Ok(()));
        }
    });
    assert_eq!(owners(server, &name), [&*owner]);
    let others = block(&runtime, blocked - 1);
    go.send(()).expect("the old holder waits");
    let begun = Instant::now();
    enters.recv_timeout(SOON).expect("a hand-off");
    // From here on so many workers are blocked.
    if !unlocks {
        let longer = TIMEOUT.as_millis() as i64;
        block_until("Redis has heard of it", TIMEOUT, || server.pttl(&name) > longer);
    }
    let elsewhere = self::runtime();
    let stranger = elsewhere.block_on(client_with(server.url(), TIMEOUT));
    // The holder gives it back when it is not blocked any more: what this thread saw after that says
    // nothing.
    let mut seen = 0;
    loop {
        let has = owners(server, &name);
        let free = elsewhere.block_on(is_free(&stranger, &name));
        let finished = next.is_finished();
        if begun.elapsed() >= BLOCKED {
            break;
        }
        assert!(has.iter().eq([&owner]), "{blocked} blocked: it was lost to {has:?}");
        assert!(!free, "{blocked} blocked: others have it");
        assert!(!finished, "the worker was not blocked");
        seen += 1;
        thread::sleep(ms(20));
    }
    assert!(seen > 0, "{blocked} blocked: the machine was busy for {BLOCKED:?}");
    drop(others);
    let (lost, unlocked) = runtime.block_on(soon("the new holder", next)).expect("no panic");
    assert!(!lost, "{blocked} blocked: lost");
    unlocked.expect("the new holder unlocks");
    let unlocked = says.recv_timeout(SOON).expect("the old holder unlocks");
    assert!(unlocked.is_ok(), "{blocked} blocked: the old holder is told {unlocked:?}");
    block_until("nothing is left", SOON, || !server.exists(&name));
}

fn new_holders_block(round_trip: Duration) {
    thread::scope(|scope| {
        for blocked in 1..=WORKERS {
            for unlocks in [true, false] {
                scope.spawn(move || the_new_holder_blocks(round_trip, blocked, unlocks));
            }
        }
    });
}

#[test]
fn w10_a_hand_off_to_a_holder_that_blocks_its_worker_is_told_on_loopback() {
    let _quiet = machine::quiet();
    new_holders_block(Duration::ZERO);
}

#[test]
fn w10_a_hand_off_to_a_holder_that_blocks_its_worker_is_told_at_100_ms() {
    let _quiet = machine::quiet();
    new_holders_block(ms(100));
}

/// All workers are blocked while the waiter that was handed the lock waits for one. The old holder
/// blocks one of them itself, behind the drop of its guard, or is `elsewhere`.
fn the_waiter_cannot_run(round_trip: Duration, elsewhere: bool) {
    let server = &Server::start();
    let name = format!("cannot run:{}:{elsewhere}", round_trip.as_millis());
    let network = Network::new(server, Distance::round_trip(round_trip));
    let runtime = workers();
    let client = runtime.block_on(client_with(network.url(server), TIMEOUT));
    let (old, new) = (client.lock(&name), client.lock(&name));
    let another = self::runtime();
    let of_old = if elsewhere { &another } else { &runtime };
    let guard = of_old.block_on(hold(&old));
    let (has, had) = mpsc::channel();
    let next = runtime.spawn(async move {
        let guard: LockGuard = new.lock().await.expect("the lock");
        has.send(()).expect("the test waits");
        let lost = guard.is_lost();
        (lost, guard.unlock().await)
    });
    until_parked(server, &name, round_trip);
    let (end, ended) = mpsc::channel::<()>();
    let begun = Instant::now();
    // For a little longer than the old holder: nobody can take the waiter over.
    let others = block(&runtime, if elsewhere { WORKERS } else { WORKERS - 1 });
    if elsewhere {
        let unlocked = another.block_on(soon("unlocking", guard.unlock()));
        assert!(unlocked.is_ok(), "the old holder is told {unlocked:?}");
    } else {
        let (dropped, drops) = mpsc::channel();
        runtime.spawn(async move {
            drop(guard);
            dropped.send(()).expect("the test waits");
            let _ = ended.recv();
        });
        drops.recv_timeout(SOON).expect("a drop");
    }
    thread::sleep(BLOCKED.saturating_sub(begun.elapsed()));
    assert!(had.try_recv().is_err(), "the waiter could run");
    drop((end, others));
    let (lost, unlocked) = runtime.block_on(soon("the waiter", next)).expect("no panic");
    assert!(!lost, "{round_trip:?}, {elsewhere}: it got a lock that was lost");
    unlocked.expect("the new holder unlocks");
    block_until("nothing is left", SOON, || !server.exists(&name));
    // The old holder's handle is of use, too.
    runtime.block_on(async { release(hold(&old).await).await });
}

#[test]
fn w10_a_waiter_that_cannot_run_gets_a_lock_that_is_held_when_it_can() {
    let _quiet = machine::quiet();
    thread::scope(|scope| {
        for round_trip in [Duration::ZERO, ms(2), ms(100)] {
            for elsewhere in [false, true] {
                scope.spawn(move || the_waiter_cannot_run(round_trip, elsewhere));
            }
        }
    });
}
