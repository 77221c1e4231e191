//! The queues of fair locks, as one client knows of them.

use super::*;
use crate::clock;
use crate::protocol::ServerClock;

mod common;
mod cut;
mod let_in;
mod ticket;

const HOUR: Duration = Duration::from_secs(3600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

struct World {
    queues: Queues<u32>,
    names: Arc<Names>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let client = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968";
        let names = Names::new("", "lock").with_own_channel(client).into();
        Self { queues: Queues::default(), names, now: clock::now() }
    }

    fn at(&mut self) -> &mut Queues<u32> {
        self.queues.at(self.now)
    }

    /// A waiter joins the queue. If it is the head and the channel is not subscribed, Redis refuses it for an
    /// hour, and the client subscribes.
    fn join(&mut self, waiter: u32) -> Ticket {
        let ticket = self.join_only(waiter);
        if !self.queues.subscriptions.is_live(self.names.channel()) && self.asks(ticket) {
            self.refused(ticket, HOUR);
        }
        let names = self.names.clone();
        self.queues.subscriptions.want(names.channel(), &names);
        let plan = self.at().plan(1, |_| true);
        self.at().record_subscribed(&plan.subscribe, 1);
        ticket
    }

    fn join_only(&mut self, waiter: u32) -> Ticket {
        let (names, stay) = (self.names.clone(), Stay { since: self.now, until: None });
        self.at().join(&names, Some(waiter.into()), stay)
    }

    fn asks(&mut self, ticket: Ticket) -> bool {
        let names = self.names.clone();
        self.at().step(&names, ticket) == WaitStep::Ask
    }

    fn refused(&mut self, ticket: Ticket, left: Duration) {
        let names = self.names.clone();
        self.at().record_refusal(&names, ticket, Some(left), ("other".into(), None));
    }

    fn granted(&mut self, ticket: Ticket, lease: Duration) -> Vec<Arc<u32>> {
        let names = self.names.clone();
        self.queues.take_effects();
        self.at().record_grant(&names, ticket, lease);
        self.queues.take_effects().wake
    }

    fn handed(&mut self, ticket: Ticket) {
        let names = self.names.clone();
        self.at().record_hand_off(&names, ticket, HOUR);
    }

    fn heard_hand_off(&mut self) {
        let names = self.names.clone();
        self.at().change(&names, |queue, cx| queue.record_heard_hand_off(Some(HOUR), cx));
    }

    /// Whether an entry is left with no waiter.
    fn leave(&mut self, ticket: Ticket) -> bool {
        let names = self.names.clone();
        self.at().leave(&names, ticket)
    }

    fn message(&mut self, after: Duration) -> usize {
        let names = self.names.clone();
        self.queues.take_effects();
        self.at().record_message(names.channel(), after);
        self.queues.take_effects().wake.len()
    }

    fn last_to_leave(&self) -> Option<Ticket> {
        self.queues.last_to_leave(&self.names)
    }

    fn brings(&mut self, behind: bool) -> Option<(Ticket, Ticket)> {
        let names = self.names.clone();
        let brought = self.at().bring_entry(&names, behind).ok();
        brought.map(|brought| (brought.waiter, brought.ticket))
    }

    fn oldest(&mut self) -> Option<Ticket> {
        self.brings(false).map(|(waiter, _)| waiter)
    }

    fn has_entry(&self) -> bool {
        self.queues.locks_with_entries() == [self.names.clone()]
    }

    fn entry(&mut self) -> &mut OwnEntry {
        self.queues.own_entry(&self.names).expect("an entry")
    }
}

#[test]
fn the_next_head_asks_soon_after_a_grant() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert!(!world.asks(first) && !world.asks(second));
    world.message(ms(0));
    assert!(world.asks(first));
    assert_eq!(world.granted(first, HOUR), [2.into()]);
    assert!(!world.asks(second), "the lock may be handed to it");
    world.now += ms(10);
    assert!(world.asks(second), "Redis does not know that it waits");
}

#[test]
fn the_next_head_asks_before_a_short_lease_ends() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.granted(first, ms(6));
    assert!(!world.asks(second));
    world.now += ms(3);
    assert!(world.asks(second), "a call that does not wait would go before it");
}

