//! The fair lock at a server whose memory is full, whose clock is set back, or which permits too little.

use super::*;

#[test]
fn a_release_and_a_leave_work_with_memory_full() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.acquire("x:1", &since("x", 1));
    let x = queue.listens("x");
    queue.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    // The client that releases has an older waiter. That client is alive, though it is not subscribed yet.
    assert_eq!(queue.release("a:1", "a", Some(2)), Value::Int(0));
    assert_eq!((queue.order(), queue.notified()), (vec!["a".into(), "x".into()], Some("a".into())));
    assert_eq!(queue.hears(x), Some((GRACE + 1).to_string()));
    assert!(queue.is_granted("a:2", &since("a", 2)));
    assert_eq!(queue.release("a:2", "a", None), Value::Int(0));
    queue.takes("x", x);
    queue.acquire("y:1", &since("y", 0));
    queue.leave("y");
    queue.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    queue.assert_nothing_eternal();
}

#[test]
fn with_memory_full_a_waiter_is_refused_without_an_entry_and_has_the_lock_when_it_has_one() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.acquire("x:1", &since("x", 1));
    queue.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let (left, holder) = refusal_of(&queue.acquire("y:1", &since("y", 2)));
    assert!(left > 0 && holder == "a:1");
    assert_eq!(queue.order(), ["x"]);
    queue.release("a:1", "a", None);
    // No error: the others would rather wait than fail.
    queue.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(queue.is_granted("y:1", &since("y", 2)));
}

#[test]
fn with_memory_full_a_client_that_is_notified_has_the_lock() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.acquire("x:1", &since("x", 1));
    queue.counts = false;
    assert_eq!(queue.release("a:1", "a", None), Value::Int(0));
    queue.counts = true;
    assert_eq!(queue.notified().as_deref(), Some("x"));
    queue.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = queue.acquire("y:1", &since("y", 2));
    assert!(matches!(refused, Value::ServerError(_)), "without an entry: {refused:?}");
    assert!(queue.is_granted("x:1", &since("x", 1)));
    assert_eq!(queue.ask::<Vec<String>>(&["HKEYS", LOCK]), ["x:1"]);
    assert!(queue.order().is_empty());
    queue.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    queue.assert_nothing_eternal();
}

#[test]
fn a_clock_that_is_set_back_keeps_nobody_out() {
    let mut queue = Queue::new();
    queue.ask::<()>(&["ZADD", QUEUE, "1", "dead"]);
    let later = queue.ask::<Vec<u64>>(&["TIME"])[0] * 1000 + 3_600_000;
    queue.ask::<()>(&["HSET", WAITING, "notified", "dead", "alive:dead", &later.to_string()]);
    assert!(queue.is_granted("y:1", &since("y", 3)), "it is dead, whatever the clock says");
}

#[test]
fn what_is_not_permitted_leaves_no_hold_and_nothing_eternal() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.acquire("x:1", &since("x", 1));
    queue.counts = false;
    queue.release("a:1", "a", None);
    assert_eq!(queue.notified().as_deref(), Some("x"));
    for command in ["zrem", "hdel"] {
        queue.ask::<()>(&["ACL", "SETUSER", "default", &format!("-{command}")]);
        let refused = queue.acquire("x:1", &since("x", 1));
        assert!(matches!(refused, Value::ServerError(_)), "{command}: {refused:?}");
        assert_eq!(queue.ask::<u32>(&["EXISTS", LOCK]), 0, "{command}");
        queue.ask::<()>(&["ACL", "SETUSER", "default", "+@all"]);
    }
    assert!(queue.is_granted("x:1", &since("x", 1)));
    queue.ask::<()>(&["ACL", "SETUSER", "default", "-pexpire"]);
    let refused = queue.acquire("y:1", &since("y", 1));
    assert!(matches!(refused, Value::ServerError(_)), "{refused:?}");
    queue.assert_nothing_eternal();
}

#[test]
fn a_key_of_another_type_is_named_before_anything_is_written() {
    let mut queue = Queue::new();
    for (key, nth, waits) in [(QUEUE, 2, true), (QUEUE, 2, false), (WAITING, 3, true)] {
        queue.ask::<()>(&["SET", key, "text"]);
        for held in [false, true] {
            if held {
                queue.ask::<()>(&["HSET", LOCK, "b:1", "1"]);
            }
            // Who does not wait needs to know nothing of the queue then.
            if held && !waits {
                continue;
            }
            let entry = if waits { since("a", 1) } else { NO_ENTRY };
            let refused = queue.acquire("a:1", &entry);
            let Value::ServerError(error) = refused else { panic!("{refused:?}") };
            let says = format!("key {nth} is not of a queue");
            assert_eq!((error.code(), error.details()), ("WRONGTYPE", Some(&*says)));
            let keys: Vec<String> = queue.ask(&["KEYS", "*"]);
            assert_eq!(keys.len(), 1 + usize::from(held), "{keys:?}");
        }
        queue.ask::<()>(&["FLUSHALL"]);
    }
}
