use tokio::sync::Notify;

use super::*;

mod model;
mod properties;
mod world;

impl<S> Default for WaitQueues<S> {
    fn default() -> Self {
        let [run, room, grace] = [10, 750, 1_000].map(Duration::from_millis);
        Self::new(Limits { run, room, grace })
    }
}

impl<S> WaitQueues<S> {
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.values().all(|channel| channel.everybody().next().is_none())
    }
}

/// Wait queues to which everything happens at one moment, unless a test says otherwise.
struct Story {
    queues: WaitQueues<Notify>,
    now: Instant,
}

/// The number of the connection.
const ON: u64 = 1;

const C: &str = "channel";
const SECOND: Duration = Duration::from_secs(1);

impl Story {
    fn new() -> Self {
        Self { queues: WaitQueues::default(), now: Instant::now() }
    }

    /// A waiter that was refused for an hour joins the queue.
    fn join(&mut self) -> (Ticket, Arc<Notify>) {
        let wake = Arc::new(Notify::new());
        let remaining = Some(3600 * SECOND);
        let (ticket, _) = self.queues.join(C, "key", remaining, None, wake.clone(), self.now);
        (ticket, wake)
    }

    fn step(&mut self, ticket: Ticket) -> WaitStep {
        self.queues.step(C, ticket, self.now)
    }

    fn refused(&mut self, ticket: Ticket) {
        self.queues.refused(C, ticket, Some(3600 * SECOND), self.now);
    }

    fn message(&mut self) -> Wakes<Notify> {
        self.queues.message(C, self.now)
    }

    fn leave(&mut self, ticket: Ticket) -> Wakes<Notify> {
        Vec::from_iter(self.queues.leave(C, ticket, self.now).0)
    }

    fn plan(&mut self) -> Plan {
        self.queues.plan(self.now, ON, |_| true)
    }

    /// Whether the driver has something to do, and when it checks without a notification.
    fn dirty(&mut self) -> (bool, Option<Instant>) {
        self.queues.is_dirty(self.now, ON, |_| true)
    }

    fn cut(&mut self) -> Wakes<Notify> {
        self.queues.cut(ON, self.now)
    }

    fn outage(&self) -> Option<Instant> {
        self.queues.outage(C)
    }

    /// The driver does its work.
    fn drive(&mut self) -> Wakes<Notify> {
        let plan = self.plan();
        self.queues.subscribed(&plan.subscribe, ON, self.now)
    }

    /// Two waiters in the queue, subscribed, the first refused once more.
    fn parked() -> (Self, [(Ticket, Arc<Notify>); 2]) {
        let mut story = Self::new();
        let pair = [story.join(), story.join()];
        story.drive();
        assert_eq!(story.step(pair[0].0), WaitStep::Ask);
        story.refused(pair[0].0);
        (story, pair)
    }

    fn longest_park(&self) -> WaitStep {
        WaitStep::Park(Some(self.now + LONGEST_PARK))
    }
}

fn are(wakes: &Wakes<Notify>, whom: &[&Arc<Notify>]) -> bool {
    wakes.len() == whom.len() && wakes.iter().zip(whom).all(|(a, b)| Arc::ptr_eq(a, b))
}

#[test]
fn a_waiter_subscribes_then_asks_again_then_parks() {
    let mut story = Story::new();
    let (ticket, wake) = story.join();
    assert_eq!(story.step(ticket), story.longest_park());
    let plan = story.plan();
    assert_eq!(plan.subscribe, [Arc::from(C)]);
    assert!(are(&story.queues.subscribed(&plan.subscribe, ON, story.now), &[&wake]));
    assert_eq!(story.step(ticket), WaitStep::Ask);
    story.refused(ticket);
    assert_eq!(story.step(ticket), story.longest_park());
}

#[test]
fn the_head_asks_and_the_waiters_behind_it_sleep_without_a_timer() {
    let (mut story, [(first, wake), (second, _)]) = Story::parked();
    assert_eq!(story.step(second), WaitStep::Park(None));
    assert!(are(&story.message(), &[&wake]));
    assert_eq!(story.step(second), WaitStep::Park(None));
    assert_eq!(story.step(first), WaitStep::Ask);
}

#[test]
fn a_woken_waiter_that_leaves_passes_the_wake_up_on() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    story.message();
    assert!(are(&story.leave(first), &[&wake]));
    assert_eq!(story.step(second), WaitStep::Ask);
}

#[test]
fn a_waiter_that_leaves_while_it_asks_passes_the_wake_up_on() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    assert!(are(&story.leave(first), &[&wake]));
    assert_eq!(story.step(second), WaitStep::Ask);
}

