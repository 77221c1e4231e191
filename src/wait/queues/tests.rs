use tokio::sync::Notify;

use super::*;
use crate::wait::change::LONGEST_PARK;
use crate::wait::turns::TurnLimits;

mod crowd;
mod fair;
mod handoff;
mod model;
mod properties;
mod reasons;
mod story;
mod world;

impl<W> Default for Queues<W> {
    fn default() -> Self {
        let [keep, yield_time, grace, request] = [10, 750, 1_000, 3_000].map(Duration::from_millis);
        let turns = TurnLimits { keep, yield_time };
        Self::new(QueueLimits { turns, grace, request }, crate::clock::now())
    }
}

impl<W> Queues<W> {
    /// Whether no waiter is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters().next().is_none()
    }

    /// Adds a waiter behind all others.
    pub(crate) fn join(
        &mut self,
        names: &Arc<Names>,
        waiter: Option<Arc<W>>,
        stay: Stay,
    ) -> Ticket {
        let ticket = self.next_ticket();
        self.join_with(ticket, names, waiter, stay);
        ticket
    }
}

use story::{ON, SECOND, Story, are};

#[test]
fn a_waiter_subscribes_then_asks_again_then_parks() {
    let mut story = Story::new();
    let (ticket, wake) = story.join_only();
    assert_eq!(story.step(ticket), WaitStep::Ask);
    assert!(!story.dirty().0, "the first answer may be a grant");
    story.refused(ticket);
    assert_eq!(story.step(ticket), story.longest_park());
    assert!(story.queues.take_effects().drivers);
    let plan = story.plan();
    assert_eq!(plan.subscribe, [Arc::from(story.names.channel())]);
    story.at().record_subscribed(&plan.subscribe, ON);
    assert!(are(&story.wakes(), &[&wake]));
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
    assert!(are(&story.leave(first).wake, &[&wake]));
    assert_eq!(story.step(second), WaitStep::Ask);
}

#[test]
fn a_waiter_that_leaves_while_it_asks_passes_the_wake_up_on() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    story.message();
    assert_eq!(story.step(first), WaitStep::Ask);
    assert!(are(&story.leave(first).wake, &[&wake]));
    assert_eq!(story.step(second), WaitStep::Ask);
}

/// One that waits for several locks moves to the queue of the one that is busy, among its waiters by its age.
#[test]
fn a_waiter_that_comes_in_front_of_one_that_asks_and_leaves_passes_the_reason_to_ask_on() {
    for asks in [true, false] {
        let (mut story, [(older, wake), (asking, _)]) = Story::parked();
        story.leave(older);
        story.message();
        assert_eq!(story.step(asking), WaitStep::Ask);
        let (names, stay) = (story.names.clone(), Stay { since: story.now, until: None });
        story.at().join_with(older, &names, Some(wake), stay);
        // The lock is free now, and the request under way is older than that.
        story.message();
        if asks {
            assert_eq!(story.step(older), WaitStep::Ask);
        }
        story.leave(older);
        story.refused(asking);
        assert_eq!(story.step(asking), WaitStep::Ask, "{asks}");
    }
}

#[test]
fn a_waiter_that_leaves_while_it_sleeps_costs_redis_nothing() {
    let (mut story, [(first, _), (second, wake)]) = Story::parked();
    assert!(are(&story.leave(first).wake, &[&wake]), "the second has an alarm to set");
    assert_eq!(story.step(second), story.longest_park());
    assert_eq!(story.leave(second).wake.len(), 0);
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
    assert!(are(&story.granted(first).wake, &[&wake]));
    let due = story.now + SECOND + Duration::from_millis(1);
    assert_eq!(story.step(second), WaitStep::Park(Some(due)));
    story.now = due;
    assert_eq!(story.step(second), WaitStep::Ask);
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
            story.refused_for(entry, remaining);
            assert_eq!(story.step(entry), story.longest_park());
            story.now += LONGEST_PARK;
        }
    }
}

#[test]
fn two_locks_on_one_channel_are_two_queues() {
    let mut story = Story::new();
    let both = ["a", "{a}"].map(|name| {
        story.names = Names::new("", name).into();
        (story.names.clone(), story.join())
    });
    assert_eq!(story.plan().subscribe.len(), 1, "one subscription is enough for both");
    let channel = Arc::from(story.names.channel());
    story.at().record_subscribed(&[channel], ON);
    assert!(are(&story.wakes(), &[&both[0].1.1, &both[1].1.1]));
    for (names, (ticket, _)) in &both {
        story.names = names.clone();
        assert_eq!(story.step(*ticket), WaitStep::Ask);
        story.refused(*ticket);
    }
    assert!(are(&story.message(), &[&both[0].1.1, &both[1].1.1]), "it may be about either");
    assert!(!story.granted(both[1].1.0).drivers, "the other one needs the subscription");
}

