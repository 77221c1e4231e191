//! Readers that come in together with one that has the lock.

use super::*;

impl World {
    fn let_in(&mut self, tickets: &[Ticket]) -> Vec<Arc<u32>> {
        let names = self.names.clone();
        self.queues.take_effects();
        self.at().change(&names, |queue, cx| queue.record_let_in(tickets, cx));
        self.queues.take_effects().wake
    }
}

/// Redis granted the lock to the one before them, and has no entry of this client.
#[test]
fn the_head_behind_readers_that_were_let_in_asks_at_once() {
    let mut world = World::new();
    let [first, second, third] = [1, 2, 3].map(|waiter| world.join(waiter));
    assert!(world.asks(first));
    world.granted(first, HOUR);
    assert_eq!(world.let_in(&[second]), [3.into()]);
    assert!(world.asks(third), "Redis does not know that it waits");
}

#[test]
fn an_entry_that_a_reader_has_left_is_brought_up_to_date_at_once_or_given_up() {
    let mut world = World::new();
    let [first, second] = [1, 2].map(|waiter| world.join(waiter));
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert_eq!(world.let_in(&[first]), [2.into()]);
    assert!(world.has_entry() && !world.leave(first));
    assert!(world.asks(second), "the entry is that of the first");
    world.refused(second, HOUR);
    assert_eq!(world.let_in(&[second]), []);
    assert!(world.leave(second), "no call waits");
}

#[test]
fn a_reader_that_asks_keeps_its_entry_when_those_behind_it_are_let_in() {
    let mut world = World::new();
    let [first, second, third] = [1, 2, 3].map(|waiter| world.join(waiter));
    assert!(world.asks(first));
    assert_eq!(world.let_in(&[second]), []);
    world.refused(first, HOUR);
    assert!(world.has_entry() && !world.asks(first));
    assert!(!world.leave(first), "it is that of its client");
    assert!(world.leave(third), "its request brought the entry");
}

/// It stood for a reader, and stands for the writer behind it.
#[test]
fn an_entry_that_stays_when_a_reader_has_the_lock_is_given_up_with_the_last_waiter() {
    for stays in [false, true] {
        let mut world = World::new();
        let [first, second] = [1, 2].map(|waiter| world.join(waiter));
        assert!(world.asks(first));
        world.entry().set_stays(stays);
        world.granted(first, HOUR);
        assert_eq!(world.has_entry(), stays);
        assert_eq!(world.leave(second), stays);
        let third = world.join(3);
        assert!(world.asks(third));
        world.granted(third, HOUR);
        assert!(!world.has_entry(), "it goes with the next grant");
    }
}

#[test]
fn the_head_says_at_once_that_the_first_writer_behind_it_has_come_or_left() {
    let mut world = World::new();
    let names = world.names.clone();
    let changes = |world: &mut World| {
        world.at().change(&names, |queue, cx| queue.record_first_writer(cx));
    };
    changes(&mut world);
    let first = world.join(1);
    assert!(world.asks(first));
    changes(&mut world);
    world.refused(first, HOUR);
    assert!(world.asks(first), "its request may be older than the writer");
    world.refused(first, HOUR);
    assert!(!world.asks(first));
    changes(&mut world);
    assert!(world.asks(first));
}

/// A release tells Redis that no call waits, before the call that was let in is over. No other client is given the turn
/// by that.
#[test]
fn a_call_that_was_let_in_gives_its_entry_up_whatever_was_released_meanwhile() {
    let mut world = World::new();
    let client = "0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968";
    world.names = Names::of_read_write("", "lock", client).into();
    let first = world.join(1);
    assert!(world.asks(first));
    world.refused(first, HOUR);
    assert_eq!(world.let_in(&[first]), []);
    assert_eq!(world.brings(false), None);
    assert!(world.leave(first));
}