#[test]
fn a_waiter_that_leaves_while_it_sleeps_costs_redis_nothing() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    assert!(are(&story.leave(first), &[&wake]), "the second has an alarm to set");
    assert_eq!(story.step(second), story.longest_park());
    assert_eq!(story.leave(second).len(), 0);
}

#[test]
fn a_message_that_comes_while_the_head_asks_makes_it_ask_again() {
    let (mut story, [(first, _), _]) = Story::parked();
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    story.message();
    story.refused(first);
    assert_eq!(story.step(first), WaitStep::Ask, "the refusal may be older than the message");
    story.refused(first);
    assert_eq!(story.step(first), story.longest_park());
}

#[test]
fn the_head_is_due_when_the_lease_of_the_holder_could_have_ended() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    let (head, _) = story.queues.granted(C, first, SECOND, story.now);
    assert!(head.is_some_and(|head| Arc::ptr_eq(&head, &wake)));
    let due = story.now + SECOND + Duration::from_millis(1);
    assert_eq!(story.step(second), WaitStep::Park(Some(due)));
    story.now = due;
    assert_eq!(story.step(second), WaitStep::Ask);
}

#[test]
fn a_lock_goes_to_the_head_that_sleeps_or_past_one_that_asks_for_the_first_time() {
    let next = |story: &Story| {
        story.queues.next_waiter(C, "key").map(|(ticket, _, passes)| (ticket, passes))
    };
    let mut story = Story::new();
    let [(first, _), (second, _)] = [story.join(), story.join()];
    assert_eq!(next(&story), Some((first, false)));
    story.drive();
    assert_eq!(story.step(first), WaitStep::Ask);
    assert_eq!(next(&story), Some((second, true)));
    story.refused(first);
    assert_eq!(next(&story), Some((first, false)));
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    assert_eq!(next(&story), None, "it was passed once, and would be again and again");
    story.refused(first);
    story.queues.close();
    assert_eq!(next(&story), None);
}

#[test]
fn a_head_that_hears_of_a_hand_off_with_a_short_lease_looks_when_that_could_have_ended() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    let (head, _) = story.queues.handed(C, first, 3600 * SECOND, story.now);
    assert!(head.is_some_and(|head| Arc::ptr_eq(&head, &wake)));
    assert_eq!(story.step(second), story.longest_park());
    // That holder has handed the lock on meanwhile, or past this head.
    assert!(story.queues.handed_off(C, "key", Some(SECOND), story.now).is_some());
    let due = story.now + SECOND + Duration::from_millis(1);
    assert_eq!(story.step(second), WaitStep::Park(Some(due)));
    // A longer lease does not put that off: the head asks, and is told.
    story.queues.handed_off(C, "key", None, story.now);
    assert_eq!(story.step(second), WaitStep::Park(Some(due)));
}

#[test]
fn a_refusal_that_may_be_from_before_a_hand_off_with_a_short_lease_makes_the_head_ask_again() {
    let (mut story, [(first, _), _]) = Story::parked();
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    story.queues.handed_off(C, "key", Some(SECOND), story.now);
    story.refused(first);
    assert_eq!(story.step(first), WaitStep::Ask);
    story.refused(first);
    assert_eq!(story.step(first), story.longest_park());
}

#[test]
fn s9_a_lease_without_an_end_is_asked_after_again_and_again_with_no_message_at_all() {
    // None: the key has no TTL. An hour: the server's clock was put back.
    for remaining in [None, Some(3600 * SECOND)] {
        let mut story = Story::new();
        let (entry, _) = story.join();
        story.drive();
        for _ in 0..3 {
            assert_eq!(story.step(entry), WaitStep::Ask);
            story.queues.refused(C, entry, remaining, story.now);
            assert_eq!(story.step(entry), story.longest_park());
            story.now += LONGEST_PARK;
        }
    }
}

#[test]
fn two_locks_on_one_channel_are_two_queues() {
    let mut story = Story::new();
    let wakes = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let remaining = Some(3600 * SECOND);
    let (a, fresh) = story.queues.join(C, "a", remaining, None, wakes[0].clone(), story.now);
    let (braced, recheck) =
        story.queues.join(C, "{a}", remaining, None, wakes[1].clone(), story.now);
    assert!(fresh && !recheck, "one subscription is enough for both");
    story.drive();
    for ticket in [a, braced] {
        assert_eq!(story.step(ticket), WaitStep::Ask);
        story.refused(ticket);
    }
    assert!(are(&story.message(), &[&wakes[0], &wakes[1]]), "it may be about either");
}

