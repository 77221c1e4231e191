//! What this client knows of its place in a queue of clients that Redis keeps: pure state.
//!
//! 1. **The head of the wait queue stands for its client.** It asks as soon as it is the head of a
//!    queue with no place, so that Redis knows how old the oldest waiter of this client is. While
//!    this client has the lock, that can wait for a while: the release brings the place.
//! 2. A place goes with a grant, and is given up when the last waiter leaves. A waiter that leaves
//!    others behind costs nothing: the next request says how old the new head is, and moves the
//!    place.
//! 3. Where Redis keeps a queue, this client defers to nobody.
//! 4. **The lock is handed off inside this client only to a waiter that came before all others.** How
//!    old those are, Redis says with each grant and each hand-off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::protocol::{Elsewhere, ServerClock};

use super::channel::park_for;
use super::{Ticket, WaitQueues, Wakes};

impl<S> WaitQueues<S> {
    /// The waiter has just joined a queue that Redis keeps, too. `placed` says that it has asked before.
    pub(crate) fn takes_place(
        &mut self,
        channel: &str,
        ticket: Ticket,
        left: Option<Duration>,
        placed: bool,
        now: Instant,
    ) {
        let live = self.is_live(channel);
        let Some(queue) = self.queue_of(channel, ticket) else { return };
        let place = queue.place.get_or_insert_default();
        if placed {
            place.asks();
        }
        if queue.entries.len() == 1 {
            queue.due =
                if live { now } else { left.map_or(now, |left| now + park_for(Some(left))) };
        }
    }

    /// A call that had asked for a place went before it was in the queue.
    pub(crate) fn first_place_left(&mut self, channel: &str, key: &str) {
        if let Some(place) = self.queue_named(channel, key).and_then(|queue| queue.place.as_mut()) {
            place.left();
        }
    }

    /// Whether the head's next request moves the place.
    pub(crate) fn moves_place(&mut self, channel: &str, ticket: Ticket) -> bool {
        let queue = self.queue_of(channel, ticket);
        queue.and_then(|queue| queue.place).is_some_and(|place| place.moves())
    }

    /// Whether a place is left with no waiter. From here on there is none.
    pub(crate) fn gives_place_up(&mut self, channel: &str, key: &str) -> bool {
        let Some(queue) = self.queue_named(channel, key) else { return false };
        if !queue.entries.is_empty() {
            return false;
        }
        queue.place.as_mut().is_some_and(|place| place.give_up())
    }

    /// Whether a waiter has asked for a place.
    pub(crate) fn has_place(&mut self, channel: &str, key: &str) -> bool {
        let queue = self.queue_named(channel, key);
        queue.and_then(|queue| queue.place).is_some_and(|place| place.is_taken())
    }

    /// The heads of all queues in which this client has a place.
    pub(crate) fn heads_with_places(&self) -> Vec<Arc<S>> {
        let queues = self.channels.values().flat_map(|channel| &channel.queues);
        let placed = queues.filter(|queue| queue.place.is_some_and(|place| place.is_taken()));
        placed.filter_map(|queue| queue.head_waiter()).collect()
    }

    /// The same, when the client closes: from here on it has no place.
    pub(super) fn give_places_up(&mut self) -> Vec<Arc<S>> {
        let heads = self.heads_with_places();
        for queue in self.channels.values_mut().flat_map(|channel| &mut channel.queues) {
            if let Some(place) = &mut queue.place {
                place.give_up();
            }
        }
        heads
    }

    /// Whether a waiter of this client is in a queue that Redis keeps, too.
    pub(crate) fn any_in_order(&self) -> bool {
        let mut queues = self.channels.values().flat_map(|channel| &channel.queues);
        queues.any(|queue| queue.place.is_some() && !queue.entries.is_empty())
    }

