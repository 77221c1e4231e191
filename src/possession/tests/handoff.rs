//! Hand-offs inside the client, as one hold state sees them.

use tokio::sync::oneshot;

use super::*;
use crate::possession::handoff::PassedHold;

pub(super) const NEXT: HandleId = ME + 1;
pub(super) const LAST: HandleId = ME + 2;

impl Story {
    /// The lock goes to that handle, if it can be handed off.
    pub(super) fn hand_off(&self, to: HandleId, lease: Lease) -> Option<(HoldId, Arc<Validity>)> {
        let (hold, validity, _) = self.try_hand_off(to, lease, false, None)?.hold;
        Some((hold, validity))
    }

    pub(super) fn try_hand_off(
        &self,
        to: HandleId,
        lease: Lease,
        needs_token: bool,
        confirm: Option<Confirm>,
    ) -> Option<PassedHold> {
        let requested = lease.checked(WATCHDOG).unwrap();
        let to = Recipient { to, lease, requested, needs_token, in_queue: false };
        self.possession.pass_to(to, false, confirm, &self.config, self.now)
    }

    /// A hold that was given back, of a lock that can be handed off.
    pub(super) fn given_back(lease: Lease) -> Self {
        let story = Self::new();
        let (hold, _) = story.grant(lease);
        story.give_back(hold);
        story
    }

    pub(super) fn next_update(&self) -> Option<Update> {
        self.holds().next_update(&self.config, Some(0), self.now)
    }

    /// Redis has executed it, and so many other clients wait.
    pub(super) fn record_update(&self, update: Update, others: u32) -> Vec<Confirm> {
        let none = TokenBlock::default();
        self.holds().record_update(update, none, others, self.now, self.now)
    }
}

#[test]
fn only_the_last_hold_can_be_handed_off_and_only_while_it_is_valid() {
    let mut story = Story::new();
    assert!(story.hand_off(NEXT, Lease::Watchdog).is_none(), "it has nothing");
    let (outer, _) = story.grant(HOUR.into());
    let (inner, _) = story.grant(Lease::Watchdog);
    story.give_back(inner);
    assert!(story.hand_off(NEXT, Lease::Watchdog).is_none(), "a guard is left");
    story.give_back(outer);
    let begun = story.now;
    story.now += WATCHDOG;
    assert!(story.hand_off(NEXT, Lease::Watchdog).is_none(), "one of them has run out");
    story.now = begun;
    let story = Story::given_back(Lease::Watchdog);
    let _held = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    let holds = story.holds();
    assert!(holds.holds_for(NEXT, story.now) && !holds.holds_for(ME, story.now));
    assert!(holds.is_of(NEXT) && !holds.is_of(ME));
}

#[test]
fn a_lock_that_may_have_been_freed_or_is_lost_cannot_be_handed_off() {
    let story = Story::given_back(HOUR.into());
    let pending = story.pending().unwrap();
    story.holds().release_sent(pending, story.now);
    assert_eq!(story.holds().hands_off_until(story.now), None, "a release is on its way");
    story.holds().release_not_executed(pending, false);
    assert!(story.holds().hands_off_until(story.now).is_some(), "it was not executed");
    story.holds().release_sent(pending, story.now);
    story.holds().release_confirmed(pending);
    assert_eq!(story.holds().hands_off_until(story.now), None);
    let story = Story::given_back(HOUR.into());
    story.lose(FoundBy::Release);
    assert_eq!(story.holds().hands_off_until(story.now), None);
}

#[test]
fn a_lock_is_handed_off_with_the_permit_or_during_a_request_of_hand_offs_and_else_not() {
    let story = Story::given_back(Lease::Watchdog);
    let permit = story.possession.try_permit();
    assert!(story.hand_off(NEXT, Lease::Watchdog).is_none(), "a call needs what is under way");
    let (to, config) = (
        Recipient {
            to: NEXT,
            lease: Lease::Watchdog,
            requested: WATCHDOG,
            needs_token: false,
            in_queue: false,
        },
        &story.config,
    );
    let handed = story.possession.pass_to(to, true, None, config, story.now);
    let hold = handed.expect("this is the call").hold.0;
    story.give_back(hold);
    story.holds().set_updating(true);
    assert!(story.hand_off(LAST, Lease::Watchdog).is_some());
    drop(permit);
}

