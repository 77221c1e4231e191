//! Explicit leases end, and whoever waits gets the lock then, on either side. What of it is about readers and writers is
//! in `differential`.

use futures::future::join_all;

use crate::parties::{KINDS, Micros, Party, assert_at_the_end, now};
use crate::setup::Setup;
use crate::sides::{Ask, Side};
use crate::support::{MINUTE, SOON, ms, release, wait_until};

/// Long enough for a waiter to park, on a busy machine.
const LEASE: Micros = 1_000_000;

pub(crate) async fn end_for_the_other_side(setup: &Setup) {
    let played = KINDS.map(async |kind| {
        let name = format!("lease-of-{kind:?}");
        let mut holder = Party::new(setup, kind, "holder", &name).await;
        let mut waiter = Party::new(setup, kind.other(), "waiter", &name).await;
        let asked = now();
        holder.takes_by(Side::Plain, Ask::For(ms(LEASE / 1_000))).await;
        let taken = now();
        waiter.waits(Side::Plain).await;
        assert_at_the_end(&name, waiter.gets().await, asked + LEASE, taken + LEASE);
        // Too late, and without a trace.
        holder.gives_back_too_late().await;
        assert_eq!(setup.holds(&name), [(waiter.field(Side::Plain).await, 1)].into());
        waiter.gives_back(Side::Plain).await;
    });
    join_all(played).await;
}

/// No release follows when the lock stays for a time, and a thread that gives up wakes no other. So there is a permit for
/// each thread, and one more; each is a request. Which thread takes them is Redisson's: its semaphore is not fair, and
/// one that finds the lock busy takes the permit of another that has yet to run.
pub(crate) async fn that_get_shorter_are_told_to_all_threads(setup: &Setup) {
    let (name, asked) = ("shorter", now());
    let lock = setup.client().await.lock(name);
    let guard = lock.lock_with_lease(MINUTE).await.expect("the lock");
    let taken = now();
    // So that the server has the script, and ours is one command.
    release(lock.lock_with_lease(MINUTE).await.expect("one more hold")).await;
    let mut threads = ["first", "second"].map(|by| Party::java(setup, &setup.java, by, name));
    for thread in &mut threads {
        thread.waits(Side::Plain).await;
    }
    let asks = || setup.calls("eval") + setup.calls("evalsha");
    let (before, stays) = (asks(), now() - asked + 3 * LEASE);
    guard.hold_at_least(ms(stays / 1_000));
    release(guard).await;
    wait_until("a request of each thread, and one more", SOON, || asks() >= before + 1 + 3).await;
    let got = threads.each_mut().map(async |thread| {
        let got = thread.gets().await;
        thread.gives_back(Side::Plain).await;
        got
    });
    let first = join_all(got).await.into_iter().min().expect("two");
    assert_at_the_end(name, first, asked + stays, taken + stays);
}
