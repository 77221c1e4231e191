//! What comes with a chain of hand-offs: tokens, the turns of other clients, and a grant by message.

use std::num::NonZeroU64;

use tokio::sync::oneshot;

use super::handoff::{LAST, NEXT};
use super::*;

fn token(number: u64) -> FencingToken {
    FencingToken::new(NonZeroU64::new(number).unwrap())
}

#[test]
fn each_holder_has_the_next_token_and_none_is_given_twice() {
    let story = Story::new();
    let ask = story.holds().ask_first(ME);
    let tokens = TokenBlock::up_to(token(12), 3);
    let granted = story.holds().record_grant(ask, Lease::Watchdog, WATCHDOG, tokens, story.now);
    assert_eq!(granted.2, Some(token(10)));
    let Nesting::Ask(ask) = story.holds().ask_nested(ME, story.now) else { panic!() };
    let none = TokenBlock::default();
    let nested = story.holds().record_grant(ask, Lease::Watchdog, WATCHDOG, none, story.now);
    assert_eq!(nested.2, Some(token(10)), "it is the same hold to a store");
    for hold in [granted.0, nested.0] {
        story.give_back(hold);
    }
    let next = |to| {
        let handed = story.try_hand_off(to, Lease::Watchdog, true, None)?;
        story.give_back(handed.hold.0);
        handed.hold.2
    };
    assert_eq!(next(NEXT), Some(token(11)));
    let handed = story.try_hand_off(LAST, Lease::Watchdog, true, None).expect("the last");
    let update =
        story.holds().next_update(&story.config, Some(64), story.now).expect("more tokens");
    assert_eq!((handed.hold.2, update.tokens), (Some(token(12)), 64));
    story.give_back(handed.hold.0);
    let before = story.pending();
    assert_eq!(next(NEXT), None, "none is left: the next one asks Redis");
    assert_eq!(story.pending(), before, "nothing has changed");
    let drawn = TokenBlock::up_to(token(100), 64);
    story.holds().record_update(update, drawn, 0, story.now, story.now);
    assert_eq!((next(NEXT), next(LAST)), (Some(token(37)), Some(token(38))));
}

#[test]
fn tokens_are_drawn_when_half_of_a_block_is_gone() {
    let story = Story::given_back(Lease::Watchdog);
    story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    let ask = |story: &Story, block| {
        let update = story.holds().next_update(&story.config, block, story.now);
        update.map_or(0, |update| update.tokens)
    };
    assert_eq!(ask(&story, Some(0)), 0, "no waiter needs one");
    let update = story.holds().next_update(&story.config, Some(8), story.now).expect("a block");
    for (last, asks) in [(107, 0), (104, 0), (103, 8)] {
        let left = TokenBlock::up_to(token(last), u32::try_from(last - 99).unwrap() - 1);
        story.holds().record_update(update, left, 0, story.now, story.now);
        assert_eq!(ask(&story, Some(8)), asks, "{} are left", left.left());
    }
}

#[test]
fn a_streak_of_hand_offs_ends_while_others_wait_and_only_then() {
    let mut story = Story::given_back(HOUR.into());
    story.config.max_handoffs = 3;
    let over = |story: &Story| story.holds().turn_of_others(&story.config, story.now);
    for handoffs in 1..=5 {
        let (hold, _) = story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
        story.record_update(story.next_update().expect("a lease"), 0);
        assert_eq!(over(&story), None, "no other client waits");
        let (confirm, _confirmation) = oneshot::channel();
        story.holds().confirms_to(confirm);
        story.record_update(story.next_update().expect("who awaits it"), 2);
        assert_eq!(over(&story), (handoffs >= 3).then_some(2), "{handoffs}");
        story.give_back(hold);
    }
    // By time, too.
    let mut story = Story::given_back(HOUR.into());
    assert_eq!(over(&story), None);
    story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
    story.record_update(story.next_update().expect("a lease"), 1);
    assert_eq!(over(&story), None);
    story.now += story.config.max_handoff_time;
    assert_eq!(over(&story), Some(1));
    // However long that is.
    story.config.max_handoff_time = Duration::MAX;
    assert_eq!(over(&story), None);
}

