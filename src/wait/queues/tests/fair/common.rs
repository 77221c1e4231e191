//! What comes on the common channel, where Redisson publishes.

use super::*;

/// The client knows that it is the first from a refusal, and its answer may come behind the message of the release
/// that followed.
#[test]
fn a_message_for_the_first_client_that_comes_before_a_refusal_has_its_head_ask_again() {
    for (is_first, comes) in [(true, true), (true, false), (false, true)] {
        let mut world = World::new();
        let names = world.names.clone();
        let first = world.join(1);
        // It was the first before.
        world.at().record_rank(&names, true);
        world.at().listens(&names, true);
        let plan = world.at().plan(1, |_| true);
        assert_eq!(*plan.subscribe, [Arc::from(names.common_channel())]);
        world.at().record_subscribed(&plan.subscribe, 1);
        assert!(world.asks(first));
        world.granted(first, HOUR);
        let second = world.join_only(2);
        world.now += ms(20);
        assert!(world.asks(second), "it brings the entry");
        if comes {
            world.at().record_message(names.common_channel(), Duration::ZERO);
        }
        world.at().record_rank(&names, is_first);
        world.refused(second, HOUR);
        assert_eq!(world.asks(second), is_first && comes, "{is_first}, {comes}");
        world.refused(second, HOUR);
        assert!(!world.asks(second), "once");
    }
}
