//! Explicit leases end, and whoever waits gets the lock then, on either side. What of it is about readers and writers is
//! in `differential`.

use futures::future::join_all;

use crate::parties::{KINDS, Micros, Party, assert_at_the_end, now};
use crate::setup::Setup;
use crate::sides::{Ask, Side};
use crate::support::{MINUTE, ms, soon};

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

/// No release follows when the lock stays for a time. A message that wakes one thread wakes the one that gives up.
pub(crate) async fn that_get_shorter_are_told_to_all_threads(setup: &Setup) {
    let (name, asked) = ("shorter", now());
    let lock = setup.client().await.lock(name);
    let guard = lock.lock_with_lease(MINUTE).await.expect("the lock");
    let taken = now();
    let first = setup.java.thread("impatient");
    let gives_up = first.begin("tryLock", &[&name, &(LEASE / 1_000), &-1]);
    first.parks(&gives_up).await;
    let mut second = Party::java(setup, &setup.java, "waits", name);
    second.waits(Side::Plain).await;
    let stays = now() - asked + 3 * LEASE;
    guard.hold_at_least(ms(stays / 1_000));
    soon("a release", guard.unlock()).await.expect("a release");
    assert_eq!(gives_up.answer().await.value(), "false");
    assert_at_the_end(name, second.gets().await, asked + stays, taken + stays);
    second.gives_back(Side::Plain).await;
}
