//! What becomes of the holds that were given back.

use tokio::sync::oneshot;

use super::handoff::NEXT;
use super::*;

#[test]
fn a_hold_is_lost_only_if_no_unanswered_release_was_about_it() {
    let story = Story::new();
    let grants = [(); 4].map(|()| story.grant(HOUR.into()));
    let validities = grants.each_ref().map(|(_, validity)| validity);
    let [answered, unanswered, refused, alone] = grants.each_ref().map(|(hold, _)| *hold);
    let gives_back = |hold| {
        let pending = story.give_back(hold).unwrap();
        story.holds().release_sent(pending, story.now);
        pending
    };
    let pending = gives_back(answered);
    story.holds().release_confirmed(pending);
    gives_back(unanswered);
    let pending = gives_back(refused);
    story.holds().release_not_executed(pending, false);
    gives_back(alone);
    // This one was sent once, and has found nothing.
    story.holds().forget_asked();
    story.lose(FoundBy::Release);
    assert_eq!(validities.map(|one| one.is_gone()), [false, false, true, true]);
    // Nor does an `unlock` say that this one was there to its end.
    let is_untold = |one| story.holds().is_untold(one);
    assert_eq!(validities.map(is_untold), [false, true, false, false]);
}

#[test]
fn a_loss_beside_a_request_leaves_what_that_is_about_to_its_answer() {
    for executed in [true, false] {
        let story = Story::new();
        let grants = [(); 3].map(|()| story.grant(HOUR.into()));
        let [(asked, first), (hold, second), (_, live)] = &grants;
        let permit = story.possession.try_permit().expect("the permit");
        let pending = story.give_back(*asked).unwrap();
        story.holds().release_sent(pending, story.now);
        story.give_back(*hold);
        assert_eq!(story.lose(FoundBy::Renewal), Some(true));
        assert_eq!([first, second, live].map(|one| one.is_gone()), [false, true, true]);
        if executed {
            story.holds().release_confirmed(pending);
        } else {
            story.holds().forget_asked();
        }
        drop(permit);
        assert_eq!(story.lose(FoundBy::Release), None, "it was reported");
        assert_eq!(first.is_gone(), !executed);
    }
}

#[test]
fn a_request_that_was_sent_twice_says_nothing_of_the_holds_before_it_and_a_later_one_is_lost() {
    let story = Story::new();
    let (hold, first) = story.grant(HOUR.into());
    story.give_back(hold);
    let (hold, second) = story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
    story.next_update().expect("a lease");
    story.give_back(hold);
    assert_eq!(story.lose(FoundBy::HandOff), Some(true));
    assert_eq!([&first, &second].map(|one| one.is_gone()), [false, true]);
    assert_eq!([&first, &second].map(|one| story.holds().is_untold(one)), [true, false]);
}

#[test]
fn who_awaits_the_answer_to_a_request_does_not_hear_of_a_loss_beside_it() {
    let story = Story::new();
    let (hold, _awaited) = story.grant(HOUR.into());
    story.give_back(hold);
    let (confirm, mut confirmation) = oneshot::channel();
    story.try_hand_off(NEXT, HOUR.into(), false, Some(confirm)).expect("a hand-off");
    let permit = story.possession.try_permit().expect("the permit");
    let update = story.next_update().expect("a lease");
    assert_eq!(story.lose(FoundBy::Renewal), Some(true));
    assert!(confirmation.try_recv().is_err(), "the request may have found the hold there");
    assert_eq!(story.record_update(update, 0).len(), 1);
    drop(permit);
}

#[test]
fn who_awaits_a_confirmation_of_a_lock_with_no_guard_has_it_from_its_release_or_hears_of_its_loss()
{
    let story = Story::given_back(HOUR.into());
    let (confirm, _confirmation) = oneshot::channel();
    let handed = story.try_hand_off(NEXT, HOUR.into(), false, Some(confirm));
    story.give_back(handed.expect("a hand-off").hold.0);
    assert!(story.next_update().is_none(), "its release says it");
    assert!(story.holds().take_confirms_of_lost().is_empty());
    let (next, _) = story.grant(HOUR.into());
    story.possession.take_back(story.now);
    story.give_back(next);
    assert!(story.holds().take_confirms_of_lost().is_empty(), "its client is shut down");
    story.lose(FoundBy::NestedAcquire);
    let (confirm, _confirmation) = oneshot::channel();
    let _ = story.holds().confirms_to(confirm);
    assert_eq!(story.holds().take_confirms_of_lost().len(), 1);
}

#[test]
fn an_unanswered_release_says_nothing_of_a_hold_after_it_once_nobody_asks_for_the_one_before() {
    let story = Story::new();
    let (dropped, validity) = story.grant(HOUR.into());
    let (hold, after) = story.grant(HOUR.into());
    let pending = story.give_back(dropped).expect("a release");
    story.holds().release_sent(pending, story.now);
    drop(validity);
    story.give_back(hold);
    story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
    story.lose(FoundBy::NestedAcquire);
    assert!(after.is_gone());
}

/// A guard that is dropped is still there when it hands the lock off.
#[test]
fn holds_that_no_call_awaits_are_forgotten_while_redis_is_silent() {
    let story = Story::new();
    let (mut hold, mut validity) = story.grant(HOUR.into());
    let mut kept = 0;
    for turn in 0..100 {
        story.give_back(hold);
        let before = validity;
        (hold, validity) = story.hand_off(NEXT + turn, HOUR.into()).expect("a hand-off");
        drop(before);
        kept = kept.max(story.holds().unconfirmed().len());
    }
    assert!(kept <= 2, "{kept}");
}
