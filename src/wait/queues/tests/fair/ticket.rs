//! The tickets of an entry, by which Redis knows which of two requests is the later one.

use super::*;

#[test]
fn an_entry_that_is_given_up_is_not_that_of_a_waiter_that_has_yet_to_ask() {
    let mut world = World::new();
    let first = world.join(1);
    assert!(world.asks(first));
    let (_, brought) = world.brings(false).expect("an entry");
    world.handed(first);
    assert_eq!(world.last_to_leave(), Some(brought));
    world.join_only(2);
    let leaves = world.last_to_leave().expect("it has yet to ask");
    let (_, ticket) = world.brings(false).expect("an entry");
    assert!(brought <= leaves && leaves < ticket, "{leaves}, {ticket}");
}

#[test]
fn a_request_ahead_of_a_hand_off_brings_the_entry_of_who_is_behind() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    assert_eq!(world.oldest(), Some(first));
    let (waiter, brought) = world.brings(true).expect("an entry");
    assert_eq!(waiter, second);
    world.handed(first);
    let leaves = world.last_to_leave().expect("it has yet to ask");
    assert!(leaves < brought, "{leaves}, {brought}");
}

#[test]
fn an_entry_has_a_higher_ticket_each_time_that_it_stands_for_another_waiter() {
    let mut world = World::new();
    let (first, second) = (world.join(1), world.join(2));
    let tickets = [false, false, true, false].map(|behind| world.brings(behind).expect("an entry"));
    assert_eq!(tickets.map(|(waiter, _)| waiter), [first, first, second, first]);
    let tickets = tickets.map(|(_, ticket)| ticket);
    assert!(tickets[0] == tickets[1] && tickets.is_sorted(), "{tickets:?}");
    assert!(tickets[1] < tickets[2] && tickets[2] < tickets[3], "{tickets:?}");
    world.handed(first);
    let leaves = world.last_to_leave().expect("it is not asked for");
    assert!(tickets[3] <= leaves, "{leaves}");
    let (_, ticket) = world.brings(false).expect("an entry");
    assert!(leaves < ticket, "{ticket}");
    world.granted(second, HOUR);
    assert_eq!(world.last_to_leave(), Some(ticket));
}

/// The entry is that of the one behind two whose first requests take too long. The second of these has the lock after all.
#[test]
fn an_entry_that_is_given_up_is_not_that_of_the_waiter_behind_one_whose_request_takes_long() {
    let mut world = World::new();
    let [slow, slower, last] = [1, 2, 3].map(|waiter| world.join_only(waiter));
    for slow in [slow, slower] {
        assert!(world.asks(slow));
        world.now += ms(1_000);
    }
    let (waiter, brought) = world.brings(false).expect("an entry");
    assert_eq!(waiter, last);
    world.granted(slower, HOUR);
    let leaves = world.last_to_leave().expect("it has yet to ask");
    assert!(leaves < brought, "{leaves}, {brought}");
    assert_eq!(world.brings(false), Some((last, brought)));
}

#[test]
fn what_brings_an_entry_after_none_has_a_higher_ticket() {
    let mut world = World::new();
    let only = world.join_only(1);
    assert!(world.asks(only));
    let (_, before) = world.brings(false).expect("an entry");
    world.now += ms(1_000);
    let names = world.names.clone();
    let none = world.at().bring_entry(&names, false).expect_err("its request takes too long");
    world.refused(only, HOUR);
    let (_, after) = world.brings(false).expect("an entry");
    assert!(before <= none && none < after, "{before}, {none}, {after}");
}