#[test]
fn a_call_that_is_granted_at_once_subscribes_to_nothing_and_leaves_nothing() {
    let mut story = Story::new();
    let (ticket, _) = story.join_only();
    assert_eq!(story.step(ticket), WaitStep::Ask);
    let effects = story.granted(ticket);
    assert!(!effects.drivers && effects.wake.is_empty());
    assert!(story.knows_nothing() && story.plan() == Plan::default());
}

#[test]
fn a_subscription_outlives_a_grant_for_a_moment_and_a_waiter_that_gave_up_not_at_all() {
    for (granted, handed) in [(true, false), (true, true), (false, false)] {
        let mut story = Story::new();
        let (ticket, _) = story.join();
        story.drive();
        assert_eq!(story.step(ticket), WaitStep::Ask);
        let effects = match granted {
            true if handed => story.handed_effects(ticket),
            true => story.granted(ticket),
            false => story.leave(ticket),
        };
        assert!(effects.drivers, "the driver has something to do");
        // It has yet to look into its grant slot.
        assert!(!handed || story.step(ticket) == WaitStep::Park(None));
        // The registration is dropped.
        story.leave(ticket);
        assert_eq!(story.plan().unsubscribe.len(), usize::from(!granted));
        assert_eq!(story.dirty(), (false, granted.then_some(story.now + LINGER)));
        story.now += LINGER;
        assert_eq!(story.plan().unsubscribe.len(), usize::from(granted));
        assert!(story.knows_nothing() && story.queues.subscriptions.is_empty());
    }
}

#[test]
fn the_driver_is_not_notified_of_what_it_will_see_in_time() {
    let mut story = Story::new();
    let [first, second, third] = ["first", "second", "third"].map(|name| {
        story.names = Names::new("", name).into();
        (story.names.clone(), story.join().0)
    });
    story.drive();
    let granted = |story: &mut Story, (names, ticket): &(Arc<Names>, Ticket)| {
        story.names = names.clone();
        story.granted(*ticket).drivers
    };
    assert!(granted(&mut story, &first));
    assert_eq!(story.dirty(), (false, Some(story.now + LINGER)));
    assert!(!granted(&mut story, &third), "it looks just then");
    story.now += LINGER / 2;
    assert!(!granted(&mut story, &second), "it looks before that");
}

#[test]
fn after_a_cut_all_waiters_wake_up_and_the_head_asks_once_it_is_subscribed_again() {
    let (mut story, [(first, one), (second, two)]) = Story::parked();
    assert!(are(&story.cut(), &[&one, &two]));
    assert_eq!(story.outage(), Some(story.now), "from now on the time of an outage counts");
    assert_eq!(story.step(first), story.longest_park());
    story.now += SECOND;
    assert!(are(&story.drive(), &[&one, &two, &one]), "the outage is over, and the head asks");
    assert_eq!(story.outage(), None);
    assert_eq!(story.step(second), WaitStep::Park(None));
    assert_eq!(story.step(first), WaitStep::Ask);
}

/// No driver looks at a subscription before there is a connection.
#[test]
fn of_a_subscription_that_no_server_knows_nothing_is_left_with_its_last_waiter() {
    let mut story = Story::new();
    let calls = [story.join().0, story.join().0];
    assert!(!story.queues.subscriptions.is_empty(), "the calls want one");
    calls.into_iter().for_each(|ticket| drop(story.leave(ticket)));
    assert!(story.queues.subscriptions.is_empty() && story.knows_nothing());
    assert_eq!((story.plan(), story.dirty()), (Plan::default(), (false, None)));
}

