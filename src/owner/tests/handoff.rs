//! Hand-offs inside the client, as one hold state sees them.

use super::*;
use crate::config::Config;

impl Story {
    fn start(&self) -> Option<crate::owner::HandoffStart> {
        self.owner.holds.lock().start_handoff(self.now, false)
    }

    fn turn_of_others(&self, config: &Config) -> Option<u32> {
        self.owner.holds.lock().streak_is_over(config, self.now)
    }

    /// The lock comes to this owner from another one, which was valid until then.
    fn handed(&self, lease: Lease, until: Instant, streak: Streak) -> (HoldId, Arc<Validity>) {
        let validity = Arc::new(Validity::new(until));
        let mut holds = self.owner.holds.lock();
        let ask = holds.ask(self.now);
        (holds.handed(ask, lease, validity.clone(), streak, self.now), validity)
    }

    fn start_watching(&self) -> Option<Instant> {
        self.owner.holds.lock().start_watching()
    }

    fn streak(&self) -> Streak {
        let giver = Self { owner: Self::new().owner, now: self.now };
        let (hold, _) = giver.grant(HOUR.into());
        giver.give_back(hold);
        giver.start().expect("a lock to hand off").streak
    }
}

#[test]
fn only_the_last_hold_can_be_handed_off_and_only_while_it_is_valid() {
    let mut story = Story::new();
    assert!(story.start().is_none(), "it has nothing");
    let (outer, validity) = story.grant(WATCHDOG.into());
    let (inner, _) = story.grant(HOUR.into());
    story.give_back(inner);
    assert!(story.start().is_none(), "a guard is left");
    story.give_back(outer);
    let start = story.start().expect("both have gone");
    assert_eq!(start.until, validity.check(story.now).unwrap(), "the shorter of the two");
    assert_eq!((start.pending.count, start.pending.given_back), (0, 2));
    story.now += WATCHDOG;
    assert!(story.start().is_none(), "one of them has run out");
}

#[test]
fn a_lock_that_may_have_been_freed_or_is_lost_cannot_be_handed_off() {
    let story = Story::new();
    let (hold, _) = story.grant(HOUR.into());
    let pending = story.give_back(hold).unwrap();
    story.owner.holds.lock().release_sent(pending);
    assert!(story.start().is_none(), "a release is on its way");
    story.owner.holds.lock().release_confirmed(pending);
    assert!(story.start().is_none());
    let (hold, _) = story.grant(HOUR.into());
    story.give_back(hold);
    story.lose(FoundBy::Release);
    assert!(story.start().is_none());
}

#[test]
fn an_owner_takes_a_lock_only_if_it_has_no_hold_and_no_pending_release() {
    let story = Story::new();
    let can_take = || story.owner.holds.lock().can_take();
    assert!(can_take());
    let ask = story.owner.holds.lock().ask(story.now);
    assert!(!can_take(), "it may have the lock from an acquire that was not answered");
    story.owner.holds.lock().not_executed(ask);
    assert!(can_take());
    let (hold, _) = story.grant(HOUR.into());
    assert!(!can_take());
    let pending = story.give_back(hold).unwrap();
    assert!(!can_take(), "its release is still to be confirmed");
    story.owner.holds.lock().release_confirmed(pending);
    assert!(can_take());
}

#[test]
fn a_lock_that_was_handed_off_is_valid_for_its_lease_once_confirmed() {
    let story = Story::new();
    let before = story.now + WATCHDOG;
    let (hold, validity) = story.handed(HOUR.into(), before, story.streak());
    assert_eq!(validity.check(story.now), Some(before));
    assert!(story.owner.holds.lock().is_unconfirmed());
    let until = story.now + HOUR;
    story.owner.holds.lock().confirmed(hold, &validity, until, story.now);
    assert_eq!(validity.check(story.now), Some(until));
    assert!(!story.owner.holds.lock().is_unconfirmed());
    // A hold that was given back does not count as unconfirmed.
    story.give_back(hold);
    assert!(story.start().is_some());
    assert!(!story.owner.holds.lock().is_unconfirmed());
}

