//! C5, C6: a guard is dropped where nobody can do anything for it: no runtime, a runtime that
//! has ended, a thread that ends, a stack that unwinds.

use std::cell::RefCell;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};

use super::*;

/// A guard that only its runtime ever made something for. Its lease is longer than any test.
fn guard_of(runtime: &Runtime, url: &str, name: &str) -> LockGuard {
    runtime.block_on(async { hold(&client_with(url, MINUTE).await.lock(name)).await })
}

fn freed(server: &Server, name: &str) {
    block_until("a free lock", SOON, || !server.exists(name));
}

/// Drops a guard while its server stands still, so that a drop which waited for anything from
/// there would not return.
fn drop_without_an_answer(server: &Server, guard: LockGuard) {
    let (dropped, done) = mpsc::channel();
    server.pause();
    let dropping = thread::spawn(move || {
        drop(guard);
        let _ = dropped.send(());
    });
    let done = done.recv_timeout(SOON);
    server.resume();
    done.expect("a drop waits for Redis, or panics");
    dropping.join().expect("a drop that does not panic");
}

#[test]
fn c5_a_guard_dropped_after_its_runtime_ended_frees_the_lock_and_blocks_nobody() {
    let server = Server::start();
    for (name, background) in [("dropped", false), ("shut down", true)] {
        let workers = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (kept, watched) = (guard_of(&workers, &server.url(), name), format!("{name}: moved"));
        let moved = guard_of(&workers, &server.url(), &watched);
        // One more guard goes with its task, in the middle of the shutdown.
        let (gone, ended) = mpsc::channel::<()>();
        let task = workers.spawn(async move {
            let _both = (gone, moved);
            std::future::pending::<()>().await;
        });
        let start = Instant::now();
        if background {
            workers.shutdown_background();
        } else {
            drop(workers);
        }
        assert!(ended.recv_timeout(SOON).is_err(), "nothing is ever sent");
        block_until("the end of the task", SOON, || task.is_finished());
        assert!(start.elapsed() < SOON);
        freed(&server, &watched);
        assert!(server.exists(name), "the runtime's end is not the guard's");
        drop_without_an_answer(&server, kept);
        freed(&server, name);
    }
}

#[test]
fn c6_a_guard_dropped_inside_another_runtime_frees_the_lock() {
    let server = Server::start();
    let (first, second) = (runtime(), runtime());
    let [block_on, spawned, entered, blocking] = ["block_on", "spawned", "entered", "blocking"]
        .map(|name| {
            let guard = guard_of(&first, &server.url(), name);
            (name, guard)
        });
    drop(first);
    second.block_on(async { drop(block_on.1) });
    freed(&server, block_on.0);
    second.block_on(async {
        tokio::spawn(async move { drop(spawned.1) }).await.unwrap();
        tokio::task::spawn_blocking(move || drop(blocking.1)).await.unwrap();
    });
    freed(&server, spawned.0);
    freed(&server, blocking.0);
    let _context = second.enter();
    drop(entered.1);
    freed(&server, entered.0);
}

/// Says whether its guard was dropped by unwinding.
struct Unwound {
    guard: Option<LockGuard>,
    seen: mpsc::Sender<bool>,
}

impl Drop for Unwound {
    fn drop(&mut self) {
        let _ = self.seen.send(thread::panicking());
        drop(self.guard.take());
        // A panic in here would have ended the process.
        let _ = self.seen.send(thread::panicking());
    }
}

/// How bad it is for a guard at the moment at which it is dropped.
const TROUBLES: [&str; 6] = ["none", "no runtime", "closed", "lost", "cut off", "server gone"];

#[test]
fn c6_a_guard_dropped_while_unwinding_never_panics_whatever_else_is_wrong() {
    for trouble in TROUBLES {
        let (server, proxy) = proxied();
        let runtime = runtime();
        let client = runtime.block_on(client_with(proxy.url(&server), MINUTE));
        let lease = if trouble == "lost" { ms(500) } else { MINUTE };
        let lock = client.lock("unwound");
        let guard = runtime.block_on(soon("locking", lock.lock_with_lease(lease))).unwrap();
        let mut runtime = Some(runtime);
        match trouble {
            "no runtime" => drop(runtime.take()),
            "closed" => runtime.as_ref().unwrap().block_on(client.close()),
            "lost" => block_until("the loss", SOON, || guard.is_lost()),
            "cut off" => {
                proxy.refuse(true);
                proxy.cut_all();
            }
            "server gone" => server.kill(),
            _ => {}
        }
        let (seen, sights) = mpsc::channel();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _unwound = Unwound { guard: Some(guard), seen };
            // Without the hook's noise in the output of the tests.
            resume_unwind(Box::new("a panic of the user's"));
        }));
        assert!(panicked.is_err());
        assert_eq!(sights.iter().collect::<Vec<_>>(), [true, true], "{trouble}: not unwinding");
        match trouble {
            "server gone" => server.start_again(),
            _ => proxy.refuse(false),
        }
        freed(&server, "unwound");
    }
}

thread_local! {
    static KEPT: RefCell<Vec<Last>> = const { RefCell::new(Vec::new()) };
}

/// Kept by a thread until it ends.
struct Last {
    guard: Option<LockGuard>,
    then: Box<dyn Fn()>,
}

impl Drop for Last {
    fn drop(&mut self) {
        drop(self.guard.take());
        (self.then)();
    }
}

#[test]
fn c6_a_guard_dropped_with_its_threads_locals_blocks_nobody_lost_or_not() {
    let server = Server::start();
    let runtime = runtime();
    let guard = guard_of(&runtime, &server.url(), "local");
    let lost = runtime.block_on(async {
        let lock = connect(&server).await.lock("lost");
        let guard = lock.lock_with_lease(ms(500)).await.unwrap();
        soon("the loss", guard.lost()).await;
        guard
    });
    server.pause();
    let (dropped, drops) = mpsc::channel();
    let ending = thread::spawn(move || {
        for guard in [guard, lost] {
            let dropped = dropped.clone();
            let then = Box::new(move || {
                let _ = dropped.send(thread::panicking());
            });
            KEPT.with_borrow_mut(|kept| kept.push(Last { guard: Some(guard), then }));
        }
    });
    let drops = [drops.recv_timeout(SOON), drops.recv_timeout(SOON)];
    server.resume();
    assert_eq!(drops, [Ok(false), Ok(false)]);
    ending.join().unwrap();
    freed(&server, "local");
    freed(&server, "lost");
}

/// Exits while a local of its thread has a guard: the C library runs the destructor from `exit`.
pub(super) fn child(url: &str) {
    let runtime = runtime();
    let guard = runtime.block_on(hold_for(url, "exit", "renewed", ms(1_800)));
    let then = Box::new(|| child::say("dropped"));
    KEPT.with_borrow_mut(|kept| kept.push(Last { guard: Some(guard), then }));
    child::say("held");
    child::hear();
    std::process::exit(7);
}

#[test]
#[cfg(target_os = "linux")]
fn c6_a_guard_dropped_by_a_destructor_during_exit_does_no_harm() {
    let server = Server::start();
    let mut exiting = start_child(&format!("exiting {}", server.url()));
    exiting.hear_that("held");
    assert!(server.exists("exit"));
    exiting.say("go");
    exiting.hear_that("dropped");
    assert_eq!(exiting.ended().code(), Some(7));
    // It had no time for a release, or just enough: the lease sees to the rest.
    freed(&server, "exit");
}
