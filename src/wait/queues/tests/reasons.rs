//! Reasons to ask that come while a request is under way, whose answer may be older.

use super::*;

/// One listener beside this client, which has kept the lock from it for long enough to defer. The head asks.
fn asking_before_a_deferral() -> (Story, Ticket) {
    let mut story = Story::new();
    let (head, _) = story.join();
    story.drive();
    let names = story.names.clone();
    story.at().record_release(&names, Some(2));
    story.now += SECOND;
    assert_eq!(story.step(head), WaitStep::Ask);
    assert!(story.at().begin_deferral(&names, None));
    (story, head)
}

#[test]
fn a_deferral_that_nobody_needs_any_more_counts_for_a_request_from_before_its_end() {
    let (mut story, head) = asking_before_a_deferral();
    let names = story.names.clone();
    // The message of the release, and its answer: this client is the last listener.
    story.message();
    story.at().record_release(&names, Some(1));
    story.refused(head);
    assert_eq!(story.step(head), WaitStep::Ask, "the holder that refused it has released");
}

#[test]
fn a_message_that_prolongs_a_deferral_counts_for_a_request_from_before_it() {
    let (mut story, head) = asking_before_a_deferral();
    let names = story.names.clone();
    story.message();
    story.at().record_release(&names, Some(2));
    // The answer is late: the deferral is over by then.
    story.now += SECOND;
    story.refused(head);
    assert_eq!(story.step(head), WaitStep::Ask);
}

#[test]
fn a_message_counts_for_each_request_that_is_under_way() {
    let mut story = Story::new();
    let [(first, _), (second, _)] = [story.join_only(), story.join_only()];
    story.passes(first, second);
    let plan = story.plan();
    story.queues.subscriptions.confirm(&plan.subscribe[0], ON);
    story.message();
    story.refused(first);
    assert_eq!(story.step(first), WaitStep::Ask, "its answer is older than the message");
}

#[test]
fn a_head_that_leaves_passes_its_reason_to_each_request_that_is_under_way() {
    let mut story = Story::new();
    let waiters = [story.join_only(), story.join_only(), story.join_only()];
    let [first, second, third] = waiters.map(|(ticket, _)| ticket);
    story.passes(first, second);
    story.leave(second);
    story.refused(first);
    assert_eq!(story.step(third), WaitStep::Park(None));
    assert_eq!(story.step(first), WaitStep::Ask);
}

/// Two threads change the queue, and the one that read the clock first comes second.
#[test]
fn a_message_counts_for_a_grant_whose_thread_read_the_clock_before_it() {
    let mut story = Story::new();
    let [(first, _), (second, _)] = [story.join(), story.join()];
    story.drive();
    assert_eq!(story.step(first), WaitStep::Ask);
    let before = story.now;
    story.now += SECOND;
    story.message();
    story.now = before;
    story.granted(first);
    assert_eq!(story.step(second), WaitStep::Ask, "the lock may be free already");
}

#[test]
fn a_deferral_that_a_message_prolongs_when_it_is_over_is_kept_for_a_request_from_before_it() {
    let (mut story, head) = asking_before_a_deferral();
    story.now += SECOND;
    story.message();
    let until = story.deferral();
    assert!(until.is_some());
    story.refused(head);
    assert_eq!(story.step(head), WaitStep::Park(until), "another client has its turn");
}

#[test]
fn a_head_that_leaves_while_it_asks_forgets_no_deferral() {
    let (mut story, head) = asking_before_a_deferral();
    let (next, _) = story.join_only();
    let until = story.deferral();
    story.leave(head);
    assert_eq!(story.step(next), WaitStep::Park(until));
}

/// An older call comes in front of one that asks, and has not asked yet.
fn passed_while_asking() -> (Story, [Ticket; 2], Arc<Notify>) {
    let (mut story, [(older, wake), (asking, _)]) = Story::parked();
    story.leave(older);
    story.message();
    assert_eq!(story.step(asking), WaitStep::Ask);
    let (names, stay) = (story.names.clone(), Stay { since: story.now, until: None });
    story.at().join_with(older, &names, Some(wake.clone()), stay);
    (story, [older, asking], wake)
}

#[test]
fn a_reason_counts_for_a_request_behind_the_head_which_is_never_polled_again() {
    let (mut story, [older, asking], _) = passed_while_asking();
    assert_eq!(story.step(older), WaitStep::Ask);
    story.message();
    // Its first request takes too long, so the other one is the head.
    story.now += 3 * SECOND;
    story.refused(asking);
    assert_eq!(story.step(asking), WaitStep::Ask);
}