#[test]
fn a_subscription_outlives_a_grant_for_a_moment_and_a_waiter_that_gave_up_not_at_all() {
    for granted in [true, false] {
        let mut story = Story::new();
        let (ticket, _) = story.join();
        story.drive();
        assert_eq!(story.step(ticket), WaitStep::Ask);
        let dirty = if granted {
            story.queues.granted(C, ticket, SECOND, story.now).1
        } else {
            story.queues.leave(C, ticket, story.now).1
        };
        assert!(dirty, "the driver has something to do");
        let plan = story.plan();
        assert_eq!(plan.unsubscribe.len(), usize::from(!granted));
        assert_eq!(story.dirty(), (false, granted.then_some(story.now + LINGER)));
        assert_eq!(story.queues.channels.contains_key(C), granted);
        story.now += LINGER;
        let plan = story.plan();
        assert_eq!(plan.unsubscribe.len(), usize::from(granted));
        assert!(!story.queues.channels.contains_key(C));
    }
}

#[test]
fn the_driver_is_not_notified_of_what_it_will_see_in_time() {
    let mut story = Story::new();
    let wake = || Arc::new(Notify::new());
    let names = ["first", "second", "third"];
    let [first, second, third] =
        names.map(|name| story.queues.join(name, name, None, None, wake(), story.now).0);
    story.drive();
    assert!(story.queues.granted("first", first, SECOND, story.now).1);
    assert_eq!(story.dirty(), (false, Some(story.now + LINGER)));
    let (_, notify) = story.queues.granted("third", third, SECOND, story.now);
    assert!(!notify, "it looks just then");
    story.now += LINGER / 2;
    assert!(!story.queues.granted("second", second, SECOND, story.now).1, "it looks before that");
}

#[test]
fn after_a_cut_all_waiters_wake_up_and_the_head_asks_once_it_is_subscribed_again() {
    let (mut story, [(first, one), (second, two)]) = Story::parked();
    assert!(are(&story.cut(), &[&one, &two]));
    assert_eq!(story.outage(), Some(story.now), "from now on the time of an outage counts");
    assert_eq!(story.step(first), story.longest_park());
    story.now += SECOND;
    assert!(are(&story.drive(), &[&one]));
    assert_eq!(story.outage(), None);
    assert_eq!(story.step(second), WaitStep::Park(None));
    assert_eq!(story.step(first), WaitStep::Ask);
}

#[test]
fn an_outage_begins_with_the_first_trouble_and_ends_with_an_answer() {
    let (mut story, [(first, _), _]) = Story::parked();
    let begun = story.now;
    story.message();
    for _ in 0..3 {
        assert_eq!(story.step(first), WaitStep::Ask);
        story.queues.unanswered(C, first, SECOND, story.now);
        assert_eq!(story.outage(), Some(begun));
        assert_eq!(story.step(first), WaitStep::Park(Some(story.now + SECOND)));
        story.now += SECOND;
    }
    assert_eq!(story.step(first), WaitStep::Ask);
    story.refused(first);
    assert_eq!(story.outage(), None);
}

#[test]
fn an_answer_from_before_an_outage_does_not_end_it() {
    let (mut story, [(first, _), _]) = Story::parked();
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    let asked_at = story.now;
    story.now += SECOND;
    story.cut();
    story.refused(first);
    story.queues.answered(C, asked_at);
    assert_eq!(story.outage(), Some(story.now));
    story.queues.answered(C, story.now);
    assert_eq!(story.outage(), None);
}

#[test]
fn an_outage_needs_a_waiter_and_ends_with_an_answer_outside_the_queue_too() {
    let (mut story, [(first, _), (second, _)]) = Story::parked();
    story.queues.cut(ON + 1, story.now);
    assert_eq!(story.outage(), None, "it was another connection");
    story.leave(second);
    story.queues.granted(C, first, SECOND, story.now);
    story.cut();
    assert_eq!(story.outage(), None, "there is nobody whose patience it could try");
    story.join();
    story.drive();
    story.cut();
    assert_eq!(story.outage(), Some(story.now));
    story.queues.answered(C, story.now);
    assert_eq!(story.outage(), None);
}

#[test]
fn a_closed_client_wakes_all_waiters_and_keeps_nothing() {
    let (mut story, [(first, one), (second, two)]) = Story::parked();
    assert!(are(&story.queues.close().0, &[&one, &two]));
    assert!(story.queues.closed);
    assert_eq!(story.plan(), Plan::default());
    assert!(story.queues.channels.is_empty());
    // The waiters leave later.
    assert_eq!(story.leave(first).len() + story.leave(second).len(), 0);
}
