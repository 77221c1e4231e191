//! The waiters as they are, with a model of Redis at the other end, under many schedules.

use std::time::Duration;

use futures::FutureExt;
use shuttle::future::block_on;

use super::*;

mod scene;

use crate::clock;
use crate::handle::Handle;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::possession::Possessions;
use crate::tests::explore::{explore, fault};
use scene::{Scene, play};

impl Default for Waiters {
    fn default() -> Self {
        let [keep, yield_time, grace, request] = [10, 750, 1_000, 3_000].map(Duration::from_millis);
        Self::new(QueueLimits { turns: TurnLimits { keep, yield_time }, grace, request })
    }
}

#[test]
fn whoever_waits_gets_the_lock_under_every_schedule() {
    const SCENE: Scene = Scene { calls: 3, ..Scene::NOTHING };
    explore(8_000, || block_on(play(SCENE)));
}

#[test]
fn a_call_that_is_dropped_anywhere_blocks_no_other_call_under_every_schedule() {
    const SCENE: Scene = Scene { calls: 3, dropped: 2, ..Scene::NOTHING };
    explore(24_000, || block_on(play(SCENE)));
}

#[test]
fn a_cut_anywhere_blocks_no_call_under_every_schedule() {
    const SCENE: Scene = Scene { calls: 2, dropped: 1, cuts: 2, ..Scene::NOTHING };
    explore(16_000, || block_on(play(SCENE)));
}

#[test]
fn a_lock_that_is_freed_by_force_blocks_no_call_under_every_schedule() {
    const SCENE: Scene = Scene { calls: 3, dropped: 1, forced: 2, ..Scene::NOTHING };
    explore(8_000, || block_on(play(SCENE)));
}

#[test]
fn two_locks_on_one_channel_block_no_call_under_every_schedule() {
    const SCENE: Scene = Scene { calls: 4, locks: 2, dropped: 1, ..Scene::NOTHING };
    explore(8_000, || block_on(play(SCENE)));
}

#[test]
fn a_wake_up_that_goes_with_its_waiter_is_seen_as_a_deadlock() {
    const SCENE: Scene = Scene { calls: 3, dropped: 2, keeps_wake_ups: true, ..Scene::NOTHING };
    let said = fault(|| block_on(play(SCENE)));
    assert!(said.contains("deadlock"), "{said}");
}

#[test]
fn a_waiter_that_does_not_ask_again_once_subscribed_is_seen_as_a_deadlock() {
    const SCENE: Scene = Scene { calls: 1, asks_once: true, ..Scene::NOTHING };
    let said = fault(|| block_on(play(SCENE)));
    assert!(said.contains("deadlock"), "{said}");
}

/// The first call may never be polled again: it is passed when its request has taken too long.
#[test]
fn a_hand_off_that_passes_a_first_request_has_the_one_behind_look() {
    const LEASE: Duration = Duration::from_secs(3_600);
    explore(8, || {
        let (waiters, possessions) = (Waiters::default(), Arc::<Possessions>::default());
        let names = Arc::new(possessions.names(Kind::Reentrant, "", "lock"));
        let handles =
            [(); 3].map(|()| Arc::new(Handle::new(Kind::Reentrant, names.clone(), &possessions)));
        let stay = Stay { since: clock::now(), until: None };
        let calls =
            handles.each_ref().map(|one| waiters.join(one, Lease::Watchdog, LEASE, stay, None));
        let limits = WaitLimits { until: None, request: LEASE, outage: None, warn_at: None };
        assert!(calls[0].asks_at_once(&limits).is_some());
        for parks in &calls[1..] {
            assert!(parks.next(&limits, || {}).now_or_never().is_none());
        }
        let takes = |waiter: &Waiter| Arc::ptr_eq(&waiter.handle, &handles[1]).then_some(());
        let (longest_request, now) = (Duration::ZERO, clock::now());
        let taken = waiters.take_next(&names, false, longest_request, LEASE, now, takes);
        let (_, (), effects) = taken.expect("the second");
        let [looks] = &effects.wake[..] else { panic!("{} look", effects.wake.len()) };
        assert!(Arc::ptr_eq(&looks.handle, &handles[2]));
    });
}
