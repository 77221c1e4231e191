//! Places in queues that Redis keeps, as one client knows of them.

use super::*;
use crate::clock;
use crate::wait::queue::WaitStep;

mod cut;

const CHANNEL: &str = "channel";
const KEY: &str = "lock";
const HOUR: Duration = Duration::from_secs(3600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

struct World {
    queues: WaitQueues<u32>,
    now: Instant,
}

impl World {
    /// A queue whose channel is subscribed.
    fn new() -> Self {
        Self { queues: WaitQueues::default(), now: crate::clock::now() }
    }

    fn join(&mut self, waiter: u32) -> Ticket {
        self.join_at(None, waiter)
    }

    fn join_at(&mut self, ticket: Option<Ticket>, waiter: u32) -> Ticket {
        let left = Some(HOUR);
        let (ticket, _) = self.queues.join(CHANNEL, KEY, left, ticket, waiter.into(), self.now);
        self.queues.takes_place(CHANNEL, ticket, left, false, self.now);
        let plan = self.queues.plan(self.now, 1, |_| true);
        self.queues.subscribed(&plan.subscribe, 1, self.now);
        ticket
    }

    fn asks(&mut self, ticket: Ticket) -> bool {
        self.queues.step(CHANNEL, ticket, self.now) == WaitStep::Ask
    }

    fn refused(&mut self, ticket: Ticket, left: Duration) {
        self.queues.refused(CHANNEL, ticket, Some(left), self.now);
    }
}

#[test]
fn the_next_head_asks_soon_after_a_grant() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert!(!world.asks(first) && !world.asks(second));
    world.queues.message(CHANNEL, world.now);
    assert!(world.asks(first));
    let (head, _) = world.queues.granted(CHANNEL, first, HOUR, world.now);
    assert_eq!(head.as_deref(), Some(&2));
    assert!(!world.asks(second), "the lock may be handed to it");
    world.now += ms(10);
    assert!(world.asks(second), "Redis does not know that it waits");
}

#[test]
fn the_next_head_asks_before_a_short_lease_ends() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.queues.granted(CHANNEL, first, ms(6), world.now);
    assert!(!world.asks(second));
    world.now += ms(3);
    assert!(world.asks(second), "a call that does not wait would go before it");
}

#[test]
fn a_head_that_leaves_costs_nothing_and_the_last_one_gives_the_place_up() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    world.queues.leave(CHANNEL, first, world.now);
    assert!(!world.asks(second), "it costs nothing");
    assert!(!world.queues.gives_place_up(CHANNEL, KEY), "the second waits");
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), None);
    world.queues.message(CHANNEL, world.now);
    assert!(world.asks(second));
    world.refused(second, HOUR);
    world.queues.leave(CHANNEL, second, world.now);
    assert!(world.queues.gives_place_up(CHANNEL, KEY));
    assert!(!world.queues.gives_place_up(CHANNEL, KEY), "once");
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), Some(second));
}

#[test]
fn the_call_that_came_first_stands_for_the_client_in_the_queue_or_not() {
    let mut world = World::new();
    let oldest = |world: &mut World| world.queues.oldest(CHANNEL, KEY, false, world.now);
    assert_eq!(oldest(&mut world), Oldest::Left(0));
    let [old, young] = [1, 2].map(|millis| {
        let since = world.now + ms(millis);
        (world.queues.first_place_begins(KEY, since), since)
    });
    assert_eq!(oldest(&mut world), Oldest::Comes(old.0, old.1));
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), None);
    // The younger one is refused first.
    world.join_at(Some(young.0), 2);
    world.queues.first_place_ends(KEY, young.0);
    assert_eq!(oldest(&mut world), Oldest::Comes(old.0, old.1));
    world.join_at(Some(old.0), 1);
    world.queues.first_place_ends(KEY, old.0);
    assert_eq!(oldest(&mut world), Oldest::Head(old.0, 1.into()));
    world.queues.granted(CHANNEL, old.0, HOUR, world.now);
    assert_eq!(oldest(&mut world), Oldest::Head(young.0, 2.into()));
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), None, "it is in the queue");
    world.queues.leave(CHANNEL, young.0, world.now);
    assert!(world.queues.gives_place_up(CHANNEL, KEY));
    assert_eq!(oldest(&mut world), Oldest::Left(young.0));
    world.queues.first_place_begins(KEY, world.now);
    world.queues.close();
    assert_eq!(oldest(&mut world), Oldest::Left(young.0 + 1), "it would outlive its waiter");
}

#[test]
fn a_place_that_is_given_up_is_not_that_of_a_waiter_that_has_yet_to_ask() {
    let mut world = World::new();
    let first = world.join(1);
    assert!(world.asks(first));
    world.queues.handed(CHANNEL, first, HOUR, world.now);
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), Some(first));
    world.join(2);
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), Some(first));
}

