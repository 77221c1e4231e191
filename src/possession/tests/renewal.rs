//! What the watchdog finds, and what its answers change.

use tokio::sync::oneshot;

use super::handoff::NEXT;
use super::*;

pub(super) const PERIOD: Duration = Duration::from_millis(300);

const MS: Duration = Duration::from_millis(1);

impl Story {
    pub(super) fn renewal(&self, handle: HandleId) -> Renewal {
        self.holds().renewal(handle, self.now, PERIOD, Duration::MAX)
    }

    /// Redis has confirmed a renewal that was due after all that happened.
    pub(super) fn renewed(&self, sent: Instant) -> bool {
        let mut holds = self.holds();
        let shortened = holds.shortened();
        holds.renewed(shortened, sent, WATCHDOG, self.now)
    }

    fn asserts_due(&self) {
        let found = self.renewal(ME);
        assert!(matches!(found, Renewal::Due { .. }), "{found:?}");
    }
}

#[test]
fn a_lock_that_a_renewal_finds_gone_between_two_holders_is_not_handed_on() {
    for is_gone in [false, true] {
        let story = Story::given_back(Lease::Watchdog);
        if is_gone {
            assert_eq!(story.lose(FoundBy::Renewal), None, "no guard is left to lose it");
        }
        assert_eq!(story.hand_off(NEXT, Lease::Watchdog).is_none(), is_gone);
        assert_eq!(story.pending().is_some(), is_gone, "its release asks Redis");
    }
}

#[test]
fn a_renewal_of_a_released_lock_is_refused_and_no_guard_learns_of_a_loss() {
    let mut story = Story::new();
    let (hold, validity) = story.grant(Lease::Watchdog);
    story.now += WATCHDOG / 2;
    story.asserts_due();
    let pending = story.give_back(hold).unwrap();
    assert_ne!(story.lose(FoundBy::Renewal), Some(true));
    assert!(!validity.is_gone());
    assert_eq!(story.pending(), Some(pending), "the release is still to be confirmed");
}

/// The lock was handed off to the next one meanwhile, say. A shorter lease waits for the answer of one request.
#[test]
fn while_a_renewal_is_under_way_no_other_one_is_due() {
    let mut story = Story::new();
    let _held = story.grant(Lease::Watchdog);
    story.now += WATCHDOG / 2;
    story.asserts_due();
    assert_eq!(story.renewal(ME), Renewal::NotBefore(story.now + PERIOD / 8));
    story.holds().renewal_ends();
    story.asserts_due();
}

#[test]
fn a_refused_renewal_of_what_is_held_is_a_loss() {
    let story = Story::new();
    let (_, validity) = story.grant(Lease::Watchdog);
    assert_eq!(story.lose(FoundBy::Renewal), Some(true), "a guard was still valid");
    assert!(validity.is_gone());
    assert_eq!(story.pending(), None);
    assert_eq!(story.renewal(ME), Renewal::Idle { ran_out: false });
}

#[test]
fn a_refused_renewal_leaves_the_undo_of_a_request_that_is_under_way() {
    let story = Story::new();
    let (_, validity) = story.grant(Lease::Watchdog);
    let permit = story.possession.try_permit();
    assert_eq!(story.lose(FoundBy::Renewal), Some(true));
    assert!(validity.is_gone());
    assert_eq!(story.pending().map(|pending| pending.count), Some(0), "it may be executed yet");
    drop(permit);
}

#[test]
fn a_renewal_that_crosses_the_release_of_what_is_lost_says_nothing_of_what_was_given_back() {
    let mut story = Story::new();
    let _lost = story.grant(Lease::Watchdog);
    let (given_back, validity) = story.grant(HOUR.into());
    story.give_back(given_back);
    story.now += WATCHDOG;
    // The other hold has run out, so all of it is released; the renewal finds nothing then.
    let pending = story.pending().unwrap();
    assert_eq!(pending.count, 0);
    story.holds().release_sent(pending, story.now);
    assert_ne!(story.lose(FoundBy::Renewal), Some(true));
    assert!(!validity.is_gone(), "the release finds out");
}

#[test]
fn a_renewal_prolongs_default_leases_and_never_a_fixed_one() {
    let mut story = Story::new();
    let (_, fixed) = story.grant(WATCHDOG.into());
    let (_, watched) = story.grant(Lease::Watchdog);
    let as_granted = fixed.check(story.now);
    story.now += WATCHDOG / 2;
    assert!(story.renewed(story.now));
    assert_eq!(watched.check(story.now), Some(valid_until(story.now, WATCHDOG)));
    assert_eq!(fixed.check(story.now), as_granted);
}

#[test]
fn a_renewal_that_is_confirmed_after_the_deadline_came_too_late() {
    let mut story = Story::new();
    let (_, validity) = story.grant(Lease::Watchdog);
    let sent = story.now + WATCHDOG / 2;
    story.now += WATCHDOG;
    assert!(!story.renewed(sent));
    assert_eq!(validity.check(story.now), None);
    assert_eq!(story.renewal(ME), Renewal::Idle { ran_out: true });
    assert_eq!(story.renewal(ME), Renewal::Idle { ran_out: false }, "that was reported");
}