#[test]
fn a_grant_behind_the_head_that_is_over_by_then_takes_no_reason_from_the_head() {
    let (mut story, [older, asking], _) = passed_while_asking();
    // Redis has granted the lock to the one behind, and another client has freed it since by force.
    story.message();
    story.granted(asking);
    assert_eq!(story.step(older), WaitStep::Ask);
}

#[test]
fn a_grant_behind_the_head_wakes_it() {
    let (mut story, [older, asking], wake) = passed_while_asking();
    assert_eq!(story.step(older), WaitStep::Ask);
    story.refused(older);
    assert_eq!(story.step(older), story.longest_park());
    story.wakes();
    assert!(are(&story.granted(asking).wake, &[&wake]), "the lease of before may be over");
    assert_eq!(story.step(older), WaitStep::Ask);
}

/// Its client listens still, because it had the lock a moment ago, or does so again, or hears of another one's turn.
#[test]
fn a_call_whose_wait_ends_before_the_deferral_of_its_client_asks_in_the_middle_of_it() {
    let millis = Duration::from_millis;
    for (wait, asks_after) in [(1, Some(0)), (2, Some(0)), (30, Some(14)), (60_000, None)] {
        for meanwhile in ["nothing", "a message", "a new subscription"] {
            let (mut story, head) = asking_before_a_deferral();
            story.granted(head);
            let names = story.names.clone();
            story.at().record_release(&names, Some(3));
            story.now += SECOND;
            assert!(story.at().begin_deferral(&names, None));
            // It hears its own message late, and gives others as much time.
            story.now += millis(50);
            story.message();
            if meanwhile == "a new subscription" {
                story.cut();
            }
            let stay = Stay { since: story.now, until: Some(story.now + millis(wait)) };
            let ticket = story.at().join(&names, Some(Arc::default()), stay);
            let begun = story.now;
            if asks_after != Some(0) {
                let _ = story.step(ticket);
                match meanwhile {
                    "a message" => _ = story.message(),
                    "a new subscription" => _ = story.drive(),
                    _ => {}
                }
                let asks_at = asks_after.map(|after| begun + millis(after));
                let parks = WaitStep::Park(asks_at.or(story.deferral()));
                assert_eq!(story.step(ticket), parks, "{wait} ms, {meanwhile}");
                story.now = asks_at.unwrap_or(begun + SECOND);
            }
            assert_eq!(story.step(ticket), WaitStep::Ask, "{wait} ms, {meanwhile}");
        }
    }
}

/// It could wait for as long, until its client heard its own message and gave the others more time.
#[test]
fn a_call_whose_wait_ends_before_a_deferral_that_became_longer_asks_in_the_middle_of_it() {
    let (mut story, head) = asking_before_a_deferral();
    story.granted(head);
    let (names, micros) = (story.names.clone(), Duration::from_micros);
    story.at().record_release(&names, Some(2));
    story.now += SECOND;
    assert!(story.at().begin_deferral(&names, None));
    let deferral = story.deferral().expect("a deferral");
    let stay = Stay { since: story.now, until: Some(deferral + micros(500)) };
    let ticket = story.at().join(&names, Some(Arc::default()), stay);
    assert_eq!(story.step(ticket), WaitStep::Park(Some(deferral)));
    story.now = deferral - micros(100);
    story.message();
    assert!(story.deferral() > stay.until);
    assert_eq!(story.step(ticket), WaitStep::Ask, "the middle is over");
}

/// It had the timer of all that are behind it.
#[test]
fn one_behind_a_first_request_that_leaves_has_the_next_one_look() {
    let mut story = Story::new();
    let (first, _) = story.join_only();
    assert_eq!(story.step(first), WaitStep::Ask);
    let (second, two) = story.join();
    let (third, three) = story.join();
    let passed_at = WaitStep::Park(Some(story.now + 3 * SECOND));
    assert_eq!([story.step(second), story.step(third)], [passed_at, WaitStep::Park(None)]);
    let names = story.names.clone();
    story.at().change(&names, |queue, _| {
        queue.park(second, &two);
        queue.park(third, &three);
    });
    assert!(are(&story.leave(second).wake, &[&three]));
    assert_eq!(story.step(third), passed_at);
}
