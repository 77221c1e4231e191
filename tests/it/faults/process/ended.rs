//! C7: nobody gives the lock back, because the guard was forgotten or its process has ended. The lock
//! ends by itself then. That others have it no later is in `tests/world/leases.rs`.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, abort, exit};

use super::*;

const LEASE: Duration = ms(1_800);

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

async fn others_are_let_in(way: &str, lease: &str) {
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
        within(2 * SOON, "the lock", waiting.lock()).await.expect("locking")
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
    let guard = soon("the lock", waiting).await.expect("a task that ends well");
    // It ended by itself: nobody deleted it, and nobody was told.
    assert_eq!((server.calls("del"), server.calls("publish")), (0, 0), "{way}, {lease}");
    assert_eq!(server.info("expired_keys").as_deref(), Some("1"), "{way}, {lease}");
    release(guard).await;
    assert!(!server.exists("left"));
}

#[test]
fn c7_a_forgotten_guard_keeps_others_out_for_its_lease() {
    for (way, lease) in [("forget", "fixed"), ("forget+exit", "renewed")] {
        undisturbed(ms(100), || workers().block_on(others_are_let_in(way, lease)));
    }
}

#[test]
fn c7_a_process_that_ended_in_any_way_keeps_others_out_for_its_lease() {
    for way in ["exit", "abort", "kill"] {
        for lease in ["fixed", "renewed"] {
            undisturbed(ms(100), || workers().block_on(others_are_let_in(way, lease)));
        }
    }
}