#[test]
fn a_renewal_counts_from_the_first_default_hold() {
    let mut story = Story::new();
    let _fixed = story.grant(HOUR.into());
    assert_eq!(story.holds().watched_since(ME), None);
    story.now += 2 * PERIOD;
    let _watched = story.grant(Lease::Watchdog);
    assert_eq!(story.holds().watched_since(ME), Some(story.now));
    assert_eq!(story.holds().watched_since(ME + 1), None, "another handle is not inside");
    assert_eq!(story.renewal(ME), Renewal::NotBefore(story.now + PERIOD));
    assert_eq!(story.renewal(ME + 1), Renewal::Idle { ran_out: false });
    let since = story.now;
    story.now += PERIOD / 2;
    let _again = story.grant(Lease::Watchdog);
    assert_eq!(story.renewal(ME), Renewal::NotBefore(since + PERIOD));
    story.now = since + PERIOD;
    story.asserts_due();
}

#[test]
fn a_lease_is_renewed_for_no_longer_than_its_limit_and_each_holder_has_its_own() {
    let mut story = Story::new();
    story.config.max_hold = 2 * PERIOD;
    let found = |story: &Story, handle| {
        story.holds().renewal(handle, story.now, PERIOD, story.config.max_hold)
    };
    let (hold, _) = story.grant(Lease::Watchdog);
    story.now += PERIOD;
    assert!(matches!(found(&story, ME), Renewal::Due { .. }));
    story.renewed(story.now);
    story.now += PERIOD;
    assert!(matches!(found(&story, ME), Renewal::Over { .. }));
    story.give_back(hold);
    let (next, _) = story.hand_off(ME + 1, Lease::Watchdog).expect("a hand-off");
    story.holds().takes(next, WATCHDOG, story.now);
    assert!(matches!(found(&story, ME + 1), Renewal::Due { .. }));
    for _ in 0..2 {
        story.renewed(story.now);
        story.now += PERIOD;
    }
    assert!(matches!(found(&story, ME + 1), Renewal::Over { .. }));
}

#[test]
fn an_extension_makes_a_fixed_lease_longer_and_never_shorter() {
    let mut story = Story::new();
    let (hold, validity) = story.grant(WATCHDOG.into());
    story.now += WATCHDOG / 2;
    assert!(story.holds().extended(hold, HOUR, story.now, story.now));
    let until = valid_until(story.now, HOUR);
    assert_eq!(validity.check(story.now), Some(until));
    assert!(story.holds().extended(hold, WATCHDOG, story.now, story.now));
    assert_eq!(validity.check(story.now), Some(until));
    story.give_back(hold);
    assert!(!story.holds().extended(hold, HOUR, story.now, story.now), "it was given back");
}

/// The release that leaves the outer hold shortens the lease. The answer to the renewal of the inner one
/// is read only then. Redis has executed the release first or last, on another connection: the renewal may have been
/// written before it or after it.
#[test]
fn a_renewal_that_is_heard_of_after_the_lease_was_shortened_lets_no_next_hold_be_valid_for_longer()
{
    for (before, after) in [(1, 0), (0, 0), (0, 1)] {
        let mut story = Story::new();
        let (outer, _) = story.grant((2 * WATCHDOG / 3).into());
        let (inner, _) = story.grant(Lease::Watchdog);
        story.now += WATCHDOG / 3;
        let Renewal::Due { shortened, .. } = story.renewal(ME) else { panic!("it is due") };
        let sent = story.now + before * MS;
        story.now += after * MS;
        let pending = story.give_back(inner).unwrap();
        assert!(pending.lease <= WATCHDOG / 3);
        story.holds().release_sent(pending, story.now);
        story.holds().release_confirmed(pending);
        let ends = valid_until(story.now, pending.lease);
        story.now += 2 * MS;
        assert!(!story.holds().renewed(shortened, sent, WATCHDOG, story.now));
        story.give_back(outer);
        let (_, validity) = story.hand_off(ME + 1, Lease::Watchdog).expect("a hand-off");
        assert!(validity.check(story.now) <= Some(ends), "Redis ends it before that");
    }
}

/// One after the other, each with what is left of the longest lease: Redis keeps the key for longer than a renewal asks for.
#[test]
fn a_renewal_counts_beside_nested_releases_under_a_lease_that_is_longer() {
    let mut story = Story::new();
    let _outer = story.grant(HOUR.into());
    let (_, validity) = story.grant(Lease::Watchdog);
    let nested = [(); 3].map(|()| story.grant(Lease::Watchdog));
    story.now += WATCHDOG / 3;
    for (hold, _) in nested {
        let Renewal::Due { shortened, .. } = story.renewal(ME) else { panic!("it is due") };
        let sent = story.now;
        story.now += MS;
        let pending = story.give_back(hold).unwrap();
        story.holds().release_sent(pending, story.now);
        story.holds().release_confirmed(pending);
        assert!(story.holds().renewed(shortened, sent, WATCHDOG, story.now));
        assert_eq!(validity.check(story.now), Some(valid_until(sent, WATCHDOG)));
        story.now += WATCHDOG / 3;
    }
}