#[test]
fn who_came_first_is_the_head_and_asks_for_what_the_head_before_it_was_to_ask() {
    for told in [false, true] {
        let mut world = World::new();
        let first = world.queues.first_place_begins(KEY, world.now);
        let second = world.join(2);
        assert!(world.asks(second));
        // A message comes that the answer may not know of, and the first one is refused.
        if told {
            world.queues.message(CHANNEL, world.now);
        } else {
            world.refused(second, HOUR);
        }
        world.join_at(Some(first), 1);
        world.queues.first_place_ends(KEY, first);
        if told {
            world.refused(second, HOUR);
        }
        assert!(!world.asks(second) && world.asks(first));
    }
}

#[test]
fn a_first_try_that_does_not_come_within_the_grace_is_not_waited_for() {
    let mut world = World::new();
    let first = world.queues.first_place_begins(KEY, world.now);
    let since = world.now;
    let second = world.join(2);
    world.now += ms(999);
    assert_eq!(world.queues.oldest(CHANNEL, KEY, false, world.now), Oldest::Comes(first, since));
    assert!(world.queues.is_behind(KEY, second, world.now));
    world.now += ms(1);
    assert_eq!(world.queues.oldest(CHANNEL, KEY, false, world.now), Oldest::Head(second, 2.into()));
    assert!(!world.queues.is_behind(KEY, second, world.now));
    let third = world.queues.first_place_begins(KEY, world.now);
    assert!(!world.queues.is_behind(KEY, second, world.now));
    world.queues.first_place_ends(KEY, third);
    world.queues.leave(CHANNEL, second, world.now);
    assert!(world.queues.gives_place_up(CHANNEL, KEY));
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), Some(third));
    // It stands first again when it comes.
    assert_eq!(world.join_at(Some(first), 1), first);
    assert!(world.asks(first));
}

#[test]
fn the_head_asks_for_a_place_soon_after_a_grant_to_a_first_try() {
    let mut world = World::new();
    let second = world.join(2);
    assert!(world.asks(second));
    world.refused(second, HOUR);
    assert_eq!(world.queues.granted_first(CHANNEL, KEY, HOUR, world.now), [2.into()]);
    assert!(!world.asks(second) && world.queues.heads_with_places().is_empty());
    world.now += ms(10);
    assert!(world.asks(second));
}

#[test]
fn a_waiter_that_never_asked_or_was_granted_leaves_no_place() {
    let mut world = World::new();
    let first = world.join(1);
    world.queues.leave(CHANNEL, first, world.now);
    assert!(!world.queues.gives_place_up(CHANNEL, KEY));
    let second = world.join(2);
    assert!(world.asks(second));
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), None);
    assert_eq!(world.queues.heads_with_places(), [2.into()]);
    world.queues.granted(CHANNEL, second, HOUR, world.now);
    assert!(!world.queues.gives_place_up(CHANNEL, KEY));
    assert!(world.queues.heads_with_places().is_empty());
    let third = world.join(3);
    assert!(world.asks(third), "what it could have heard says nothing of its place");
}

#[test]
fn a_message_says_when_to_ask_and_never_later_than_before() {
    let mut world = World::new();
    let first = world.join(1);
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert_eq!(world.queues.told(CHANNEL, ms(1_000), world.now).len(), 1);
    assert_eq!(
        world.queues.step(CHANNEL, first, world.now),
        WaitStep::Park(Some(world.now + ms(1_000)))
    );
    world.queues.told(CHANNEL, ms(2_000), world.now);
    assert!(!world.asks(first));
    world.now += ms(1_000);
    assert!(world.asks(first));
    // The answer may be older than a message that comes meanwhile.
    world.queues.told(CHANNEL, ms(1_000), world.now);
    world.refused(first, HOUR);
    assert!(world.asks(first));
}

#[test]
fn the_lock_is_handed_off_to_who_came_before_all_others_and_before_that_was_known() {
    let mut world = World::new();
    let first = world.join(1);
    let came = world.now;
    let next = |world: &mut World, since| world.queues.is_next(CHANNEL, KEY, since);
    assert!(!next(&mut world, came), "nothing is known");
    let as_of = came + ms(20);
    let answered = as_of;
    world.queues.heard(CHANNEL, KEY, OldestForeignWaiter { as_of, answered, oldest: None });
    assert!(next(&mut world, came) && next(&mut world, as_of));
    assert!(!next(&mut world, as_of + ms(1)), "others may have come before it");
    let oldest = Some(came + ms(10));
    world.queues.heard(CHANNEL, KEY, OldestForeignWaiter { as_of, answered, oldest });
    assert!(next(&mut world, came + ms(10)) && !next(&mut world, came + ms(11)));
    let older = OldestForeignWaiter { as_of: came, answered, oldest: None };
    world.queues.heard(CHANNEL, KEY, older);
    assert!(next(&mut world, came + ms(10)), "an answer came late");
    world.queues.leave(CHANNEL, first, world.now);
}

