//! The watchdogs of both sides keep who reads and who writes, and end with their process.

use std::time::Instant;

use super::*;

/// Of both sides.
const TIMEOUT: Duration = Duration::from_secs(3);

/// More than two of it.
const LONG: Duration = ms(6_500);

pub(crate) async fn keep_the_other_side_out(setup: &Setup) {
    let java = setup.another_java(TIMEOUT);
    let client = setup.client_with(TIMEOUT).await;
    let names = ["watched-java-writes", "watched-rust-writes", "watched-both-read"];
    let [java_writes, rust_writes, both_read] = names;
    let theirs = |thread, name| Party::java(setup, &java, thread, name);
    let ours = |name| Party::rust(setup, &client, name);
    let mut held = [
        (theirs("writer", java_writes), Side::Write),
        (ours(rust_writes), Side::Write),
        (theirs("reader", both_read), Side::Read),
        (ours(both_read), Side::Read),
    ];
    for (holder, side) in &mut held {
        holder.takes(*side).await;
    }
    let mut waiting = [
        (ours(java_writes), Side::Read),
        (theirs("waiter.1", rust_writes), Side::Read),
        (theirs("waiter.2", both_read), Side::Write),
        (ours(both_read), Side::Write),
    ];
    for (waiter, side) in &mut waiting {
        waiter.waits(*side).await;
    }

    // Nothing must happen all that time, but renewals.
    let start = Instant::now();
    let (mut renewals, mut last) = ([0; 3], [i64::MAX; 3]);
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

    for (holder, side) in &mut held {
        holder.gives_back(*side).await;
    }
    let served = waiting.iter_mut().map(async |(waiter, side)| {
        waiter.gets().await;
        waiter.gives_back(*side).await;
    });
    futures::future::join_all(served).await;
}

/// A reader in Java that dies holds up a writer of ours for its own lease, and not for that of the
/// readers beside it.
pub(crate) async fn a_killed_java_reader_is_out_of_the_way(setup: &Setup) {
    let name = "killed-reader";
    let java = setup.another_java(TIMEOUT);
    let mut dies = Party::java(setup, &java, "reader", name);
    let mut lives = Party::new(setup, Kind::Rust, "", name).await;
    let mut writer = Party::new(setup, Kind::Rust, "", name).await;
    lives.takes(Side::Read).await;
    dies.takes(Side::Read).await;
    writer.waits(Side::Write).await;
    let field = dies.field(Side::Read).await;
    let marker = format!("{}:{field}:rwlock_timeout:1", tagged(name));
    assert!(setup.pttl(&marker) > 0 && fields(setup, name).contains_key(&field));
    java.kill();
    let left = setup.pttl(&marker);
    let until = now() + Micros::try_from(left).expect("a lease") * 1_000;
    wait_until("the writer takes it out", SOON, || !fields(setup, name).contains_key(&field)).await;
    let took_out = now();
    assert!(took_out + GRAIN >= until, "{} us before the end", until - took_out);
    assert!(took_out < until + PROMPT, "{} us after it", took_out - until);
    assert!(writer.is_waiting() && lives.is_locked(Side::Read).await, "we still read");
    let begun = lives.gives_back(Side::Read).await;
    let took = writer.gets().await.saturating_sub(begun);
    assert!(took < PROMPT, "{took} us: it waited for who is dead");
    writer.gives_back(Side::Write).await;
}

/// The lock of a writer in Java that dies is free when its lease ends.
pub(crate) async fn a_killed_java_writer_ends(setup: &Setup) {
    let name = "killed-writer";
    let java = setup.another_java(TIMEOUT);
    let mut dies = Party::java(setup, &java, "writer", name);
    let mut reader = Party::new(setup, Kind::Rust, "", name).await;
    dies.takes(Side::Write).await;
    reader.waits(Side::Read).await;
    java.kill();
    let until = now() + Micros::try_from(setup.pttl(name)).expect("a lease") * 1_000;
    let got = reader.gets().await;
    assert!(got + GRAIN >= until, "{} us before the end", until - got);
    assert!(got < until + PROMPT, "{} us after it", got - until);
    reader.gives_back(Side::Read).await;
}