#[test]
fn a_hold_is_valid_for_as_long_as_redis_has_confirmed_and_never_beyond_its_own_lease() {
    let mut story = Story::given_back(Lease::Watchdog);
    let confirmed = valid_until(story.now, WATCHDOG);
    story.now += WATCHDOG / 3;
    let (hold, validity) = story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
    assert_eq!(validity.check(story.now), Some(confirmed));
    let update = story.next_update().expect("a longer lease");
    assert_eq!((update.count, update.lease), (1, HOUR));
    story.record_update(update, 0);
    let until = valid_until(story.now, HOUR);
    assert_eq!(validity.check(story.now), Some(until));
    assert_eq!(story.next_update(), None, "Redis has heard all");
    story.give_back(hold);
    let short = Duration::from_millis(500);
    let (_, validity) = story.hand_off(LAST, short.into()).expect("a hand-off");
    assert_eq!(validity.check(story.now), Some(valid_until(story.now, short)));
    assert_eq!(story.next_update().expect("a shorter lease").lease, short);
}

#[test]
fn a_hold_that_soon_ends_is_not_handed_on() {
    let mut story = Story::given_back(Lease::Watchdog);
    story.now = valid_until(story.now, WATCHDOG) - MIN_HANDOFF_VALIDITY;
    assert!(story.holds().hands_off_until(story.now).is_some());
    story.now += Duration::from_nanos(1);
    assert_eq!(story.holds().hands_off_until(story.now), None);
}

/// What the request under way makes of the lease counts, whether or not it is executed.
#[test]
fn a_lease_that_redis_was_asked_to_shorten_is_relied_on_no_longer() {
    let story = Story::given_back(HOUR.into());
    let short = Duration::from_millis(500);
    let (hold, _) = story.hand_off(NEXT, short.into()).expect("a hand-off");
    story.next_update().expect("a shorter lease");
    story.give_back(hold);
    let (_, validity) = story.hand_off(LAST, HOUR.into()).expect("a hand-off");
    assert_eq!(validity.check(story.now), Some(valid_until(story.now, short)));
}

#[test]
fn a_default_lease_after_a_default_one_writes_nothing_and_every_other_is_written() {
    let fixed = Lease::Fixed(WATCHDOG);
    for (before, after, writes) in [
        (Lease::Watchdog, Lease::Watchdog, false),
        (Lease::Watchdog, fixed, true),
        (fixed, Lease::Watchdog, true),
        (fixed, fixed, true),
    ] {
        let story = Story::given_back(before);
        let since = story.now;
        let handed = story.try_hand_off(NEXT, after, false, None).expect("a hand-off");
        assert!(handed.needs_update, "the client's thread looks, for it may have to ask");
        assert_eq!(story.holds().is_unwritten(), writes, "{before:?} {after:?}");
        assert_eq!(story.next_update().is_some(), writes, "{before:?} {after:?}");
        story.holds().takes(handed.hold.0, WATCHDOG, story.now);
        let watched = (after == Lease::Watchdog).then_some(since);
        assert_eq!(story.holds().watched_since(NEXT), watched);
    }
}

#[test]
fn a_default_lease_is_written_if_a_nested_one_has_changed_what_redis_has() {
    // A longer one came and went; a shorter one outlived the default one.
    for (nested, outer_first) in [(HOUR, false), (WATCHDOG / 3, true)] {
        let story = Story::new();
        let (outer, _) = story.grant(Lease::Watchdog);
        let (inner, _) = story.grant(nested.into());
        let [first, then] = if outer_first { [outer, inner] } else { [inner, outer] };
        let pending = story.give_back(first).unwrap();
        if outer_first {
            story.holds().release_sent(pending, story.now);
            story.holds().release_confirmed(pending);
        }
        story.give_back(then);
        story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
        let update = story.next_update().expect("something to write");
        assert_eq!((update.count, update.lease), (1, WATCHDOG));
    }
}

#[test]
fn the_count_that_nested_holds_have_left_is_written() {
    let story = Story::new();
    let nested = [0; 3].map(|_| story.grant(Lease::Watchdog).0);
    for hold in nested {
        story.give_back(hold);
    }
    let (hold, _) = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    assert_eq!(story.pending().map(|pending| pending.count), Some(1), "Redis counts three");
    let nests = story.holds().ask_nested(NEXT, story.now);
    assert_eq!(nests, Nesting::ReleaseFirst);
    let update = story.next_update().expect("a lower count");
    assert_eq!(update.count, 1);
    story.record_update(update, 0);
    assert_eq!(story.pending(), None);
    let nests = story.holds().ask_nested(NEXT, story.now);
    assert!(matches!(nests, Nesting::Ask(Ask { count: 2, .. })), "{nests:?}");
    assert_eq!(story.give_back(hold).map(|pending| pending.count), Some(0));
}

