//! What many locks that are waited for cost the others.

use super::*;

/// How long it takes to wait for another lock a hundred times, while so many are waited for. The server of those may be
/// away: then no driver subscribes them.
fn waits_beside(parked: usize, is_away: bool) -> Duration {
    let mut story = Story::new();
    let mine = |channel: &str| !is_away || !channel.contains("parked");
    let mut wait_for = |name: String| {
        let is_mine = mine(&name);
        story.names = Arc::new(Names::new("", &name));
        let (ticket, _) = story.join();
        assert_eq!(story.dirty_for(mine).0, is_mine, "it has to be subscribed");
        let plan = story.plan_for(mine);
        story.at().record_subscribed(&plan.subscribe, ON);
        assert_eq!(plan.subscribe.len(), usize::from(is_mine));
        assert!(!story.dirty_for(mine).0 && !story.queues.any_in_order());
        if name.starts_with("another") {
            story.leave(ticket);
            assert!(story.dirty_for(mine).0);
            let plan = story.plan_for(mine);
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
    for (crowd, is_away) in [(20_000, false), (2_000, true)] {
        // The machine may keep this thread waiting in any of them.
        let least = |parked| {
            let times = (0..10).map(|_| waits_beside(parked, is_away));
            times.min().expect("ten times")
        };
        let (few, many) = (least(10), least(crowd));
        assert!(many < 20 * few, "{few:?} beside few, {many:?} beside many, away: {is_away}");
    }
}

#[test]
fn a_driver_looks_again_at_what_was_for_no_server_if_that_has_changed() {
    let mut story = Story::new();
    let (ticket, _) = story.join();
    assert!(!story.dirty_for(|_| false).0 && story.plan_for(|_| false) == Plan::default());
    assert!(!story.dirty().0, "it has looked");
    story.looked = Looked::default();
    assert!(story.dirty().0);
    assert_eq!(story.plan().subscribe.len(), 1);
    story.cut();
    assert!(story.dirty().0, "each cut is a wish of its own");
    story.leave(ticket);
    assert!(!story.dirty().0 && story.queues.subscriptions.is_empty());
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