    /// A request brings the place of this client to Redis. Returns the waiter that has it: the first
    /// one, whether or not it is asking.
    pub(crate) fn brings_place(&mut self, channel: &str, key: &str) -> Option<Arc<S>> {
        // A place would outlive its waiters.
        if self.closed {
            return None;
        }
        let queue = self.queue_named(channel, key)?;
        let head = queue.head_waiter()?;
        queue.place.get_or_insert_default().asks();
        Some(head)
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(crate) fn heard(&mut self, channel: &str, key: &str, elsewhere: Elsewhere) {
        let elsewhere = self.news_of_then(elsewhere);
        if let Some(place) = self.queue_named(channel, key).and_then(|queue| queue.place.as_mut()) {
            place.heard(elsewhere);
        }
    }

    /// The same, and no news of later than of twice the time that answers take. An answer that takes
    /// longer may have been there for a while: the process was stopped.
    fn news_of_then(&mut self, elsewhere: Elsewhere) -> Elsewhere {
        let Elsewhere { as_of, answered, .. } = elsewhere;
        let took = answered.saturating_duration_since(as_of);
        // A network may become slower.
        let slower = self.trip + self.trip / 8 + Duration::from_micros(1);
        self.trip = took.min(slower);
        let answered = as_of.checked_add(2 * self.trip).map_or(answered, |at| at.min(answered));
        Elsewhere { answered, ..elsewhere }
    }

    /// What the server's clock said last in an answer about this lock, for a grant that began at `at`.
    /// `None` if the message of that grant was here before.
    pub(crate) fn granted_at(
        &mut self,
        channel: &str,
        key: &str,
        at: u64,
    ) -> Option<Option<ServerClock>> {
        let place = self.queue_named(channel, key).and_then(|queue| queue.place.as_mut());
        place.map_or(Some(None), |place| place.granted_at(at))
    }

    pub(crate) fn set_clock(&mut self, channel: &str, key: &str, clock: ServerClock) {
        if let Some(place) = self.queue_named(channel, key).and_then(|queue| queue.place.as_mut()) {
            place.set_clock(Some(clock));
        }
    }

    /// Whether the head asks Redis just now.
    pub(crate) fn head_asks(&mut self, channel: &str, key: &str) -> bool {
        let queue = self.queue_named(channel, key);
        let head = queue.and_then(|queue| queue.entries.first_entry());
        head.is_some_and(|head| head.get().asking.is_some())
    }

    /// Whether a waiter since that instant is the next of all clients.
    pub(crate) fn is_next(&mut self, channel: &str, key: &str, since: Instant) -> bool {
        let queue = self.queue_named(channel, key);
        queue.and_then(|queue| queue.place).is_some_and(|place| place.is_next(since))
    }

    /// The head asks now: it has no place, or the lock is free.
    pub(crate) fn asks_for_place(&mut self, channel: &str, key: &str, now: Instant) -> Wakes<S> {
        let mut wakes = Wakes::new();
        if let Some(queue) = self.queue_named(channel, key) {
            queue.ask_at(now, false, &mut wakes);
        }
        wakes
    }

    /// A message came on a channel. If Redis keeps the queue of its locks, it says when to ask; in
    /// any other case the head asks now.
    pub(crate) fn told(&mut self, channel: &str, after: Duration, now: Instant) -> Wakes<S> {
        if after.is_zero() {
            return self.message(channel, now);
        }
        let mut wakes = Wakes::new();
        let Some(of) = self.channels.get_mut(channel) else { return wakes };
        if of.queues.iter().all(|queue| queue.place.is_none()) {
            return self.message(channel, now);
        }
        for queue in &mut of.queues {
            let due = queue.due.min(now + after);
            queue.ask_at(due, false, &mut wakes);
        }
        wakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::wait::Limits;
    use crate::wait::queue::WaitStep;

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
            let left = Some(HOUR);
            let (ticket, _) = self.queues.join(CHANNEL, KEY, left, waiter.into(), self.now);
            self.queues.takes_place(CHANNEL, ticket, left, false, self.now);
            self.queues.plan(self.now, 1, |_| true);
            self.queues.subscribed(&[CHANNEL.into()], 1, self.now);
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
    fn the_next_head_asks_soon_after_a_grant_and_moves_no_place() {
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
        assert!(!world.queues.moves_place(CHANNEL, second));
    }

    #[test]
    fn a_head_that_leaves_has_the_next_request_move_the_place_until_redis_knows() {
        let mut world = World::new();
        let (first, second) = (world.join(1), world.join(2));
        assert!(world.asks(first) && world.queues.moves_place(CHANNEL, first));
        world.refused(first, HOUR);
        assert!(!world.queues.moves_place(CHANNEL, first));
        world.queues.leave(CHANNEL, first, world.now);
        assert!(!world.asks(second), "it costs nothing");
        assert!(!world.queues.gives_place_up(CHANNEL, KEY), "the second waits");
        world.queues.message(CHANNEL, world.now);
        for _ in 0..2 {
            assert!(world.asks(second) && world.queues.moves_place(CHANNEL, second));
            world.queues.unanswered(CHANNEL, second, Duration::ZERO, world.now);
        }
        assert!(world.asks(second));
        world.refused(second, HOUR);
        assert!(!world.queues.moves_place(CHANNEL, second));
        world.queues.leave(CHANNEL, second, world.now);
        assert!(world.queues.gives_place_up(CHANNEL, KEY));
        assert!(!world.queues.gives_place_up(CHANNEL, KEY), "once");
    }

    #[test]
    fn a_waiter_that_never_asked_or_was_granted_leaves_no_place() {
        let mut world = World::new();
        let first = world.join(1);
        world.queues.leave(CHANNEL, first, world.now);
        assert!(!world.queues.gives_place_up(CHANNEL, KEY));
        let second = world.join(2);
        assert!(world.asks(second) && world.queues.has_place(CHANNEL, KEY));
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
        world.queues.heard(CHANNEL, KEY, Elsewhere { as_of, answered, oldest: None });
        assert!(next(&mut world, came) && next(&mut world, as_of));
        assert!(!next(&mut world, as_of + ms(1)), "others may have come before it");
        let oldest = Some(came + ms(10));
        world.queues.heard(CHANNEL, KEY, Elsewhere { as_of, answered, oldest });
        assert!(next(&mut world, came + ms(10)) && !next(&mut world, came + ms(11)));
        let older = Elsewhere { as_of: came, answered, oldest: None };
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
    fn the_next_head_asks_soon_after_redis_has_heard_of_a_hand_off() {
        let mut world = World::new();
        let (first, second) = (world.join(1), world.join(2));
        assert!(world.asks(first));
        world.refused(first, HOUR);
        world.queues.handed(CHANNEL, first, HOUR, world.now);
        assert!(!world.queues.has_place(CHANNEL, KEY));
        world.now += ms(1_000);
        assert!(!world.asks(second), "it may have the next hand-off");
        world.queues.handed_off(CHANNEL, KEY, Some(HOUR), world.now);
        world.now += ms(10);
        assert!(world.asks(second) && world.queues.moves_place(CHANNEL, second));
        assert_eq!(world.queues.brings_place(CHANNEL, KEY), Some(2.into()));
        assert!(world.queues.has_place(CHANNEL, KEY));
    }

    #[test]
    fn news_that_came_late_are_news_of_then() {
        let (begun, ms) = (clock::now(), Duration::from_millis);
        let limits = Limits { run: Duration::ZERO, room: Duration::ZERO };
        let mut queues = WaitQueues::<()>::new(limits);
        let mut until = |asked, took| {
            let as_of = begun + ms(asked);
            let news = Elsewhere { as_of, answered: as_of + ms(took), oldest: None };
            queues.news_of_then(news).answered - begun
        };
        assert_eq!(until(0, 8), ms(8));
        assert_eq!(until(10, 12), ms(22), "a little slower");
        // The process was stopped before it read the answer.
        assert!(until(100, 400) < ms(125));
        assert!(until(600, 400) < ms(625));
        // The network has become slower.
        for at in 0..20 {
            until(2_000 + at, 80);
        }
        assert_eq!(until(3_000, 80), ms(3_080));
    }
}
