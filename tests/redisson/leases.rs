//! Explicit leases end, and whoever waits gets the lock then, on either side.

use redlatch::ErrorKind;

use crate::parties::{Ask, GRAIN, Kind, Micros, PROMPT, Party, now};
use crate::site::Site;
use crate::support::ms;

/// Long enough for a waiter to park, on a busy machine.
const LEASE: Micros = 1_000_000;

/// Checks that the waiter gets it when the lease ends that was taken between `asked` and `taken`.
async fn gets_it_at_the_end(waiter: &mut Party<'_>, asked: Micros, taken: Micros) {
    let got = waiter.gets().await;
    assert!(got + GRAIN >= asked + LEASE, "{} us before the end", asked + LEASE - got);
    assert!(got < taken + LEASE + PROMPT, "{} us after it", got - taken - LEASE);
}

pub(crate) async fn of_java_end_for_rust(site: &Site) {
    let name = "lease-of-java";
    let thread = site.java.thread("holder");
    let mut waiter = Party::new(site, Kind::Rust, "", name).await;
    let taken = thread.ask("lockFor", &[&name, &(LEASE / 1_000)]).await;
    waiter.waits(Ask::Lock).await;
    gets_it_at_the_end(&mut waiter, taken.begun, taken.ended).await;
    // Too late, and without a trace.
    thread.ask("unlock", &[&name]).await.assert_not_held();
    assert_eq!(site.holds(name), [(waiter.owner().await, 1)].into());
    waiter.gives_back().await;
}

pub(crate) async fn of_rust_end_for_java(site: &Site) {
    let name = "lease-of-rust";
    let lock = site.client().await.lock(name);
    let mut waiter = Party::new(site, Kind::Java, "waiter", name).await;
    let asked = now();
    let guard = lock.lock_with_lease(ms(LEASE / 1_000)).await.expect("the lock");
    let taken = now();
    waiter.waits(Ask::Lock).await;
    gets_it_at_the_end(&mut waiter, asked, taken).await;
    assert!(guard.is_lost(), "it believes in a lease that has ended");
    let error = guard.unlock().await.expect_err("a lease that has ended");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(site.holds(name), [(waiter.owner().await, 1)].into());
    waiter.gives_back().await;
}
