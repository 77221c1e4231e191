//! C7: nobody gives the lock back, because the guard was forgotten or its process has ended.
//!
//! A lease is over when Redis says so: once the holder is dead, and while another client waits, the
//! key's PTTL is asked for all the time, and the last answer tells the moment of its end. From
//! that moment the one who waits has 50 ms. A busy machine may take longer once; it does not
//! three times in a row.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, abort, exit};
use std::time::{Duration, Instant};

use super::{hold_for, runtime, start_child, undisturbed, workers};
use crate::support::{
    SOON, Server, block_until, child, connect, ms, release, renewed, soon, within,
};

const LEASE: Duration = ms(450);

/// How late others may come, once the lease has ended.
const LATE: Duration = ms(50);

const ATTEMPTS: usize = 3;

pub(super) fn child(way: &str, lease: &str, name: &str, url: &str) {
    runtime().block_on(async {
        let guard = hold_for(url, name, lease, LEASE).await;
        if lease == "renewed" {
            renewed(&guard).await;
        }
        if way.contains("forget") {
            std::mem::forget(guard);
        }
        child::say("held");
        child::hear();
        match way {
            "exit" | "forget+exit" => exit(7),
            "abort" => abort(),
            // It lives on, and its parent ends it.
            _ => drop(child::hear()),
        }
    });
}

/// Whether `status` is the end that was to be.
fn is_end_of(way: &str, status: ExitStatus) -> bool {
    match way {
        "exit" | "forget+exit" => status.code() == Some(7),
        "abort" => status.signal() == Some(6),
        _ => status.signal() == Some(9),
    }
}

/// How long after the end of the holder's lease another client had the lock.
async fn lateness(way: &str, lease: &str) -> Duration {
    let server = Server::start();
    let others = connect(&server).await;
    let mut holder = start_child(&format!("ending {way} {lease} left {}", server.url()));
    holder.hear_that("held");
    if (way, lease) == ("forget+exit", "renewed") {
        // Whoever forgets a guard keeps the lock, as with any mutex: it is renewed for good.
        let mut last = server.pttl("left");
        block_until("a renewal for a forgotten guard", SOON, || {
            let before = std::mem::replace(&mut last, server.pttl("left"));
            before < last
        });
    }
    let waiting = others.lock("left");
    let waiting = tokio::spawn(async move {
        let guard = within(2 * SOON, "the lock", waiting.lock()).await.expect("locking");
        (Instant::now(), guard)
    });
    block_until("another waits", SOON, || server.subscribers("left") == 1);
    server.reset_stats();

    match way {
        "kill" => holder.kill(),
        _ => holder.say("go"),
    }
    if way != "forget" {
        let status = holder.ended();
        assert!(is_end_of(way, status), "{way}: {status}");
    }
    let dead = Instant::now();
    // The earliest and the latest that the key's end can be, by the last answer about it.
    let mut end = None;
    loop {
        let asked = Instant::now();
        let Ok(left) = u64::try_from(server.pttl("left")) else { break };
        // Who waits has the default lease of 30 s.
        if ms(left) > LEASE {
            break;
        }
        end = Some((asked + ms(left), Instant::now() + ms(left)));
        std::thread::sleep(ms(1));
    }
    let (earliest, latest) = end.expect("the lock outlives its holder");
    let (granted, guard) = soon("the lock", waiting).await.expect("a task that ends well");

    assert!(earliest < dead + LEASE, "{way}: renewed after its end");
    assert!(granted + ms(1) >= earliest, "{way}: two had the lock");
    // It ended by itself: nobody deleted it, and nobody was told.
    assert_eq!((server.calls("del"), server.calls("publish")), (0, 0), "{way}");
    assert!(server.ask::<String>(&["INFO", "stats"]).contains("expired_keys:1\r\n"), "{way}");
    release(guard).await;
    assert!(!server.exists("left"));
    granted.saturating_duration_since(latest)
}

fn others_are_let_in_in_time(way: &str, leases: &[&str]) {
    for lease in leases {
        undisturbed(ms(100), || {
            let mut times = Vec::new();
            while times.last().is_none_or(|late| *late > LATE) {
                assert!(times.len() < ATTEMPTS, "{way}, {lease}: let in {times:?} after the end");
                times.push(workers().block_on(lateness(way, lease)));
            }
            println!("{way}, {lease}: let in {times:?} after the end of the lease");
        });
    }
}

#[test]
fn c7_a_forgotten_guard_keeps_others_out_for_its_lease_and_no_longer() {
    others_are_let_in_in_time("forget", &["fixed"]);
    others_are_let_in_in_time("forget+exit", &["renewed"]);
}

#[test]
fn c7_a_process_that_exits_keeps_others_out_for_its_lease_and_no_longer() {
    others_are_let_in_in_time("exit", &["fixed", "renewed"]);
}

#[test]
fn c7_a_process_that_aborts_keeps_others_out_for_its_lease_and_no_longer() {
    others_are_let_in_in_time("abort", &["fixed", "renewed"]);
}

#[test]
fn c7_a_process_that_is_killed_keeps_others_out_for_its_lease_and_no_longer() {
    others_are_let_in_in_time("kill", &["fixed", "renewed"]);
}