#[test]
fn a_head_that_leaves_costs_nothing_and_the_last_one_gives_the_entry_up() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert!(!world.leave(first), "the second waits");
    assert!(!world.asks(second), "it costs nothing");
    assert_eq!(world.last_to_leave(), None);
    world.message(ms(0));
    assert!(world.asks(second));
    world.refused(second, HOUR);
    assert!(world.leave(second));
    assert!(!world.leave(second), "once");
    assert!(world.last_to_leave().is_some());
}

#[test]
fn the_head_stands_for_its_client_from_its_first_request_on() {
    let mut world = World::new();
    assert_eq!(world.oldest(), None);
    let [old, young] = [1, 2].map(|waiter| world.join_only(waiter));
    assert!(world.asks(old) && !world.asks(young));
    assert_eq!(world.oldest(), Some(old));
    assert_eq!(world.last_to_leave(), None);
    world.granted(old, HOUR);
    assert_eq!(world.oldest(), Some(young));
    assert_eq!(world.last_to_leave(), None, "it is in the queue");
    assert!(world.leave(young));
    assert_eq!(world.oldest(), None);
    world.join_only(3);
    world.at().close();
    assert_eq!(world.oldest(), None, "it would outlive its waiter");
}

#[test]
fn a_close_gives_the_entry_up_and_a_call_that_may_have_brought_it_later_does_so_again() {
    for has_parked in [false, true] {
        let mut world = World::new();
        let (names, stay) = (world.names.clone(), Stay { since: world.now, until: None });
        let waiter = has_parked.then(|| Arc::new(1));
        let first = world.at().join(&names, waiter.clone(), stay);
        assert!(world.asks(first));
        assert_eq!(world.oldest(), Some(first));
        assert_eq!(world.at().close(), [(names, waiter)]);
        assert!(world.last_to_leave().is_some(), "while it waits for an answer");
        assert_eq!(world.oldest(), None);
        assert_eq!(world.leave(first), !has_parked);
    }
}

#[test]
fn a_first_request_that_takes_longer_than_the_grace_is_not_waited_for() {
    let mut world = World::new();
    let [first, second] = [1, 2].map(|waiter| world.join_only(waiter));
    assert!(world.asks(first));
    world.now += ms(999);
    assert!(!world.asks(second));
    assert_eq!(world.oldest(), Some(first));
    assert_eq!(world.queues.at(world.now).next_waiter(&world.names), None);
    world.now += ms(1);
    assert_eq!(world.oldest(), Some(second));
    let next = world.queues.at(world.now).next_waiter(&world.names).map(|next| next.ticket);
    assert_eq!(next, Some(second));
    assert!(world.asks(second));
    // It stands first again when it comes, and Redis has to hear that.
    world.refused(first, HOUR);
    assert_eq!(world.oldest(), Some(first));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert!(!world.asks(first));
}

#[test]
fn a_first_request_that_takes_long_and_is_passed_by_none_is_not_sent_twice() {
    let mut world = World::new();
    let first = world.join_only(1);
    assert!(world.asks(first));
    assert_eq!(world.oldest(), Some(first));
    world.now += ms(1_500);
    world.refused(first, HOUR);
    assert!(!world.asks(first));
}

#[test]
fn a_waiter_that_never_asked_or_was_granted_leaves_no_entry() {
    let mut world = World::new();
    let first = world.join_only(1);
    assert!(!world.leave(first));
    let second = world.join(2);
    assert!(world.asks(second));
    assert_eq!(world.last_to_leave(), None);
    assert!(world.has_entry());
    world.granted(second, HOUR);
    assert!(!world.has_entry() && world.last_to_leave().is_some());
    let third = world.join_only(3);
    assert!(world.asks(third), "what it could have heard says nothing of its entry");
}

#[test]
fn a_message_says_when_to_ask_and_never_later_than_before() {
    let mut world = World::new();
    let first = world.join(1);
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert_eq!(world.message(ms(1_000)), 1);
    let names = world.names.clone();
    let due = world.now + ms(1_000);
    assert_eq!(world.at().step(&names, first), WaitStep::Park(Some(due)));
    world.message(ms(2_000));
    assert!(!world.asks(first));
    world.now += ms(1_000);
    assert!(world.asks(first));
    // The answer may be older than a message that comes meanwhile.
    world.message(ms(1_000));
    world.refused(first, HOUR);
    assert!(world.asks(first));
}

