//! The waiters as they are, with a model of Redis at the other end, under many schedules.

use shuttle::future::block_on;

use super::*;

mod scene;

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
