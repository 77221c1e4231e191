//! Rows C, W14 and W19: the client's process, its runtimes and its threads.
//!
//! What needs a process of its own runs in a child, which is this binary again with [`the_child`]
//! as its only test. C1 and C2 are in `cancellation`, C3 and C15 in `tests/world`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::*;

mod clocks;
mod ended;
mod exhausted;
mod forked;
mod no_runtime;
mod starved;
mod stopped;

fn start_child(role: &str) -> Child {
    Child::start("faults::process::the_child", role)
}

#[test]
fn the_child() {
    let Some(role) = child::role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["ending", way, lease, name, url] => ended::child(way, lease, name, url),
        ["exiting", url] => no_runtime::child(url),
        ["stopped", look, lease, name, url] => stopped::child(look, lease, name, url),
        ["starved", url] => starved::child(url),
        ["jumping", url] => clocks::child(url),
        ["exhausted", url] => exhausted::child(url),
        ["forking", way, url] => forked::child(way, url),
        _ => panic!("no such role: {role}"),
    }
}

/// Runs a case that is a matter of time. If it fails while the machine itself stood still for
/// more than `limit`, nobody knows whose fault that was, and it is run again.
fn undisturbed(limit: Duration, case: impl Fn()) {
    const ATTEMPTS: usize = 5;
    let _quiet = machine::quiet();
    for attempt in 1..=ATTEMPTS {
        let end = Arc::new(AtomicBool::new(false));
        let pulse = {
            let end = Arc::clone(&end);
            thread::spawn(move || {
                let mut longest = Duration::ZERO;
                while !end.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    thread::sleep(ms(2));
                    longest = longest.max(start.elapsed());
                }
                longest
            })
        };
        let failed = catch_unwind(AssertUnwindSafe(&case));
        end.store(true, Ordering::Relaxed);
        let longest = pulse.join().expect("a thread that sleeps");
        match failed {
            Ok(()) => return,
            Err(_) if longest > limit && attempt < ATTEMPTS => {
                println!("the machine stood still for {longest:?}: once more");
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// "fixed" for a lease that is never renewed, else one that is.
fn lease_of(word: &str, lease: Duration) -> Lease {
    if word == "fixed" { Lease::Fixed(lease) } else { Lease::Watchdog }
}

/// The free lock `name` of a new client, for `lease`, which is the watchdog timeout as well.
async fn hold_for(url: &str, name: &str, word: &str, lease: Duration) -> LockGuard {
    let lock = client_with(url, lease).await.lock(name);
    let taken = soon("locking", lock.try_lock(ms(0), lease_of(word, lease))).await;
    taken.expect("locking").expect("a free lock")
}
