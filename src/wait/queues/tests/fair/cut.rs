//! A client whose connection is cut while it has an entry.

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
        world.at().record_cut(1);
        if asking {
            // Its request may say that it hears, and the answer says nothing of that.
            world.refused(first, HOUR);
        }
        assert!(world.asks(first), "Redis would count its client as dead");
        let said = ServerClock { asked: world.now, said: 1, round_trip: Duration::ZERO };
        world.queues.subscriptions.want(world.names.channel(), &world.names);
        assert!(
            !world.queues.subscriptions.is_live(world.names.channel()),
            "{said:?} of which server?"
        );
        world.refused(first, HOUR);
        world.at().record_cut(1);
        let plan = world.at().plan(2, |_| true);
        world.at().record_unsubscribed(&plan.subscribe, 2);
        assert!(!world.asks(first), "it has said so");
        let plan = world.at().plan(2, |_| true);
        world.at().record_subscribed(&plan.subscribe, 2);
        assert!(world.asks(first));
        world.refused(first, HOUR);
        // The slot of the channel has moved.
        world.queues.take_effects();
        world.at().record_unsubscribed(&plan.subscribe, 2);
        assert_eq!(world.queues.take_effects().wake, [1.into()]);
        assert!(world.asks(first));
        world.leave(first);
    }
}

#[test]
fn a_head_without_an_entry_does_not_ask_because_its_connection_is_cut() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.granted(first, HOUR);
    world.at().record_cut(1);
    assert!(!world.asks(second), "the release brings its entry");
}