#[test]
fn an_answer_about_a_holder_says_how_long_the_next_one_has_the_lock_at_least() {
    let story = Story::given_back(Lease::Watchdog);
    let (hold, before) = story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
    let update = story.next_update().expect("a longer lease");
    story.give_back(hold);
    let (_, validity) = story.hand_off(LAST, (2 * HOUR).into()).expect("a hand-off");
    story.record_update(update, 0);
    let [confirmed, reached] = [WATCHDOG, HOUR].map(|lease| Some(valid_until(story.now, lease)));
    assert_eq!((before.check(story.now), validity.check(story.now)), (confirmed, reached));
    let update = story.next_update().expect("Redis has not heard of the last one");
    assert_eq!(update.lease, 2 * HOUR);
    story.record_update(update, 0);
    assert_eq!(validity.check(story.now), Some(valid_until(story.now, 2 * HOUR)));
}

/// It is about a lease that Redis knows, and not about that of the next one.
#[test]
fn an_answer_reaches_the_next_holder_for_no_longer_than_its_own_lease() {
    for (lease, reached) in [(HOUR, WATCHDOG), (WATCHDOG / 3, WATCHDOG / 3)] {
        let mut story = Story::given_back(Lease::Watchdog);
        let (confirm, _confirmation) = oneshot::channel();
        let handed = story.try_hand_off(NEXT, Lease::Watchdog, false, Some(confirm));
        story.now += WATCHDOG / 2;
        let update = story.next_update().expect("a confirmation");
        story.give_back(handed.expect("a hand-off").hold.0);
        let (_, validity) = story.hand_off(LAST, lease.into()).expect("a hand-off");
        story.record_update(update, 0);
        assert_eq!(validity.check(story.now), Some(valid_until(story.now, reached)));
    }
}

/// The request of the first default holder is under way when the second comes. If Redis executes it, the
/// second has that lease; if not, it is written again.
#[test]
fn a_default_lease_that_follows_one_of_which_redis_has_not_heard_is_not_forgotten() {
    for executed in [true, false] {
        let short = WATCHDOG / 3;
        let story = Story::given_back(short.into());
        let (hold, _) = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
        let update = story.next_update().expect("another lease");
        story.give_back(hold);
        let (_, validity) = story.hand_off(LAST, Lease::Watchdog).expect("a hand-off");
        assert_eq!(validity.check(story.now), Some(valid_until(story.now, short)));
        if executed {
            story.record_update(update, 0);
        }
        if let Some(update) = story.next_update() {
            story.record_update(update, 0);
        }
        let until = valid_until(story.now, WATCHDOG);
        assert_eq!(validity.check(story.now), Some(until), "executed: {executed}");
    }
}

/// A request that the client has given up says nothing: what it was to write is written by the next.
#[test]
fn a_lease_that_the_client_has_given_up_to_write_is_written_for_the_next_holder() {
    let story = Story::given_back((WATCHDOG / 3).into());
    let (hold, _) = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    story.next_update().expect("another lease");
    story.holds().gives_update_up();
    story.give_back(hold);
    let handed = story.try_hand_off(LAST, Lease::Watchdog, false, None);
    assert!(handed.expect("a hand-off").needs_update, "the client's thread is asked again");
    assert_eq!(story.next_update().map(|update| update.lease), Some(WATCHDOG));
}

#[test]
fn the_client_s_thread_is_asked_once_until_it_has_found_nothing_to_do() {
    let story = Story::given_back(Lease::Watchdog);
    let updates = |to, lease| {
        let handed = story.try_hand_off(to, lease, false, None).expect("a hand-off");
        (handed.needs_update, handed.hold.0)
    };
    let (needs_update, hold) = updates(NEXT, HOUR.into());
    assert!(needs_update);
    story.give_back(hold);
    let (needs_update, hold) = updates(LAST, HOUR.into());
    assert!(!needs_update, "it has yet to look");
    story.record_update(story.next_update().expect("another lease"), 0);
    assert_eq!(story.next_update(), None);
    story.give_back(hold);
    let (needs_update, hold) = updates(NEXT, HOUR.into());
    assert!(needs_update, "it has found nothing to do");
    // The holder has gone: its release says all that is to say.
    story.give_back(hold);
    assert_eq!(story.next_update(), None);
}

