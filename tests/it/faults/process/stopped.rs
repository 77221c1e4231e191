//! C11, and C10 for a process that stands still as a whole: SIGSTOP past the lease, while another
//! client takes the lock.
//!
//! Redis stands still as well when the process goes on. So whatever it says first about its lock
//! it knows by itself.

use super::*;

const LEASE: Duration = ms(1_350);

/// The first thing that the user's code does after the stop.
const LOOKS: [&str; 5] = ["is_lost", "remaining", "lost", "value", "parked"];

pub(super) fn child(look: &str, lease: &str, name: &str, url: &str) {
    runtime().block_on(async {
        child::hear();
        let guard = hold_for(url, name, lease, LEASE).await;
        if lease == "renewed" {
            renewed(&guard).await;
        }
        assert!(!guard.is_lost(), "lost before the stop");
        child::say("held");
        // Stopped in here, in the middle of the user's code.
        let lost = first_look(look, &guard).await;
        child::say(if lost { "lost" } else { "held still" });

        child::hear();
        if lease == "renewed" {
            drop(guard);
            child::say("dropped");
        } else {
            let error = guard.unlock().await.expect_err("the lock is another's");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            child::say("refused");
        }
        // Lives on, so that a release that ought not to be sent would be.
        child::hear();
    });
}

async fn first_look(look: &str, guard: &LockGuard) -> bool {
    let is_lost = |error: Error| error.kind() == ErrorKind::Lost;
    match look {
        // Ready in the poll that the stop was in.
        "value" => guard.run_until_lost(async { child::hear() }).await.is_err_and(is_lost),
        "parked" => {
            let (heard, hears) = tokio::sync::oneshot::channel();
            thread::spawn(move || heard.send(child::hear()));
            guard.run_until_lost(hears).await.is_err_and(is_lost)
        }
        _ => {
            child::hear();
            match look {
                "is_lost" => guard.is_lost(),
                "remaining" => guard.remaining().is_zero(),
                "lost" => futures::poll!(Box::pin(guard.lost())).is_ready(),
                _ => panic!("no such look: {look}"),
            }
        }
    }
}

async fn it_knows_that_it_is_lost(lease: &str) {
    let server = Server::start();
    let client = connect(&server).await;
    let mut children = LOOKS.map(|look| {
        (look, start_child(&format!("stopped {look} {lease} {look} {}", server.url())))
    });
    for (look, child) in &mut children {
        child.say("take it");
        child.hear_that("held");
        child.stop();
        assert!(server.exists(look), "{look}: stopped too late");
    }
    let mut guards = Vec::new();
    for look in LOOKS {
        guards.push(hold(&client.lock(look)).await);
    }
    server.pause();
    for (look, child) in &mut children {
        // It hears this when it goes on.
        child.say("look");
        child.go_on();
        assert_eq!(child.hear(), "lost", "{look}");
    }
    server.resume();
    for (_, child) in &mut children {
        child.say("give it back");
        child.hear_that(if lease == "renewed" { "dropped" } else { "refused" });
    }
    // Time for a release that ought not to be sent.
    std::thread::sleep(ms(100));
    for guard in guards {
        assert!(!guard.is_lost());
        assert_eq!(server.holds(guard.name()).into_keys().collect::<Vec<_>>(), [guard.owner()]);
        release(guard).await;
    }
    drop(children);
    block_until("free locks", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0);
}

#[test]
fn c11_a_process_stopped_past_its_lease_knows_that_it_is_lost_before_it_can_ask() {
    for lease in ["fixed", "renewed"] {
        undisturbed(ms(100), || workers().block_on(it_knows_that_it_is_lost(lease)));
    }
}