#[test]
fn an_outage_begins_with_the_first_trouble_and_ends_with_an_answer() {
    let (mut story, [(first, _), (_, two)]) = Story::parked();
    let begun = story.now;
    story.message();
    for begins in [true, false, false] {
        assert_eq!(story.step(first), WaitStep::Ask);
        assert!(story.unanswered(first, begun - SECOND), "it waits since before");
        let hears = story.wakes().iter().any(|wake| Arc::ptr_eq(wake, &two));
        assert_eq!(hears, begins, "the one behind it has a limit from now on");
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
    story.answered(asked_at);
    assert_eq!(story.outage(), Some(story.now));
    story.answered(story.now);
    assert_eq!(story.outage(), None);
}

#[test]
fn an_outage_needs_a_waiter_and_ends_with_an_answer_outside_the_queue_too() {
    let (mut story, [(first, _), (second, _)]) = Story::parked();
    story.at().record_cut(ON + 1);
    assert_eq!(story.outage(), None, "it was another connection");
    story.leave(second);
    story.granted(first);
    story.cut();
    assert_eq!(story.outage(), None, "no call waits, so no outage is too long");
    story.join();
    story.drive();
    story.cut();
    assert_eq!(story.outage(), Some(story.now));
    story.answered(story.now);
    assert_eq!(story.outage(), None);
}

#[test]
fn a_closed_client_wakes_all_waiters_and_keeps_nothing() {
    let (mut story, [(first, one), (second, two)]) = Story::parked();
    story.at().close();
    assert!(are(&story.wakes(), &[&one, &two]));
    assert!(story.queues.closed);
    assert_eq!(story.plan(), Plan::default());
    assert!(story.queues.subscriptions.is_empty());
    // The waiters leave later.
    story.leave(first);
    story.leave(second);
    assert!(story.knows_nothing());
}

#[test]
fn a_call_that_begins_in_silence_waits_for_one_answer_and_one_that_waits_already_for_longer() {
    let (request, outage) = (3 * SECOND, 30 * SECOND);
    let mut story = Story::new();
    let begun = story.now;
    let gives_up = |story: &Story, since: Instant| {
        let reach = story.queues.get(&story.names).expect("a queue").reach;
        reach.gives_up_at(since, request, Some(outage))
    };
    let (first, _) = story.join_only();
    assert_eq!(story.step(first), WaitStep::Ask);
    story.now += SECOND;
    let (second, _) = story.join_only();
    assert_eq!(gives_up(&story, begun), Some(begun + request));
    assert_eq!(gives_up(&story, story.now), Some(story.now + request));
    assert_eq!(story.outage(), Some(begun), "Redis has been silent for a while");
    assert!(!story.unanswered(first, begun), "it began in silence");
    story.now += SECOND;
    story.leave(first);
    assert_eq!(story.step(second), WaitStep::Ask);
    story.refused(second);
    assert_eq!((gives_up(&story, story.now), story.outage()), (None, None));
    story.step(second);
    story.drive();
    story.cut();
    assert_eq!(gives_up(&story, begun), Some(story.now + outage), "it waits already");
    story.now += SECOND;
    story.join_only();
    assert_eq!(story.wakes().len(), 1, "the head asks for the call that begins now");
    assert_eq!(story.step(second), WaitStep::Ask);
    assert_eq!(gives_up(&story, story.now), Some(story.now + request));
}

#[test]
fn a_call_that_is_never_polled_again_holds_up_nobody_with_its_first_request() {
    let mut story = Story::new();
    let [(first, one), (second, _)] = [story.join_only(), story.join_only()];
    story.passes(first, second);
    story.refused(second);
    assert_eq!(story.step(second), story.longest_park());
    // It is polled at last.
    story.refused(first);
    assert_eq!(story.step(first), story.longest_park());
    story.wakes();
    assert!(are(&story.message(), &[&one]));
    assert_eq!((story.step(second), story.step(first)), (WaitStep::Park(None), WaitStep::Ask));
}

#[test]
fn a_lock_for_which_no_other_client_waits_is_never_left() {
    let mut story = Story::new();
    let names = story.names.clone();
    assert!(!story.at().begin_deferral(&names, None));
    story.at().record_release(&names, Some(1));
    story.now += Duration::from_millis(10);
    assert!(story.at().begin_deferral(&names, None));
    story.at().record_release(&names, Some(0));
    assert_eq!(story.deferral(), None, "no other client is left");
}

#[test]
fn a_call_that_finds_an_empty_queue_in_an_outage_asks_at_once() {
    let mut story = Story::new();
    let (first, _) = story.join();
    story.drive();
    assert_eq!(story.step(first), WaitStep::Ask);
    assert!(story.unanswered(first, story.now - SECOND));
    // Redis is back, and another holder of this client has handed the lock to the waiter.
    story.handed(first);
    let (second, _) = story.join_only();
    assert_eq!(story.step(second), WaitStep::Ask, "it would give up without a request");
}
