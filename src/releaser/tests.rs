//! What the drop of an [`OwnerSession`] leaves to the background.

use std::time::Instant;

use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::lease::{Lease, Validity};
use crate::owner::Kind;
use crate::protocol::Names;
use crate::tests::parts::handoffs;
use crate::transport::Endpoint;

const LEASE: Duration = Duration::from_secs(1);

/// Whether the drop of a session enqueues a release, where the owner has one guard that is valid until
/// then.
fn enqueues(until: impl Fn(Instant) -> Instant) -> bool {
    let (jobs, mut enqueued) = unbounded_channel();
    let releaser = Releaser::new(jobs, handoffs(&Arc::default()));
    let owner = Arc::new(Owner::new(Kind::Reentrant, Names::new("", "lock"), "owner".into()));
    let now = clock::now();
    {
        let mut holds = owner.holds.lock();
        let ask = holds.ask(now);
        let validity = Arc::new(Validity::new(until(now)));
        holds.granted(ask, Lease::Fixed(LEASE), validity, now);
    }
    let endpoint = Endpoint::url("redis://127.0.0.1/".into()).expect("an address");
    let (pushes, _pushed) = unbounded_channel();
    let router = Router::new(endpoint, LEASE, Vec::new(), false, pushes, Box::new(|_| 0));
    let router = router.expect("a router");
    drop(OwnerSession::new(Session::new(&router, now + LEASE), &owner, &releaser, None, LEASE));
    matches!(enqueued.try_recv(), Ok(Job::Release(_)))
}

#[test]
fn a_session_that_ends_leaves_a_guard_that_is_valid_alone() {
    assert!(!enqueues(|now| now + LEASE));
}

/// A release of everything may be on its way then, and what follows has to come behind it.
#[test]
fn a_session_that_ends_releases_in_the_background_if_every_guard_has_run_out() {
    assert!(enqueues(|now| now));
}