#[test]
fn who_awaits_a_confirmation_has_it_from_a_request_that_was_sent_after_its_hold() {
    let story = Story::given_back(HOUR.into());
    let (mut heard, mut hold) = (Vec::new(), None);
    let mut handed_on = |to| {
        let (confirm, confirmation) = oneshot::channel();
        hold.take().map(|hold| story.give_back(hold));
        let handed = story.try_hand_off(to, HOUR.into(), false, Some(confirm));
        hold = Some(handed.expect("a hand-off").hold.0);
        heard.push(confirmation);
    };
    handed_on(NEXT);
    handed_on(LAST);
    let update = story.next_update().expect("a lease");
    assert_eq!(update.confirms, 2);
    handed_on(NEXT);
    assert_eq!(story.record_update(update, 0).len(), 2, "the third one's hold ended later");
    let update = story.next_update().expect("it is still to be confirmed");
    assert_eq!((update.confirms, story.record_update(update, 0).len()), (1, 1));
    handed_on(LAST);
    story.lose(FoundBy::HandOff);
    let last = heard.pop().expect("the last").try_recv().expect("it has heard");
    assert!(!last.expect("no error"), "the lock is gone");
    // A lock that was not handed off leaves the caller to release it, and to hear from that.
    let (confirm, _) = oneshot::channel();
    assert!(story.try_hand_off(NEXT, HOUR.into(), false, Some(confirm)).is_none());
    assert!(story.holds().take_confirms(usize::MAX).is_empty());
}

#[test]
fn the_watchdog_leaves_an_unclaimed_lock_alone() {
    let mut story = Story::given_back(Lease::Watchdog);
    let since = story.now;
    let (hold, _) = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    assert_eq!(story.holds().watched_since(NEXT), None);
    story.now += WATCHDOG / 2;
    assert_eq!(story.renewal(NEXT), Renewal::Idle { ran_out: false });
    story.holds().takes(hold, WATCHDOG, story.now);
    assert_eq!(story.holds().watched_since(NEXT), Some(since));
    assert!(matches!(story.renewal(NEXT), Renewal::Due { .. }));
    assert_eq!(story.renewal(ME), Renewal::Idle { ran_out: false }, "it is not inside any more");
}

#[test]
fn a_lease_that_no_request_wrote_is_promised_only_while_its_hold_is_live() {
    let story = Story::given_back(Lease::Watchdog);
    let (late, _) = story.hand_off(ME, HOUR.into()).expect("a hand-off");
    let (_nested, _) = story.grant((WATCHDOG / 2).into());
    assert_eq!(story.next_update().expect("a lease").lease, HOUR);
    let pending = story.give_back(late).expect("a release");
    assert_eq!(pending.lease, WATCHDOG / 2);
}

#[test]
fn a_shorter_lease_is_written_only_when_no_renewal_can_make_it_longer_again() {
    let mut story = Story::new();
    let (hold, _) = story.grant(Lease::Watchdog);
    story.now += WATCHDOG / 2;
    assert!(matches!(story.renewal(ME), Renewal::Due { .. }));
    story.give_back(hold);
    let (hold, _) = story.hand_off(NEXT, (WATCHDOG / 3).into()).expect("a hand-off");
    assert!(story.holds().waits_for_renewal(WATCHDOG));
    story.give_back(hold);
    story.hand_off(LAST, HOUR.into()).expect("a hand-off");
    assert!(!story.holds().waits_for_renewal(WATCHDOG), "a renewal makes no lease shorter");
    let story = Story::given_back(Lease::Watchdog);
    story.hand_off(NEXT, (WATCHDOG / 3).into()).expect("a hand-off");
    assert!(!story.holds().waits_for_renewal(WATCHDOG), "none is under way");
}

/// It makes the lease of that possession shorter when it arrives, however late.
#[test]
fn nothing_is_renewed_while_a_request_for_a_shorter_lease_is_under_way() {
    let mut story = Story::given_back(Lease::Watchdog);
    let (hold, _) = story.hand_off(NEXT, (WATCHDOG / 2).into()).expect("a hand-off");
    story.next_update().expect("a shorter lease");
    story.holds().set_updating(true);
    story.give_back(hold);
    let (hold, _) = story.hand_off(LAST, Lease::Watchdog).expect("a hand-off");
    story.holds().takes(hold, WATCHDOG, story.now);
    story.now += WATCHDOG / 3;
    let found = story.renewal(LAST);
    assert!(!matches!(found, Renewal::Due { .. }), "{found:?}");
}

/// Redis has not answered it, and what Redis hears of the hand-off comes behind it.
#[test]
fn a_release_that_set_a_shorter_lease_keeps_no_next_holder_from_being_renewed() {
    let mut story = Story::new();
    let (first, _) = story.grant(Lease::Watchdog);
    let (short, _) = story.grant((WATCHDOG / 2).into());
    let pending = story.give_back(first).expect("a release");
    story.holds().release_sent(pending, story.now);
    story.give_back(short);
    let (hold, _) = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    story.holds().takes(hold, WATCHDOG, story.now);
    let update = story.next_update().expect("another lease");
    story.record_update(update, 0);
    story.now += WATCHDOG / 2;
    assert!(matches!(story.renewal(NEXT), Renewal::Due { .. }));
}
