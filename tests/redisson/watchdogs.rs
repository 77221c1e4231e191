//! The watchdogs of both sides keep what is held, and end with their process.

use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::parties::{Kind, Micros, PROMPT, Party, assert_at_the_end, now, tagged};
use crate::setup::Setup;
use crate::sides::Side;
use crate::support::child::{self, Child};
use crate::support::{MINUTE, SOON, client_with, hold, ms, wait_until};

/// Of both sides.
const TIMEOUT: Duration = Duration::from_secs(3);

/// More than two of it.
const LONG: Duration = ms(6_500);

pub(crate) async fn keep_the_other_side_out(setup: &Setup) {
    let java = setup.another_java(TIMEOUT);
    let client = setup.client_with(TIMEOUT).await;
    let theirs = |thread, name| Party::java(setup, &java, thread, name);
    let ours = |name| Party::rust(setup, &client, name);
    let names = ["java-has", "rust-has", "java-writes", "rust-writes", "both-read"];
    let [java_has, rust_has, java_writes, rust_writes, both_read] = names;
    let mut held = [
        (theirs("holder", java_has), Side::Plain),
        (ours(rust_has), Side::Plain),
        (theirs("writer", java_writes), Side::Write),
        (ours(rust_writes), Side::Write),
        (theirs("reader", both_read), Side::Read),
        (ours(both_read), Side::Read),
    ];
    for (holder, side) in &mut held {
        holder.takes(*side).await;
    }
    let mut waiting = [
        (ours(java_has), Side::Plain),
        (theirs("waiter.1", rust_has), Side::Plain),
        (ours(java_writes), Side::Read),
        (theirs("waiter.2", rust_writes), Side::Read),
        (theirs("waiter.3", both_read), Side::Write),
        (ours(both_read), Side::Write),
    ];
    for (waiter, side) in &mut waiting {
        waiter.waits(*side).await;
    }

    // Nothing must happen all that time, but renewals.
    let start = Instant::now();
    let (mut renewals, mut last) = ([0; 5], [i64::MAX; 5]);
    while start.elapsed() < LONG {
        tokio::time::sleep(ms(20)).await;
        for (i, name) in names.into_iter().enumerate() {
            let left = setup.pttl(name);
            assert!((1..=3_000).contains(&left), "{name} has {left} ms left");
            renewals[i] += u32::from(left > last[i]);
            last[i] = left;
        }
        for marker in setup.keys().iter().filter(|key| key.contains("rwlock_timeout")) {
            let left = setup.pttl(marker);
            assert!((1..=3_000).contains(&left), "{marker} has {left} ms left");
        }
        assert!(waiting.iter().all(|(waiter, _)| waiter.is_waiting()), "somebody got in");
    }
    assert!(renewals.iter().all(|times| *times >= 3), "renewed {renewals:?} times");

    let mut begun = 0;
    for (holder, side) in &mut held {
        begun = holder.gives_back(*side).await;
    }
    let served = waiting.iter_mut().map(async |(waiter, side)| {
        let took = waiter.gets().await.saturating_sub(begun);
        // Two want to write what both sides read.
        assert!(*side == Side::Write || took < PROMPT, "{took} us");
        waiter.gives_back(*side).await;
    });
    join_all(served).await;
}

/// A process of each side dies that has locks. Whoever waits for one gets it when its lease has ended, which is at most a
/// watchdog timeout later, and not by a message.
pub(crate) async fn end_with_their_process(setup: &Setup) {
    let (plain, writes, reads, ours) = ("java-had", "java-wrote", "java-read", "rust-had");
    let java = setup.another_java(TIMEOUT);
    let role = format!("hold {} {ours} {}", setup.server().url(), TIMEOUT.as_millis());
    let mut rust = Child::start("", &role);
    rust.hear_that("held");
    // The reader in Java is not the only one. Its watchdog sets the lease of them all.
    let mut lives = Party::rust(setup, &setup.client_with(TIMEOUT).await, reads);
    lives.takes(Side::Read).await;
    let mut dies = Vec::new();
    for (name, side) in [(plain, Side::Plain), (writes, Side::Write), (reads, Side::Read)] {
        let mut party = Party::java(setup, &java, name, name);
        party.takes(side).await;
        dies.push(party.field(side).await);
    }
    let field = &dies[2];
    let marker = format!("{}:{field}:rwlock_timeout:1", tagged(reads));
    let has_reader = || setup.ask_at::<bool>(reads, &["HEXISTS", reads, field]);
    assert!(setup.pttl(&marker) > 0 && has_reader());
    let mut waiting = Vec::new();
    for (name, kind, side) in [
        (plain, Kind::Rust, Side::Plain),
        (ours, Kind::Java, Side::Plain),
        (writes, Kind::Rust, Side::Read),
        (reads, Kind::Rust, Side::Write),
    ] {
        let mut waiter = Party::new(setup, kind, "waiter", name).await;
        waiter.waits(side).await;
        waiting.push((waiter, side, name));
    }
    java.kill();
    rust.kill();
    let ends = [plain, ours, writes, &marker].map(|key| {
        let asked = now();
        asked + Micros::try_from(setup.pttl(key)).expect("a lease") * 1_000
    });
    let (mut writer, ..) = waiting.pop().expect("who waits for the readers");
    let others = waiting.iter_mut().zip(ends).map(async |((waiter, side, name), end)| {
        assert_at_the_end(name, waiter.gets().await, end, end);
        waiter.gives_back(*side).await;
    });
    // A reader that is dead holds up a writer for its own lease, and not for that of the readers beside it.
    let among_readers = async {
        wait_until("the writer takes it out", SOON, || !has_reader()).await;
        assert_at_the_end(reads, now(), ends[3], ends[3]);
        assert!(writer.is_waiting() && lives.is_locked(Side::Read).await, "we still read");
        let begun = lives.gives_back(Side::Read).await;
        let took = writer.gets().await.saturating_sub(begun);
        assert!(took < PROMPT, "{took} us: it waited for who is dead");
        writer.gives_back(Side::Write).await;
    };
    tokio::join!(join_all(others), among_readers);
}

/// A process of ours: `hold URL NAME WATCHDOG_MS`.
pub(crate) async fn hold_on(words: &[&str]) {
    let &[url, name, watchdog] = words else { panic!("{words:?}") };
    let client = client_with(url, ms(watchdog.parse().expect("a number"))).await;
    let _guard = hold(&client.lock(name)).await;
    child::say("held");
    tokio::time::sleep(MINUTE).await;
}