#[test]
fn the_lock_is_handed_off_to_who_came_before_all_others_and_before_that_was_known() {
    let mut world = World::new();
    world.join(1);
    let came = world.now;
    assert!(!world.entry().is_next(came), "nothing is known");
    let as_of = came + ms(20);
    let answered = as_of;
    let mut record = |as_of, oldest| {
        let foreign = OldestForeignWaiter { as_of, answered, oldest };
        let names = world.names.clone();
        world.queues.record_foreign(&names, foreign);
        *world.entry()
    };
    let entry = record(as_of, None);
    assert!(entry.is_next(came) && entry.is_next(as_of));
    assert!(!entry.is_next(as_of + ms(1)), "others may have come before it");
    let entry = record(as_of, Some(came + ms(10)));
    assert!(entry.is_next(came + ms(10)) && !entry.is_next(came + ms(11)));
    assert!(record(came, None).is_next(came + ms(10)), "an answer came late");
}

#[test]
fn what_the_clock_of_a_server_said_counts_until_its_connection_is_cut() {
    let mut world = World::new();
    world.join(1);
    assert_eq!(world.entry().record_granted_at(1), Some(None));
    let said = ServerClock { asked: world.now, said: 1, round_trip: Duration::ZERO };
    world.entry().set_clock(Some(said));
    assert_eq!(world.entry().record_granted_at(2), Some(Some(said)));
    world.at().record_cut(1);
    let clock = world.entry().record_granted_at(3);
    assert_eq!(clock, Some(None), "another server may be responsible now");
}

#[test]
fn a_grant_counts_once_and_one_older_than_another_is_judged_by_no_clock() {
    let mut world = World::new();
    world.join(1);
    let said = ServerClock { asked: world.now, said: 1, round_trip: Duration::ZERO };
    world.entry().set_clock(Some(said));
    for (at, judged) in
        [(5, Some(Some(said))), (5, None), (7, Some(Some(said))), (6, Some(None)), (7, None)]
    {
        assert_eq!(world.entry().record_granted_at(at), judged, "{at}");
    }
}

#[test]
fn no_waiter_passes_a_head_that_asks() {
    let mut world = World::new();
    let [first, _] = [1, 2].map(|waiter| world.join_only(waiter));
    assert!(world.asks(first));
    assert_eq!(world.queues.next_waiter(&world.names), None, "the second came later");
    world.refused(first, HOUR);
    let next = world.queues.next_waiter(&world.names);
    assert_eq!(next.map(|next| (next.ticket, next.passes)), Some((first, false)));
}

#[test]
fn the_next_head_asks_soon_after_redis_has_heard_of_a_hand_off() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    world.handed(first);
    assert!(world.last_to_leave().is_some());
    world.now += ms(1_000);
    assert!(!world.asks(second), "it may have the next hand-off");
    world.heard_hand_off();
    world.now += ms(10);
    assert!(world.asks(second));
}

#[test]
fn a_waiter_that_was_handed_the_lock_has_no_entry_and_the_next_one_has_it() {
    let mut world = World::new();
    let first = world.join(1);
    assert!(world.asks(first));
    world.refused(first, HOUR);
    let second = world.join(2);
    world.handed(first);
    assert_eq!(world.oldest(), Some(second));
    assert_eq!(world.last_to_leave(), None);
    assert!(world.has_entry());
    world.handed(second);
    assert_eq!(world.oldest(), None);
    assert!(world.last_to_leave().is_some());
}

#[test]
fn a_head_whose_entry_came_with_a_hand_off_does_not_ask_for_one() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    world.handed(first);
    assert_eq!(world.oldest(), Some(second));
    world.heard_hand_off();
    world.now += ms(1_000);
    assert!(!world.asks(second));
}

#[test]
fn news_that_came_late_are_news_of_then() {
    let begun = clock::now();
    let mut delay = AnswerDelay::default();
    let mut until = |asked, took| {
        let as_of = begun + ms(asked);
        let news = OldestForeignWaiter { as_of, answered: as_of + ms(took), oldest: None };
        delay.bound(news).answered - as_of
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
