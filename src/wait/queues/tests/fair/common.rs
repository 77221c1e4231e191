//! What comes on the common channel, where Redisson publishes.

use super::*;

/// The client knows that it is the first from a refusal, and its answer may come behind the message of the release
/// that followed: unless Redis has granted the lock to this client by that release.
#[test]
fn a_message_for_the_first_client_that_comes_before_a_refusal_has_its_head_ask_again() {
    for [is_first, comes, grants] in
        [[true, true, false], [true, true, true], [true, false, false], [false, true, false]]
    {
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
        if grants {
            world.entry().record_granted_at(1).expect("a new one");
        }
        if comes {
            world.at().record_message(names.common_channel(), Duration::ZERO);
        }
        world.at().record_rank(&names, is_first);
        world.refused(second, HOUR);
        let asks = is_first && comes && !grants;
        assert_eq!(world.asks(second), asks, "{is_first}, {comes}, {grants}");
        world.refused(second, HOUR);
        assert!(!world.asks(second), "once");
    }
}
