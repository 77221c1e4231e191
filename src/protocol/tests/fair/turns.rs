//! Whose turn it is, and who is passed over.

use super::*;

#[test]
fn a_release_tells_the_next_and_when_the_second_has_to_look() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    for (client, seconds) in [("x", 1), ("y", 3), ("z", 2)] {
        queue.acquire(&format!("{client}:1"), &since(client, seconds));
    }
    let [x, y, z] = ["x", "y", "z"].map(|client| queue.listens(client));
    assert_eq!(queue.release("a:1", "a", None), Value::Int(0));
    let (grant, others) = queue.granted("y", y);
    assert_eq!(others, Some(2));
    assert_eq!(queue.hears(z), Some((GRACE + 1).to_string()));
    assert_eq!(queue.hears(x), None);
    assert_eq!((queue.order(), queue.notified()), (vec!["z".to_owned(), "x".to_owned()], None));
    // Once more: the field is gone, and another owner's is there.
    assert_eq!(queue.release("a:1", "a", None), said(Loss::TakenOver));
    assert_eq!(queue.hears(y), None);
    // No other client has it now, with an entry or without.
    let (left, holder) = refusal_of(&queue.acquire("z:1", &since("z", 2)));
    assert!((1..=GRACE).contains(&left) && holder == grant, "{left} {holder}");
    refusal_of(&queue.acquire("b:1", &NO_ENTRY));
    // Executed twice, as when the reply was lost.
    for _ in 0..2 {
        queue.update(&grant, LEASE, None);
        assert_eq!(queue.ask::<Vec<String>>(&["HKEYS", LOCK]), [&*grant]);
        assert!(queue.ask::<u64>(&["PTTL", LOCK]) > GRACE);
    }
    assert_eq!(queue.release(&grant, "y", None), Value::Int(0));
    queue.takes("z", z);
    queue.assert_nothing_eternal();
}

#[test]
fn a_client_without_a_connection_is_passed_over_and_one_that_does_not_come_too() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    for (client, seconds) in [("dead", 5), ("x", 4), ("y", 3)] {
        queue.acquire(&format!("{client}:1"), &since(client, seconds));
    }
    let [x, y] = ["x", "y"].map(|client| queue.listens(client));
    queue.release("a:1", "a", None);
    assert_eq!(queue.order(), ["y"]);
    queue.granted("x", x);
    assert_eq!(queue.hears(y), Some((GRACE + 1).to_string()));
    // Its grace ends, and with it the lock.
    queue.ask::<()>(&["DEL", LOCK]);
    assert!(queue.is_granted("y:1", &since("y", 3)));
    assert!(queue.order().is_empty());
    // It was alive after all, and stands where it stood.
    queue.acquire("z:1", &since("z", 2));
    queue.acquire("x:1", &since("x", 4));
    assert_eq!(queue.order(), ["x", "z"]);
    // It is silent for a term: another client has its turn, and it has to ask again.
    queue.ask::<()>(&["HSET", WAITING, "alive:x", "1"]);
    let z = queue.listens("z");
    queue.release("y:1", "y", Some(1));
    assert_eq!(queue.hears(x).as_deref(), Some("0"));
    queue.granted("z", z);
    assert_eq!(queue.order(), ["y"]);
}

#[test]
fn a_client_that_leaves_passes_its_turn_on() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.acquire("x:1", &since("x", 4));
    queue.acquire("y:1", &since("y", 3));
    let y = queue.listens("y");
    let x = queue.listens("x");
    // Redis may have notified it already that its turn has come.
    queue.ask::<()>(&["DEL", LOCK]);
    queue.ask::<()>(&["HSET", WAITING, "notified", "x"]);
    assert_eq!(queue.leave("x"), Value::Okay);
    assert_eq!(queue.hears(x), None);
    let (grant, _) = queue.granted("y", y);
    assert_eq!(queue.leave("x"), said(Loss::KeyGone));
    // It has no entry, and what was granted may not have come to it: so it hears of that here, too.
    let (left, owner) = refusal_of(&queue.leave("y"));
    assert!(owner == grant && (1..=GRACE).contains(&left), "{owner}: {left}");
    // The same behind an entry of a later waiter, and the next client hears that it is the first.
    queue.acquire("y:1", &Entry { ticket: 8, ..since("y", 2) });
    queue.acquire("z:1", &since("z", 1));
    let z = queue.listens("z");
    assert_eq!(refusal_of(&queue.leave("y")).1, grant);
    assert_eq!((queue.hears(y), queue.hears(z).as_deref()), (None, Some("1")));
    assert_eq!(queue.leave("z"), Value::Okay, "it has no lock");
    assert_eq!(queue.release(&grant, "y", None), Value::Int(0));
    assert_eq!(queue.ask::<u32>(&["DBSIZE"]), 0, "something is left");
}

