//! A lock in a gap, as one hold state sees it.

use tokio::sync::oneshot;

use super::handoff::{LAST, NEXT};
use super::*;
use crate::error::Error;
use crate::possession::gap::LeftInGap;

/// The holder whose guard is the only one gives it back, and leaves the lock in a gap.
fn leave(story: &Story, hold: HoldId) -> Option<LeftInGap> {
    story.give_back(hold);
    story.possession.begin_gap(&story.config, story.now, Duration::ZERO)
}

/// The second holder of a lock that was handed off, with a lease. The first one waits for its confirmation.
fn second(lease: Lease) -> (Story, HoldId, oneshot::Receiver<Result<bool, Error>>) {
    let story = Story::given_back(Lease::Watchdog);
    let (confirm, confirmation) = oneshot::channel();
    let handed = story.try_hand_off(NEXT, lease, false, Some(confirm)).expect("a hand-off");
    let hold = handed.hold.0;
    story.holds().takes(hold, WATCHDOG, story.now);
    (story, hold, confirmation)
}

#[test]
fn a_lock_is_left_in_a_gap_only_while_another_caller_waits() {
    let story = Story::new();
    let (hold, _) = story.grant(Lease::Watchdog);
    assert!(leave(&story, hold).is_none(), "no caller waits");
    let story = Story::given_back(Lease::Watchdog);
    let hold = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off").0;
    assert!(leave(&story, hold).is_none(), "that one does not wait");
    let (story, hold, first) = second(Lease::Watchdog);
    drop(first);
    assert!(leave(&story, hold).is_none(), "that one has given up");
    let (story, hold, _first) = second(Lease::Watchdog);
    assert!(leave(&story, hold).is_some());
}

/// Redis has heard by then of the lease of a call that takes it.
#[test]
fn a_lock_is_left_in_a_gap_only_if_its_lease_lasts_for_four_round_trips() {
    for (parts, is_long_enough) in [(4, false), (5, true)] {
        let (story, hold, _first) = second(Lease::Watchdog);
        story.give_back(hold);
        let left = story.possession.begin_gap(&story.config, story.now, WATCHDOG / parts);
        assert_eq!(left.is_some(), is_long_enough, "{parts}");
    }
}

#[test]
fn no_call_takes_a_lock_in_a_gap_that_an_operator_has_freed() {
    let (story, hold, _first) = second(Lease::Watchdog);
    let _left = leave(&story, hold).expect("a gap");
    story.holds().shut_gap();
    assert!(story.hand_off(LAST, Lease::Watchdog).is_none());
    assert!(story.next_update().is_some(), "both wait for what Redis says");
}

#[test]
fn a_lock_that_could_not_be_handed_off_is_left_in_no_gap() {
    let (mut story, hold, _first) = second(Lease::Watchdog);
    story.now += WATCHDOG;
    assert!(leave(&story, hold).is_none(), "its lease has ended");
    let (story, hold, _first) = second(Lease::Watchdog);
    let permit = story.possession.try_permit();
    assert!(leave(&story, hold).is_none(), "another request is under way");
    story.holds().set_updating(true);
    let left = story.possession.begin_gap(&story.config, story.now, Duration::ZERO);
    assert!(left.is_some(), "it is that of the hand-off");
    drop(permit);
    let (mut story, hold, _first) = second(Lease::Watchdog);
    let update = story.next_update().expect("what the first one waits for");
    story.record_update(update, 1);
    let (confirm, _second) = oneshot::channel();
    story.give_back(hold);
    let round_trip = WATCHDOG / 8;
    story.now += round_trip;
    story.config.max_handoff_time = round_trip / 2;
    story.holds().confirms_to(confirm);
    let begin = |now, round_trip| story.possession.begin_gap(&story.config, now, round_trip);
    assert!(begin(story.now, Duration::ZERO).is_none(), "it is the turn of others");
    let before = story.now - round_trip;
    assert!(begin(before, round_trip).is_none(), "it is when Redis has answered");
    assert!(begin(before, Duration::ZERO).is_some());
}

#[test]
fn redis_keeps_a_lock_in_a_gap_no_longer_than_for_its_last_holder() {
    let (mut story, hold, _first) = second(Lease::Watchdog);
    let _left = leave(&story, hold).expect("a gap");
    let update = story.next_update().expect("what both wait for");
    assert_eq!((update.count, update.lease, update.confirms), (1, WATCHDOG, 2));
    // A lease of which Redis has not heard went with its holder.
    for lease in [WATCHDOG / 4, HOUR] {
        story = Story::given_back(HOUR.into());
        let until = story.holds().until().expect("a lease");
        let (confirm, _confirmation) = oneshot::channel();
        let handed = story.try_hand_off(NEXT, lease.into(), false, Some(confirm)).unwrap();
        let _left = leave(&story, handed.hold.0).expect("a gap");
        story.now += HOUR / 4;
        let update = story.next_update().expect("what both wait for");
        let left = until - story.now;
        assert!(update.lease >= left && update.lease <= left + HOUR / 50, "{update:?}");
    }
}