#[test]
fn a_confirmation_says_nothing_of_a_later_generation() {
    let story = Story::new();
    let (before, lost) = story.handed(HOUR.into(), story.now + WATCHDOG, story.streak());
    story.lose(FoundBy::Release);
    let (_, validity) = story.handed(HOUR.into(), story.now + WATCHDOG, story.streak());
    story.owner.holds.lock().confirmed(before, &lost, story.now + HOUR, story.now);
    assert!(lost.is_gone());
    assert_eq!(validity.check(story.now), Some(story.now + WATCHDOG));
    assert!(story.owner.holds.lock().is_unconfirmed());
}

#[test]
fn the_watchdog_leaves_an_unconfirmed_or_unclaimed_lock_alone() {
    for claimed_first in [true, false] {
        let mut story = Story::new();
        let begun = story.now;
        let (hold, validity) = story.handed(Lease::Watchdog, story.now + WATCHDOG, story.streak());
        let claim = || story.owner.holds.lock().claimed();
        let confirm = |now| {
            let mut holds = story.owner.holds.lock();
            holds.confirmed(hold, &validity, begun + WATCHDOG, now);
        };
        assert_eq!(story.start_watching(), None);
        if claimed_first {
            claim()
        } else {
            confirm(begun)
        }
        assert_eq!(story.start_watching(), None);
        let idle =
            story.owner.holds.lock().renewal(begun + WATCHDOG / 2, WATCHDOG / 3, Duration::MAX);
        assert_eq!(idle, Renewal::Idle { ran_out: false });
        if claimed_first {
            confirm(begun)
        } else {
            claim()
        }
        assert_eq!(story.start_watching(), Some(begun));
        assert_eq!(story.start_watching(), None, "it is on the schedule once");
        story.now += WATCHDOG / 2;
        let due = story.owner.holds.lock().renewal(story.now, WATCHDOG / 3, Duration::MAX);
        assert!(matches!(due, Renewal::Due { .. }), "{due:?}");
    }
}

#[test]
fn a_streak_of_hand_offs_ends_while_others_wait_and_only_then() {
    let config = Config { max_handoffs: 3, ..Config::default() };
    let mut story = Story::new();
    let mut streak = story.streak();
    for passes in 1..=5 {
        let (hold, _) = story.handed(HOUR.into(), story.now + HOUR, streak.clone());
        story.give_back(hold);
        streak = story.start().expect("a lock to hand off").streak;
        assert_eq!(story.turn_of_others(&config), None, "nobody waits");
        streak.note(2);
        assert_eq!(story.turn_of_others(&config), (passes >= 3).then_some(2), "{passes}");
        streak.note(0);
        let pending = story.pending().unwrap();
        story.owner.holds.lock().release_confirmed(pending);
    }
    // By time, too.
    streak = story.streak();
    streak.note(1);
    let _held = story.handed(HOUR.into(), story.now + HOUR, streak);
    assert_eq!(story.turn_of_others(&config), None);
    story.now += config.max_handoff_time;
    assert_eq!(story.turn_of_others(&config), Some(1));
}

#[test]
fn a_hold_that_redis_granted_begins_a_new_streak() {
    let config = Config { max_handoffs: 1, ..Config::default() };
    let story = Story::new();
    let streak = story.streak();
    streak.note(1);
    let (hold, _) = story.handed(HOUR.into(), story.now + HOUR, streak);
    assert_eq!(story.turn_of_others(&config), Some(1));
    let pending = story.give_back(hold).unwrap();
    story.owner.holds.lock().release_confirmed(pending);
    story.grant(HOUR.into());
    assert_eq!(story.turn_of_others(&config), None);
    assert!(!story.owner.holds.lock().is_unconfirmed());
}