#[test]
fn where_subscribers_are_not_counted_the_next_client_is_told_and_asks() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    for (client, seconds) in [("x", 3), ("y", 2)] {
        queue.acquire(&format!("{client}:1"), &since(client, seconds));
    }
    let [x, y] = ["x", "y"].map(|client| queue.listens(client));
    queue.counts = false;
    assert_eq!(queue.release("a:1", "a", None), Value::Int(0));
    queue.counts = true;
    assert_eq!(queue.hears(x).as_deref(), Some("0"));
    assert_eq!(queue.hears(y), Some((GRACE + 1).to_string()));
    assert_eq!((queue.ask::<u32>(&["EXISTS", LOCK]), queue.notified().as_deref()), (0, Some("x")));
    // No other client has it now, with an entry or without.
    for (owner, entry) in [("y:1", since("y", 2)), ("b:1", NO_ENTRY)] {
        let (left, holder) = refusal_of(&queue.acquire(owner, &entry));
        assert!((1..=GRACE).contains(&left) && holder.is_empty(), "{left} {holder}");
    }
    assert_eq!(queue.hears(x), None, "Redis notified it before");
    // Executed twice, as when the reply was lost.
    for _ in 0..2 {
        assert!(queue.is_granted("x:1", &since("x", 3)));
        assert_eq!(queue.ask::<u32>(&["HGET", LOCK, "x:1"]), 1);
    }
    assert_eq!((queue.order(), queue.notified()), (vec!["y".to_owned()], None));
}

#[test]
fn a_client_that_asks_is_told_whichever_request_brought_its_entry_and_leaves_nothing() {
    let mut queue = Queue::new();
    let asks = Entry { mode: "notify", ..since("a", 0) };
    assert!(queue.is_granted("a:1", &asks));
    assert_eq!(queue.ask::<u32>(&["DBSIZE"]), 1, "more than the lock is left");
    let next = Entry { age: Some(1), ticket: 2, ..asks };
    assert_eq!(queue.run(&SCRIPTS.fair_release, &next, &[&"a:1"]), Value::Int(0));
    assert_eq!((queue.ask::<u32>(&["EXISTS", LOCK]), queue.notified().as_deref()), (0, Some("a")));
    let fields = ["HMGET", WAITING, "mode:a", "ticket:a"];
    assert_eq!(queue.ask::<Vec<String>>(&fields), ["notify", "2"]);
    assert!(queue.is_granted("a:1", &asks));
    let goes_on: [&dyn ToString; 5] = [&"a:1", &1, &LEASE, &0, &0];
    assert!(matches!(queue.run(&SCRIPTS.fair_update, &next, &goes_on), Value::Array(_)));
    queue.ask::<()>(&["DEL", LOCK]);
    let a = queue.listens("a");
    refusal_of(&queue.acquire("b:1", &NO_ENTRY));
    assert_eq!(queue.hears(a).as_deref(), Some("0"), "it cannot be granted the lock");
    assert_eq!(queue.leave("a"), Value::Okay);
    assert_eq!(queue.ask::<u32>(&["DBSIZE"]), 0, "something is left");
}

#[test]
fn a_client_that_has_just_come_is_waited_for_until_it_is_subscribed() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("h:1", &NO_ENTRY));
    let asked = queue.now();
    queue.acquire("a:1", &Entry { mode: "arriving", ..since("a", 9) });
    queue.acquire("b:1", &since("b", 4));
    let b = queue.listens("b");
    queue.release("h:1", "h", None);
    let passed = queue.now() - asked;
    assert_eq!(
        (queue.order(), queue.notified().as_deref()),
        (vec!["a".into(), "b".into()], Some("a"))
    );
    // It looks when the grace is over that began with the request.
    let looks = queue.hears(b).and_then(|after| after.parse::<u64>().ok()).expect("a number");
    assert!((GRACE + 1 - passed..=GRACE + 1).contains(&looks), "{looks} after {passed}");
    // A younger call of the same client does not have the turn of its older one.
    let entry = Entry { mode: "arriving", ..since("a", 9) };
    let younger = queue.acquire_as("a:2", &entry, "1");
    assert_eq!(refusal_of(&younger).1, "", "the lock is free");
    assert!(!queue.is_granted("b:1", &since("b", 4)));
    let a = queue.listens("a");
    // It looks again after the grace, though its client counts as alive for its term by now.
    let (left, _) = refusal_of(&queue.acquire_as("a:2", &since("a", 9), "1"));
    assert!((1..=GRACE).contains(&left), "{left}");
    assert!(queue.is_granted("a:1", &since("a", 9)));
    // With the first of these requests the turn of its client was over that the other one has heard of.
    assert_eq!(queue.hears(b), Some((LEASE + 1).to_string()));
    queue.acquire("a:2", &since("a", 1));
    queue.release("a:1", "a", Some(1));
    let grant = queue.takes("b", b);
    assert_eq!(queue.hears(a), Some((GRACE + 1).to_string()));
    queue.release(&grant, "b", None);
    // From then on it is granted the lock.
    assert_eq!(queue.granted("a", a).1, None);
    queue.assert_nothing_eternal();
}

