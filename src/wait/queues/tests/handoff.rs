//! What a hand-off inside the client does to the queue.

use super::*;

#[test]
fn a_lock_goes_to_the_head_that_sleeps_or_past_one_that_asks_for_the_first_time() {
    let next = |story: &Story| {
        story.queues.next_waiter(&story.names).map(|next| (next.ticket, next.passes))
    };
    let mut story = Story::new();
    let [(first, _), (second, _)] = [story.join_only(), story.join_only()];
    assert_eq!(next(&story), Some((first, false)));
    assert_eq!(story.step(first), WaitStep::Ask);
    assert_eq!(next(&story), Some((second, true)));
    story.refused(first);
    story.step(first);
    story.drive();
    assert_eq!(story.step(first), WaitStep::Ask);
    assert_eq!(next(&story), Some((second, true)), "it asks once more when it is subscribed");
    story.refused(first);
    assert_eq!(next(&story), Some((first, false)));
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    assert_eq!(next(&story), None, "it was passed, and would be again and again");
    story.refused(first);
    story.queues.close();
    assert_eq!(next(&story), None);
}

#[test]
fn a_head_that_hears_of_a_hand_off_with_a_short_lease_looks_when_that_could_have_ended() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    assert!(are(&story.handed(first), &[&wake]));
    assert_eq!(story.step(second), story.longest_park());
    // That holder has handed the lock on meanwhile, or past this head.
    assert!(are(&story.heard_hand_off(Some(SECOND)), &[&wake]));
    let due = story.now + SECOND + Duration::from_millis(1);
    assert_eq!(story.step(second), WaitStep::Park(Some(due)));
    // Where Redis has heard of nothing, that stays.
    story.heard_hand_off(None);
    assert_eq!(story.step(second), WaitStep::Park(Some(due)));
}

/// Redis keeps the lock for what is left of the lease before, until it hears of that of the new holder.
#[test]
fn a_head_looks_when_the_lease_ends_of_which_redis_has_heard() {
    let (mut story, [(first, _), (second, _)]) = Story::parked();
    let millis = Duration::from_millis;
    story.handed_for(first, millis(100));
    assert_eq!(story.step(second), WaitStep::Park(Some(story.now + millis(101))));
    story.heard_hand_off(None);
    assert_eq!(story.step(second), WaitStep::Park(Some(story.now + millis(101))));
    story.now += millis(10);
    for lease in [SECOND, 2 * SECOND] {
        story.heard_hand_off(Some(lease));
        let due = story.now + lease + millis(1);
        assert_eq!(story.step(second), WaitStep::Park(Some(due)));
    }
}

#[test]
fn a_refusal_that_may_be_from_before_a_hand_off_with_a_short_lease_makes_the_head_ask_again() {
    let (mut story, [(first, _), _]) = Story::parked();
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    story.heard_hand_off(Some(SECOND));
    story.refused(first);
    assert_eq!(story.step(first), WaitStep::Ask);
    story.refused(first);
    assert_eq!(story.step(first), story.longest_park());
}
