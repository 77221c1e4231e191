//! The watchdogs of both sides keep what is held, and end with their process.

use std::time::Duration;

use redlatch::LockClient;

use crate::owners::{Ask, GRAIN, Kind, MINUTE, Micros, Owner, PROMPT, now};
use crate::setup::Setup;
use crate::support::child::{self, Child};
use crate::support::{hold, ms, soon};

/// Of both sides.
const TIMEOUT: Duration = Duration::from_secs(3);

/// More than two of it.
const LONG: Duration = ms(6_500);

pub(crate) async fn keep_the_other_side_out(setup: &Setup) {
    let java = setup.another_java(TIMEOUT);
    let client = setup.client_with(TIMEOUT).await;
    let mut theirs = Owner::java(setup, &java, "holder", "watched-java");
    let mut ours = Owner::rust(setup, &client, "watched-rust");
    let mut we = Owner::rust(setup, &client, "watched-java");
    let mut they = Owner::java(setup, &java, "waiter", "watched-rust");
    theirs.takes().await;
    ours.takes().await;
    we.waits(Ask::Lock).await;
    they.waits(Ask::Lock).await;

    // Nothing must happen all that time, but renewals.
    let mut renewals = [0, 0];
    let mut last = [i64::MAX, i64::MAX];
    let start = std::time::Instant::now();
    while start.elapsed() < LONG {
        tokio::time::sleep(ms(20)).await;
        for (i, name) in ["watched-java", "watched-rust"].into_iter().enumerate() {
            let left = setup.pttl(name);
            assert!((1..=3_000).contains(&left), "{name} has {left} ms left");
            renewals[i] += u32::from(left > last[i]);
            last[i] = left;
        }
        assert!(we.is_waiting() && they.is_waiting(), "somebody got in");
    }
    assert!(renewals.iter().all(|times| *times >= 3), "renewed {renewals:?} times");

    for (holder, waiter) in [(&mut theirs, &mut we), (&mut ours, &mut they)] {
        let begun = holder.gives_back().await;
        assert!(waiter.gets().await.saturating_sub(begun) < PROMPT);
        waiter.gives_back().await;
    }
}

/// Checks that the waiter gets a lock whose holder is killed when its lease has ended, which is
/// at most a watchdog timeout later, and not by a message.
async fn outlives(setup: &Setup, name: &str, waiter: &mut Owner<'_>, kill: impl FnOnce()) {
    let before = now();
    let left = Micros::try_from(setup.pttl(name)).expect("a lease") * 1_000;
    kill();
    let killed = now();
    let got = waiter.gets().await;
    assert!(got + GRAIN >= before + left, "{} us before the end", before + left - got);
    let took = got - killed;
    let longest = Micros::try_from(TIMEOUT.as_micros()).expect("a few seconds");
    assert!(took < longest + PROMPT, "{took} us after the holder's death");
    waiter.gives_back().await;
}

pub(crate) async fn of_a_killed_java_process_end(setup: &Setup) {
    let java = setup.another_java(TIMEOUT);
    let mut holder = Owner::java(setup, &java, "holder", "killed-java");
    let mut waiter = Owner::new(setup, Kind::Rust, "", "killed-java").await;
    holder.takes().await;
    waiter.waits(Ask::Lock).await;
    outlives(setup, "killed-java", &mut waiter, || java.kill()).await;
}

pub(crate) async fn of_a_killed_rust_process_end(setup: &Setup) {
    let name = "killed-rust";
    let role = format!("hold {} {name} {}", setup.server().url(), TIMEOUT.as_millis());
    let mut holder = Child::start("", &role);
    holder.hear_that("held");
    let mut waiter = Owner::new(setup, Kind::Java, "waiter", name).await;
    waiter.waits(Ask::Lock).await;
    outlives(setup, name, &mut waiter, || holder.kill()).await;
}

/// A process of ours: `hold URL NAME WATCHDOG_MS`.
pub(crate) async fn hold_on(words: &[&str]) {
    let &[url, name, watchdog] = words else { panic!("{words:?}") };
    let watchdog = ms(watchdog.parse().expect("a number"));
    let builder = LockClient::builder().url(url).watchdog_timeout(watchdog);
    let client = soon("connecting", builder.connect()).await.expect("connecting");
    let _guard = hold(&client.lock(name)).await;
    child::say("held");
    tokio::time::sleep(MINUTE).await;
}
