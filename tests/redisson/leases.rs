//! Explicit leases end, and whoever waits gets the lock then, on either side.

use redlatch::ErrorKind;

use crate::owners::{Ask, GRAIN, Kind, Micros, Owner, PROMPT, now};
use crate::setup::Setup;
use crate::support::ms;

/// Long enough for a waiter to park, on a busy machine.
const LEASE: Micros = 1_000_000;

/// Checks that the waiter gets it when the lease ends that was taken between `asked` and `taken`.
async fn gets_it_at_the_end(waiter: &mut Owner<'_>, asked: Micros, taken: Micros) {
    let got = waiter.gets().await;
    assert!(got + GRAIN >= asked + LEASE, "{} us before the end", asked + LEASE - got);
    assert!(got < taken + LEASE + PROMPT, "{} us after it", got - taken - LEASE);
}

pub(crate) async fn of_java_end_for_rust(setup: &Setup) {
    let name = "lease-of-java";
    let thread = setup.java.thread("holder");
    let mut waiter = Owner::new(setup, Kind::Rust, "", name).await;
    let taken = thread.ask("lockFor", &[&name, &(LEASE / 1_000)]).await;
    waiter.waits(Ask::Lock).await;
    gets_it_at_the_end(&mut waiter, taken.begun, taken.ended).await;
    // Too late, and without a trace.
    thread.ask("unlock", &[&name]).await.assert_not_held();
    assert_eq!(setup.holds(name), [(waiter.owner().await, 1)].into());
    waiter.gives_back().await;
}

pub(crate) async fn of_rust_end_for_java(setup: &Setup) {
    let name = "lease-of-rust";
    let lock = setup.client().await.lock(name);
    let mut waiter = Owner::new(setup, Kind::Java, "waiter", name).await;
    let asked = now();
    let guard = lock.lock_with_lease(ms(LEASE / 1_000)).await.expect("the lock");
    let taken = now();
    waiter.waits(Ask::Lock).await;
    gets_it_at_the_end(&mut waiter, asked, taken).await;
    assert!(guard.is_lost(), "it believes in a lease that has ended");
    let error = guard.unlock().await.expect_err("a lease that has ended");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(setup.holds(name), [(waiter.owner().await, 1)].into());
    waiter.gives_back().await;
}