#[test]
fn a_client_that_is_not_subscribed_yet_counts_as_alive_for_the_grace_and_then_for_its_term() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("h:1", &NO_ENTRY));
    for (mode, ticket, alive) in
        [("arriving", 1, GRACE), ("grant", 1, TERM), ("notify", 1, TERM), ("arriving", 2, GRACE)]
    {
        let asked = queue.now();
        queue.acquire("a:1", &Entry { mode, ticket, ..since("a", 9) });
        let until: u64 = queue.ask(&["HGET", WAITING, "alive:a"]);
        let passed = queue.now() - asked;
        let left = until - asked;
        assert!((alive..=alive + passed).contains(&left), "{mode}: {left} after {passed}");
    }
}

#[test]
fn a_grant_comes_with_as_many_tokens_as_its_client_wants_if_the_lock_is_fenced() {
    for (fenced, wants) in [(true, 3), (true, 0), (false, 3)] {
        let mut queue = Queue::new();
        assert!(queue.is_granted("h:1", &NO_ENTRY));
        // The counter is ahead of the clock, as when that was set back.
        let ahead = 1_000 * queue.now() + 3_600 * SECOND;
        queue.ask::<()>(&["SET", TOKEN, &ahead.to_string()]);
        queue.acquire("a:1", &Entry { tokens: wants, ..since("a", 9) });
        let a = queue.listens("a");
        queue.fenced = fenced;
        queue.release("h:1", "h", None);
        queue.fenced = false;
        let (owner, _, mut tokens) = queue.granted_with_tokens("a", a);
        let drawn: Vec<u64> = std::iter::from_fn(|| tokens.draw()).map(u64::from).collect();
        let many = if fenced { u64::from(wants) } else { 0 };
        assert_eq!(drawn, (ahead + 1..=ahead + many).collect::<Vec<_>>());
        assert_eq!(queue.ask::<u64>(&["GET", TOKEN]), ahead + many);
        queue.release(&owner, "a", None);
        assert_eq!(queue.ask::<u32>(&["DBSIZE"]), 1, "more than the counter is left");
    }
}

#[test]
fn a_counter_that_is_none_costs_no_client_its_turn() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("h:1", &NO_ENTRY));
    queue.ask::<()>(&["SET", TOKEN, "text"]);
    queue.acquire("a:1", &Entry { tokens: 3, ..since("a", 9) });
    let a = queue.listens("a");
    queue.fenced = true;
    assert_eq!(queue.release("h:1", "h", None), Value::Int(0));
    queue.granted("a", a);
}

#[test]
fn force_tells_the_next_client() {
    let mut queue = Queue::new();
    assert!(queue.is_granted("a:1", &NO_ENTRY));
    queue.acquire("x:1", &since("x", 1));
    let x = queue.listens("x");
    assert_eq!(queue.run(&SCRIPTS.fair_force_unlock, &NO_ENTRY, &[]), Value::Int(0));
    queue.takes("x", x);
}

/// A queue of clients that are all alive, and who has the lock.
struct Turns {
    queue: Queue,
    holder: String,
    _listening: redis::Connection,
}

impl Turns {
    fn new(clients: u64) -> Self {
        let mut queue = Queue::new();
        assert!(queue.is_granted("holder:1", &NO_ENTRY));
        let mut listening = queue.server.connect();
        for number in 0..clients {
            let client = format!("client{number}");
            queue.acquire(&format!("{client}:1"), &since(&client, clients - number));
            let mut subscribe = redis::cmd("SUBSCRIBE");
            subscribe.arg(format!("{CHANNEL}:{client}"));
            listening.send_packed_command(&subscribe.get_packed_command()).unwrap();
            listening.recv_response().unwrap();
        }
        Self { queue, holder: "holder:1".to_owned(), _listening: listening }
    }

    /// What a release costs the server, in microseconds: the mean of ten.
    fn cost(&mut self) -> f64 {
        let Self { queue, holder, .. } = self;
        queue.ask::<()>(&["CONFIG", "RESETSTAT"]);
        for _ in 0..10 {
            let (client, _) = holder.rsplit_once(':').expect("an owner");
            let again = if client == "holder" { None } else { Some(0) };
            assert_eq!(queue.release(holder, client, again), Value::Int(0));
            *holder = queue.ask::<Vec<String>>(&["HKEYS", LOCK]).remove(0);
        }
        let stats: String = queue.ask(&["INFO", "commandstats"]);
        let (_, calls) = stats.split_once("cmdstat_evalsha:").expect("its calls");
        let (_, usec) = calls.split_once("usec_per_call=").expect("what they cost");
        usec.split(',').next().expect("a number").parse().expect("microseconds")
    }
}

/// Both queues have their turns at the same time: what else the machine does costs both the same. A longer skip list and
/// colder caches make it 1.3 to 1.5 times as long; a script that looks at each client, 29 times.
#[test]
fn a_turn_costs_the_server_the_same_however_many_clients_wait() {
    let (mut few, mut many) = (Turns::new(10), Turns::new(10_000));
    few.cost();
    many.cost();
    let costs = (0..60).map(|_| (few.cost(), many.cost()));
    let mut ratios: Vec<f64> = costs.map(|(few, many)| many / few).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    println!("with 10,000 clients a release takes {ratio:.2} times as long as with 10");
    assert!(ratio < 4.0, "{ratios:.2?}");
    assert_eq!(many.queue.order().len(), 9_999, "no client was dropped");
}
