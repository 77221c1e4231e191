//! What many locks that are waited for cost the others.

use super::*;

/// How long it takes to wait for another lock a hundred times, while so many are waited for.
fn waits_beside(parked: usize) -> Duration {
    let mut story = Story::new();
    let mut wait_for = |name: String| {
        story.names = Arc::new(Names::new("", &name));
        let (ticket, _) = story.join();
        assert!(story.dirty().0, "it has to be subscribed");
        story.drive();
        assert!(!story.dirty().0 && !story.queues.any_in_order());
        if name.starts_with("another") {
            story.leave(ticket);
            assert!(story.dirty().0);
            let plan = story.plan();
            assert_eq!(plan.unsubscribe.len(), 1);
        }
    };
    (0..parked).for_each(|number| wait_for(format!("parked:{number}")));
    let begun = Instant::now();
    (0..100).for_each(|number| wait_for(format!("another:{number}")));
    begun.elapsed()
}

#[test]
fn to_wait_for_a_lock_takes_no_longer_beside_many_others_that_are_waited_for() {
    // The machine may keep this thread waiting in any of them.
    let least = |parked| (0..10).map(|_| waits_beside(parked)).min().expect("ten times");
    let (few, many) = (least(10), least(20_000));
    assert!(many < 20 * few, "{few:?} beside few, {many:?} beside many");
}

#[test]
fn locks_in_order_for_which_no_call_waits_any_more_are_looked_at_once() {
    let mut story = Story::new();
    let wait_for = |story: &mut Story, number: usize| {
        let name = number.to_string();
        story.names = Arc::new(
            Names::new("", &name).with_own_channel("0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968"),
        );
        let (ticket, _) = story.join();
        story.drive();
        ticket
    };
    for number in 0..100 {
        let ticket = wait_for(&mut story, number);
        assert!(story.queues.any_in_order());
        story.leave(ticket);
    }
    story.now += 60 * SECOND;
    story.plan();
    assert!(!story.queues.any_in_order() && story.queues.in_order.is_empty());
    wait_for(&mut story, 7);
    assert!(story.queues.any_in_order());
}
