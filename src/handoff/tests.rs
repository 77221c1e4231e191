//! The hand-offs as they are, with a model of Redis at the other end, under many schedules: the
//! calls of one client and another client on one name. No time passes, so no hold is lost by the
//! clock, and no timer makes up for a lost wake-up.

use shuttle::future::block_on;

use super::*;

mod scene;

use crate::tests::explore::{explore, fault};
use scene::play;

#[derive(Debug, Clone, Copy)]
struct Scene {
    /// How many calls there are, each of a handle of its own.
    calls: usize,
    /// How many of them are dropped, each at any moment.
    dropped: usize,
    /// How many requests about hand-offs are not answered, executed or not.
    unanswered: usize,
    /// An operator deletes the key.
    deletes: bool,
    /// A fault: a lock that comes to a waiter that has just left is forgotten.
    forgets: bool,
    /// A fault: the client's thread does not look again when Redis has answered it.
    looks_once: bool,
}

impl Scene {
    const NOTHING: Self = Self {
        calls: 3,
        dropped: 0,
        unanswered: 0,
        deletes: false,
        forgets: false,
        looks_once: false,
    };
}

#[test]
fn one_has_the_lock_at_a_time_under_every_schedule() {
    explore(10_000, || block_on(play(Scene::NOTHING)));
}

#[test]
fn a_call_that_is_dropped_anywhere_leaves_no_hold_under_every_schedule() {
    const SCENE: Scene = Scene { dropped: 2, ..Scene::NOTHING };
    explore(16_000, || block_on(play(SCENE)));
}

#[test]
fn a_request_that_was_not_answered_is_sent_again_under_every_schedule() {
    const SCENE: Scene = Scene { dropped: 1, unanswered: 2, ..Scene::NOTHING };
    explore(16_000, || block_on(play(SCENE)));
}

#[test]
fn a_lock_that_was_deleted_is_lost_and_comes_back_under_every_schedule() {
    const SCENE: Scene = Scene { dropped: 1, unanswered: 1, deletes: true, ..Scene::NOTHING };
    explore(16_000, || block_on(play(SCENE)));
}

#[test]
fn a_lock_that_comes_to_a_waiter_that_has_gone_is_seen_to_be_forgotten() {
    const SCENE: Scene = Scene { dropped: 2, forgets: true, ..Scene::NOTHING };
    let said = fault(|| block_on(play(SCENE)));
    assert!(said.contains("deadlock") || said.contains("hold is left"), "{said}");
}

#[test]
fn a_hand_off_during_a_request_is_seen_to_be_forgotten() {
    const SCENE: Scene = Scene { looks_once: true, ..Scene::NOTHING };
    let said = fault(|| block_on(play(SCENE)));
    let seen = ["deadlock", "of which Redis never hears", "no answer comes"];
    assert!(seen.iter().any(|seen| said.contains(seen)), "{said}");
}