#[test]
fn what_the_clock_of_a_server_said_counts_until_its_connection_is_cut() {
    let mut world = World::new();
    let first = world.join(1);
    let clock = |world: &mut World, at| world.queues.granted_at(CHANNEL, KEY, at);
    assert_eq!(clock(&mut world, 1), Some(None));
    let said = ServerClock { asked: world.now, said: 1, trip: Duration::ZERO };
    world.queues.set_clock(CHANNEL, KEY, said);
    assert_eq!(clock(&mut world, 2), Some(Some(said)));
    world.queues.cut(1, world.now);
    assert_eq!(clock(&mut world, 3), Some(None), "another server may be responsible now");
    world.queues.leave(CHANNEL, first, world.now);
}

#[test]
fn a_grant_counts_once_and_one_older_than_another_is_judged_by_no_clock() {
    let mut world = World::new();
    let first = world.join(1);
    let said = ServerClock { asked: world.now, said: 1, trip: Duration::ZERO };
    world.queues.set_clock(CHANNEL, KEY, said);
    for (at, judged) in
        [(5, Some(Some(said))), (5, None), (7, Some(Some(said))), (6, Some(None)), (7, None)]
    {
        assert_eq!(world.queues.granted_at(CHANNEL, KEY, at), judged, "{at}");
    }
    world.queues.leave(CHANNEL, first, world.now);
}

#[test]
fn nobody_passes_a_head_that_asks() {
    let mut world = World::new();
    let (first, _) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    assert_eq!(world.queues.next_waiter(CHANNEL, KEY), None, "the second came later");
    world.refused(first, HOUR);
    let next = world.queues.next_waiter(CHANNEL, KEY);
    assert_eq!(next, Some((first, &Arc::new(1), false)));
}

#[test]
fn the_next_head_asks_soon_after_redis_has_heard_of_a_hand_off() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    world.queues.handed(CHANNEL, first, HOUR, world.now);
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), Some(first));
    world.now += ms(1_000);
    assert!(!world.asks(second), "it may have the next hand-off");
    world.queues.handed_off(CHANNEL, KEY, Some(HOUR), world.now);
    world.now += ms(10);
    assert!(world.asks(second));
}

#[test]
fn a_waiter_that_was_handed_the_lock_has_no_place_and_the_next_one_has_it() {
    let mut world = World::new();
    let first = world.join(1);
    assert!(world.asks(first));
    world.refused(first, HOUR);
    let second = world.join(2);
    world.queues.handed(CHANNEL, first, HOUR, world.now);
    assert_eq!(world.queues.oldest(CHANNEL, KEY, false, world.now), Oldest::Head(second, 2.into()));
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), None);
    assert_eq!(world.queues.heads_with_places(), [2.into()]);
    world.queues.handed(CHANNEL, second, HOUR, world.now);
    assert_eq!(world.queues.oldest(CHANNEL, KEY, false, world.now), Oldest::Left(second));
    assert_eq!(world.queues.leaves_queue(CHANNEL, KEY, world.now), Some(second));
}

#[test]
fn a_head_whose_place_came_with_a_hand_off_does_not_ask_for_one() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    world.queues.handed(CHANNEL, first, HOUR, world.now);
    assert_eq!(world.queues.oldest(CHANNEL, KEY, false, world.now), Oldest::Head(second, 2.into()));
    world.queues.handed_off(CHANNEL, KEY, Some(HOUR), world.now);
    world.now += ms(1_000);
    assert!(!world.asks(second));
}

#[test]
fn news_that_came_late_are_news_of_then() {
    let begun = clock::now();
    let mut trip = super::Trip::default();
    let mut until = |asked, took| {
        let as_of = begun + ms(asked);
        let news = OldestForeignWaiter { as_of, answered: as_of + ms(took), oldest: None };
        trip.news_of_then(news).answered - as_of
    };
    // A process that was stopped as soon as it had asked.
    assert_eq!((until(0, 300), until(1, 299)), (ms(0), ms(0)), "that may be too long");
    assert_eq!(until(310, 8), ms(8));
    assert_eq!(until(320, 9), ms(9), "a little slower");
    // The process was stopped before it read many answers.
    for asked in 340..360 {
        assert!(until(asked, 740 - asked) < ms(11));
    }
    assert!(until(1_000, 400) < ms(13));
    // The network has become slower.
    for nth in 0..30 {
        until(2_000 + 100 * nth, 80);
    }
    assert_eq!(until(6_000, 80), ms(80));
}