#[test]
fn the_next_handle_has_a_lock_that_is_in_a_gap_and_it_ends() {
    let (story, hold, mut first) = second(Lease::Watchdog);
    let mut left = leave(&story, hold).expect("a gap");
    assert!(story.holds().is_in_gap() && !left.needs_update, "the client's thread is on its way");
    assert!(story.possession.registry.in_gap(&story.possession.names).is_some());
    let handed = story.try_hand_off(LAST, Lease::Watchdog, false, None).expect("a hand-off");
    assert!(handed.gap.is_some() && !story.holds().is_in_gap());
    story.possession.announce_end(handed.gap);
    assert!(left.ended.try_recv() == Err(oneshot::error::TryRecvError::Closed));
    assert!(story.possession.registry.in_gap(&story.possession.names).is_none());
    assert!(first.try_recv().is_err() && left.confirmation.try_recv().is_err(), "Redis says that");
    let update = story.next_update().expect("what both wait for");
    assert_eq!(story.record_update(update, 0).len(), 2);
}

/// No caller came back: the release is next, and confirms who still waits.
#[test]
fn a_lock_is_released_after_an_answer_in_the_gap() {
    let (story, hold, _first) = second(Lease::Watchdog);
    let update = story.next_update().expect("what the first one waits for");
    let _left = leave(&story, hold).expect("a gap");
    assert!(!story.holds().gap_needs_release(), "the client's thread is on its way");
    assert_eq!(story.record_update(update, 0).len(), 1);
    assert_eq!((story.next_update(), story.holds().confirmations_due()), (None, 1));
    assert!(story.holds().gap_needs_release());
    assert!(
        story.holds().end_of_gap_by_holder().is_none(),
        "its last holder waits for the release"
    );
    let pending = story.pending().expect("a release");
    assert_eq!(pending.count, 0);
    story.holds().release_sent(pending, story.now);
    assert!(story.hand_off(LAST, Lease::Watchdog).is_none(), "a release is on its way");
    assert_eq!(story.next_update(), None);
}

/// If the release followed the first answer, those that come back would have to ask Redis for the lock.
#[test]
fn another_request_follows_an_answer_in_the_gap_while_others_than_the_last_holder_wait() {
    let (story, hold, _first) = second(Lease::Watchdog);
    let update = story.next_update().expect("what the first one waits for");
    story.give_back(hold);
    let (confirm, _second) = oneshot::channel();
    let handed = story.try_hand_off(LAST, Lease::Watchdog, false, Some(confirm));
    let last = handed.expect("a hand-off").hold.0;
    let _left = leave(&story, last).expect("a gap");
    assert_eq!(story.record_update(update, 0).len(), 1);
    let update = story.next_update().expect("what two wait for");
    assert_eq!((update.count, update.confirms), (1, 2));
    assert_eq!(story.record_update(update, 0).len(), 2);
    assert!(story.next_update().is_none() && story.holds().gap_needs_release());
    assert!(story.holds().end_of_gap_by_holder().is_some(), "its last holder sees to it");
}

/// A renewal that was sent before it began finds that, too: else another handle would have the lock.
#[test]
fn a_loss_ends_the_gap() {
    for by in [FoundBy::HandOff, FoundBy::Renewal] {
        let (story, hold, mut first) = second(Lease::Watchdog);
        let mut left = leave(&story, hold).expect("a gap");
        story.lose(by);
        assert!(left.ended.try_recv() == Err(oneshot::error::TryRecvError::Closed), "{by:?}");
        for confirmation in [&mut first, &mut left.confirmation] {
            assert!(!confirmation.try_recv().expect("an answer").expect("what it says"));
        }
        assert!(story.hand_off(LAST, Lease::Watchdog).is_none(), "{by:?}");
    }
}

/// The request that is under way may yet be executed: its undo stays pending.
#[test]
fn the_release_follows_a_loss_that_a_renewal_finds_beside_the_request_in_the_gap() {
    let (story, hold, mut first) = second(Lease::Watchdog);
    let _left = leave(&story, hold).expect("a gap");
    let permit = story.possession.try_updating().expect("the permit");
    story.next_update().expect("what both wait for");
    story.lose(FoundBy::Renewal);
    assert!(first.try_recv().is_err(), "its answer says that");
    assert!(story.hand_off(LAST, Lease::Watchdog).is_none(), "it is lost");
    assert_eq!(story.next_update(), None);
    drop(permit);
    assert!(story.holds().gap_needs_release() && story.pending().is_some());
    story.lose(FoundBy::Release);
    assert!(!story.holds().is_in_gap() && story.pending().is_none());
}

/// The release may be why the lock is gone.
#[test]
fn a_renewal_that_finds_nothing_beside_a_release_ends_no_gap() {
    let (story, hold, _first) = second(Lease::Watchdog);
    let _left = leave(&story, hold).expect("a gap");
    let pending = story.pending().expect("a release");
    story.holds().release_sent(pending, story.now);
    assert_eq!(story.lose(FoundBy::Renewal), None);
    assert!(story.holds().is_in_gap());
}

/// If another request followed, each would have Redis keep the lock for a whole lease.
#[test]
fn the_release_follows_a_request_in_the_gap_that_was_not_answered() {
    let (story, hold, _first) = second(Lease::Watchdog);
    let left = leave(&story, hold).expect("a gap");
    story.next_update().expect("what both wait for");
    story.holds().stop_requests_in_gap();
    assert_eq!(story.next_update(), None);
    assert!(story.holds().gap_needs_release() && story.pending().is_some());
    drop(left);
    story.holds().take_confirms(usize::MAX);
    assert!(story.holds().end_of_gap_by_holder().is_none(), "its last holder has gone");
}
