//! A client whose connection is cut while it has a place.

use super::*;

#[test]
fn a_head_whose_connection_is_cut_says_at_once_that_it_comes() {
    for asking in [false, true] {
        let mut world = World::new();
        let first = world.join(1);
        assert!(world.asks(first));
        if !asking {
            world.refused(first, HOUR);
            assert!(!world.asks(first));
        }
        world.queues.cut(1, world.now);
        if asking {
            // Its request may say that it hears, and the answer says nothing of that.
            world.refused(first, HOUR);
        }
        assert!(world.asks(first), "Redis would count its client as dead");
        let said = ServerClock { asked: world.now, said: 1, trip: Duration::ZERO };
        world.queues.set_clock(CHANNEL, KEY, said);
        assert_eq!(world.queues.granted_at(CHANNEL, KEY, 2), Some(None), "of which server?");
        world.refused(first, HOUR);
        world.queues.cut(1, world.now);
        let plan = world.queues.plan(world.now, 2, |_| true);
        world.queues.not_subscribed(&plan.subscribe, 2, world.now);
        assert!(!world.asks(first), "it has said so");
        let plan = world.queues.plan(world.now, 2, |_| true);
        world.queues.subscribed(&plan.subscribe, 2, world.now);
        assert!(world.asks(first));
        world.refused(first, HOUR);
        // The slot of the channel has moved.
        assert_eq!(world.queues.not_subscribed(&plan.subscribe, 2, world.now), [1.into()]);
        assert!(world.asks(first));
        world.queues.leave(CHANNEL, first, world.now);
    }
}

#[test]
fn a_head_without_a_place_does_not_ask_because_its_connection_is_cut() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.queues.granted(CHANNEL, first, HOUR, world.now);
    world.queues.cut(1, world.now);
    assert!(!world.asks(second), "the release brings its place");
}
