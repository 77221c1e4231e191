//! Updated leases of a fair lock, as the script executes them.

use super::*;
use crate::transport::Answer;

/// The whole seconds that the oldest waiter elsewhere has waited.
fn seconds(age: &Value) -> Option<u64> {
    let Value::Int(age) = age else { panic!("no age: {age:?}") };
    u64::try_from(*age).ok().map(|age| age / SECOND)
}

#[test]
fn a_client_that_has_the_lock_is_told_how_old_the_oldest_waiter_elsewhere_is() {
    let mut queue = Queue::new();
    let granted = Value::Array(vec![Value::Nil, Value::Int(-1)]);
    assert_eq!(queue.acquire("a:1", &NO_ENTRY), granted);
    queue.acquire("a:2", &since("a", 9));
    let update = |queue: &mut Queue| {
        let Value::Array(reply) = queue.update("a:1", LEASE, None) else { panic!("no array") };
        seconds(&reply[1])
    };
    assert_eq!(update(&mut queue), None);
    assert!(queue.order().is_empty(), "the entry of a waiter that has the lock");
    queue.acquire("x:1", &since("x", 4));
    queue.acquire("y:1", &since("y", 6));
    let Value::Array(refusal) = queue.acquire("a:3", &since("a", 9)) else { panic!("no refusal") };
    assert_eq!((refusal.len(), seconds(&refusal[1])), (5, Some(6)), "its own entry does not count");
    assert_eq!(refusal[4], Value::Int(1), "it is the first");
    let Value::Array(refusal) = queue.acquire("y:1", &since("y", 6)) else { panic!("no refusal") };
    assert_eq!(refusal[4], Value::Nil, "it is not");
    assert_eq!(update(&mut queue), Some(6));
    assert_eq!(queue.order(), ["y", "x"]);
    assert_eq!(queue.update("a:2", LEASE, None), said(Loss::TakenOver), "another owner has it");
    let [_a, y] = ["a", "y"].map(|client| queue.listens(client));
    queue.release("a:1", "a", Some(5));
    assert_eq!(queue.granted("y", y).1, Some(5));
    queue.assert_nothing_eternal();
}

#[test]
fn a_lease_that_ends_sooner_is_told_and_the_entry_is_that_of_the_next_waiter() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    for (client, seconds) in [("x", 4), ("y", 3), ("z", 2)] {
        queue.acquire(&format!("{client}:1"), &since(client, seconds));
    }
    let [x, y, z] = ["x", "y", "z"].map(|client| queue.listens(client));
    // The lease does not end sooner: the script notifies no client.
    queue.update("a:1", LEASE, None);
    queue.update("a:1", 500_000, Some(1));
    assert_eq!(queue.order(), ["x", "y", "z", "a"]);
    assert_eq!(queue.hears(x).as_deref(), Some("500001"));
    assert_eq!(queue.hears(y), Some((500_001 + GRACE).to_string()));
    assert_eq!(queue.hears(z), None);
    queue.assert_nothing_eternal();
}

#[test]
fn tokens_come_with_the_age_of_the_oldest_waiter_elsewhere() {
    let answer = |value| Answer { value, sent: clock::now(), repeated: false, asking: false };
    let token = Value::BulkString(b"17".to_vec());
    let mut reply = answer(Value::Array(vec![token.clone(), Value::Int(6_000_000)]));
    let foreign = QueueNews::take(&mut reply).foreign.expect("news");
    assert!(foreign.oldest.is_some());
    let (granted, _) = acquired(reply, 3).expect("a grant");
    let Acquired::Granted(mut tokens) = granted else { panic!("{granted:?}") };
    let drawn: Vec<u64> = std::iter::from_fn(|| tokens.draw()).map(u64::from).collect();
    assert_eq!(drawn, [15, 16, 17]);
    acquired(answer(token), 0).expect_err("this lock has no token");
}

/// A message of a release wakes one thread, and no release follows.
#[test]
fn all_threads_of_redisson_hear_of_a_lock_that_stays_for_less_than_its_lease() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.listening.push(Listening::new(queue.server.connect(), CHANNEL));
    for (lease, listens, messages) in [(500_000, "0", &["0"][..]), (100_000, "", &["1", "0"])] {
        let entry = Entry { age: None, ..since("a", 0) };
        let args: [&dyn ToString; 5] = [&"a:1", &1, &lease, &0, &listens];
        assert!(matches!(queue.run(&SCRIPTS.fair_update, &entry, &args), Value::Array(_)));
        for message in messages {
            assert_eq!(queue.hears(0).as_deref(), Some(*message));
        }
        assert_eq!(queue.hears(0), None);
    }
}
