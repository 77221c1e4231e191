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