/// A request for the long lease is sent, and not answered: whether Redis has executed the renewal before the one for the
/// shorter lease is as unknown as before.
#[test]
fn a_renewal_from_before_a_shorter_lease_says_nothing_once_a_longer_one_is_asked_for() {
    let mut story = Story::new();
    let (outer, _) = story.grant((2 * WATCHDOG / 3).into());
    let (inner, _) = story.grant(Lease::Watchdog);
    story.now += WATCHDOG / 3;
    let Renewal::Due { shortened, .. } = story.renewal(ME) else { panic!("it is due") };
    let pending = story.give_back(inner).unwrap();
    story.holds().release_sent(pending, story.now);
    story.holds().release_confirmed(pending);
    let ends = valid_until(story.now, pending.lease);
    story.give_back(outer);
    let (next, validity) = story.hand_off(ME + 1, Lease::Watchdog).expect("a hand-off");
    story.holds().takes(next, WATCHDOG, story.now);
    story.next_update().expect("a longer lease");
    assert!(!story.holds().renewed(shortened, story.now + MS, WATCHDOG, story.now + MS));
    assert!(validity.check(story.now) <= Some(ends), "Redis ends it before that");
}

/// A reader that may join, also if it has yet to go on.
fn joins(story: &Story, is_let_in: bool) -> Option<NewHold> {
    let join = Join {
        handle: ME,
        lease: Lease::Watchdog,
        requested: WATCHDOG,
        passes: true,
        recurs: false,
        writes_as: 0,
        writes: false,
        has_limit: false,
        is_let_in,
    };
    story.holds().join(join, story.now).map(|(hold, _)| hold)
}

#[test]
fn a_reader_that_was_let_in_is_renewed_from_when_it_goes_on() {
    let mut story = Story::new();
    story.holds().set_shared(true);
    let (first, _) = story.grant(Lease::Watchdog);
    let (late, validity, _) = joins(&story, true).expect("it comes in");
    let ends = validity.check(story.now).unwrap();
    story.now += 2 * PERIOD;
    story.renewed(story.now);
    assert_eq!(validity.check(story.now), Some(ends));
    story.holds().takes(late, WATCHDOG, story.now);
    let renewed_until = valid_until(story.now, WATCHDOG);
    assert_eq!(validity.check(story.now), Some(renewed_until));
    let (_, never, _) = joins(&story, true).expect("it comes in");
    story.give_back(first);
    assert!(matches!(story.renewal(ME), Renewal::NotBefore(_)));
    story.give_back(late);
    assert_eq!(story.pending(), None, "the other one is inside");
    assert_eq!(story.renewal(ME), Renewal::Idle { ran_out: false });
    story.now += PERIOD;
    let (next, ..) = joins(&story, false).expect("it is renewed as early as one that joins others");
    assert!(matches!(story.renewal(ME), Renewal::Due { until, .. } if until == renewed_until));
    story.give_back(next);
    story.now += Duration::from_millis(1);
    assert!(joins(&story, false).is_none(), "its renewal would be late: it asks Redis");
    story.now = renewed_until;
    assert_eq!(never.check(story.now), None);
    assert_eq!(story.pending().map(|pending| pending.count), Some(0));
}

#[test]
fn a_hold_that_was_handed_over_is_renewed_from_when_its_call_takes_it() {
    let mut story = Story::given_back(Lease::Watchdog);
    let (late, validity) = story.hand_off(ME, Lease::Watchdog).expect("a hand-off");
    let ends = validity.check(story.now);
    let (long, _) = story.grant(HOUR.into());
    assert_eq!(story.renewal(ME), Renewal::Idle { ran_out: false });
    let (_nested, _) = story.grant(Lease::Watchdog);
    story.now += WATCHDOG * 2 / 3;
    assert!(matches!(story.renewal(ME), Renewal::Due { .. }), "the nested one needs it");
    story.renewed(story.now);
    assert_eq!(validity.check(story.now), ends, "no call has it yet");
    story.holds().takes(late, WATCHDOG, story.now);
    assert_eq!(validity.check(story.now), Some(valid_until(story.now, WATCHDOG)));
    story.give_back(long);
}

#[test]
fn a_hold_that_no_call_has_taken_is_not_extended_by_the_lease_of_another() {
    let story = Story::given_back(Lease::Watchdog);
    let (late, validity) = story.hand_off(ME, Lease::Watchdog).expect("a hand-off");
    let (_nested, _) = story.grant(HOUR.into());
    let (confirm, _) = oneshot::channel();
    story.holds().confirms_to(confirm);
    let update = story.next_update().expect("what the caller waits for");
    assert_eq!(update.lease, HOUR);
    story.record_update(update, 0);
    let own = Some(valid_until(story.now, WATCHDOG));
    assert_eq!(validity.check(story.now), own);
    story.holds().takes(late, WATCHDOG, story.now);
    assert_eq!(validity.check(story.now), own);
}