#[test]
fn redis_is_asked_how_many_wait_half_a_streak_after_the_last_answer() {
    let mut story = Story::given_back(Lease::Watchdog);
    story.config.max_handoffs = 5;
    for asks in [false, false, true, false, false, true] {
        let (hold, _) = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
        let update = story.next_update();
        assert_eq!(update.is_some(), asks);
        update.map(|update| story.record_update(update, 0));
        story.give_back(hold);
    }
    story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    assert_eq!(story.next_update(), None);
    story.now += story.config.max_handoff_time / 2;
    assert!(story.next_update().is_some(), "by time, too");
}

#[test]
fn a_lock_that_redis_granted_by_message_is_the_first_waiter_s_for_no_longer_than_that() {
    let story = Story::new();
    let grace = Duration::from_millis(800);
    let until = valid_until(story.now, grace);
    story.holds().granted_by_message(grace, until, TokenBlock::default());
    assert_eq!(story.pending().map(|pending| pending.count), Some(0), "no handle is inside");
    let (hold, validity) = story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
    assert_eq!(validity.check(story.now), Some(until));
    story.give_back(hold);
    // It left as it got it, and the next one has a default lease.
    story.hand_off(LAST, Lease::Watchdog).expect("a hand-off");
    assert_eq!(story.next_update().map(|update| update.lease), Some(WATCHDOG));
}

/// The waiter for which Redis was asked has left, and the next one would have a longer lease.
#[test]
fn a_lease_that_was_written_ahead_is_what_the_next_hold_relies_on() {
    let story = Story::new();
    let (grace, short) = (Duration::from_millis(800), Duration::from_millis(200));
    story.holds().granted_by_message(grace, valid_until(story.now, grace), TokenBlock::default());
    story.record_update(Update::ahead(short, 0), 0);
    let (_, validity) = story.hand_off(NEXT, HOUR.into()).expect("a hand-off");
    let ends = valid_until(story.now, short);
    assert!(validity.check(story.now) <= Some(ends), "Redis ends it before that");
    // A default one is renewed from then on.
    let story = Story::new();
    story.holds().granted_by_message(grace, valid_until(story.now, grace), TokenBlock::default());
    story.record_update(Update::ahead(WATCHDOG, 0), 0);
    let (hold, _) = story.hand_off(NEXT, Lease::Watchdog).expect("a hand-off");
    story.holds().takes(hold, WATCHDOG, story.now);
    assert_eq!(story.holds().watched_since(NEXT), Some(story.now));
}

#[test]
fn a_release_says_once_which_tokens_no_holder_got() {
    let story = Story::new();
    let ask = story.holds().ask_first(ME);
    let tokens = TokenBlock::up_to(token(12), 3);
    let granted = story.holds().record_grant(ask, Lease::Watchdog, WATCHDOG, tokens, story.now);
    let drawn = |pending: Option<PendingRelease>| pending.expect("a release").drawn;
    let ahead = |pending| drawn(pending).expect("a fenced lock").ahead();
    assert_eq!(ahead(story.give_back(granted.0)), Some((token(10), token(12))));
    let handed = story.try_hand_off(NEXT, Lease::Watchdog, true, None).expect("a hand-off");
    let pending = story.give_back(handed.hold.0).expect("a release");
    assert_eq!(ahead(Some(pending)), Some((token(11), token(12))));
    story.holds().release_confirmed(pending);
    // A server has missed it, and by then others may have drawn some.
    story.holds().counted = 1;
    assert_eq!(ahead(story.pending()), None);

    let story = Story::new();
    let ask = story.holds().ask_first(ME);
    let all = TokenBlock::up_to(token(10), 1);
    let granted = story.holds().record_grant(ask, Lease::Watchdog, WATCHDOG, all, story.now);
    assert_eq!(ahead(story.give_back(granted.0)), None, "it has used all of them");
    let story = Story::given_back(Lease::Watchdog);
    assert_eq!(drawn(story.pending()), None, "this lock has none");
}
