//! A reader and a writer of one handle, and what the server forgets.

use super::*;

/// For a call that waits.
fn ask(client: usize, came: Came) -> Ask {
    let owner = format!("c{client}:1{}", if came.writes { ":write" } else { "" });
    Ask { came: Some(came), ..Ask::once(client, &owner) }
}

/// Of a client in which no call waits.
fn no_waiter(client: usize) -> Says {
    Says { client, came: None, ticket: 9 }
}

fn both(real: &mut Real, mode: &str) {
    let hash = [("mode", mode), ("c0:1", "1"), ("c0:2:write", "1")];
    assert_eq!(real.hash(), BTreeMap::from(hash.map(|(k, v)| (k.to_owned(), v.to_owned()))));
}

#[test]
fn a_handle_that_writes_may_read_and_is_left_with_what_it_has_not_given_back() {
    let mut real = Real::new();
    let (writes, reads) = (Ask::once(0, "c0:2:write"), Ask::once(0, "c0:1"));
    for first in [&writes, &reads] {
        assert_eq!(real.ask(first), Reply::Granted);
        let second = if first.writes { reads.clone() } else { writes.clone() };
        // It waits for no other client, whichever came first.
        let waits = Came::new(1, 1, true);
        let other = Ask { came: Some(waits), ..Ask::once(1, "c1:1:write") };
        assert_eq!(real.ask(&other), Reply::Refused);
        let second = second.beside(&first.owner);
        assert_eq!((real.ask(&second), real.ask(&second)), (Reply::Granted, Reply::Granted));
        both(&mut real, "write");
        assert_eq!(real.release("c0:2:write", &no_waiter(0)), Value::Int(0));
        assert_eq!(real.hash().get("mode").map(String::as_str), Some("read"));
        assert_eq!(real.ask(&Ask::once(0, "c0:2:write").beside("c0:1")), Reply::Granted);
        both(&mut real, "write");
        // The other order.
        assert_eq!(real.release("c0:1", &no_waiter(0)), Value::Int(0));
        assert_eq!(real.hash().get("mode").map(String::as_str), Some("write"));
        assert_eq!(real.release("c0:2:write", &no_waiter(0)), Value::Int(0));
        real.query::<()>(&["FLUSHALL"]);
    }
}

#[test]
fn beside_a_writer_its_own_handle_reads_and_no_other() {
    let mut real = Real::new();
    let (writes, reads) = (Ask::once(0, "c0:2:write"), Ask::once(0, "c0:1"));
    assert_eq!(real.ask(&writes), Reply::Granted);
    assert_eq!(real.ask(&reads), Reply::Refused);
    assert_eq!(real.ask(&reads.clone().beside("c0:2:write")), Reply::Granted);
    let nested = Ask { count: 2, ..reads };
    for in_turn in [false, true] {
        let another = Ask { in_turn, ..nested.clone() };
        assert_eq!(real.ask(&another), Reply::Refused, "all readers of a client are one owner");
    }
    assert_eq!(real.ask(&nested.clone().beside("c0:2:write")), Reply::Granted);
    both(&mut real, "write");
    real.release("c0:2:write", &no_waiter(0));
    assert_eq!(real.ask(&nested), Reply::Granted);
    // It was sent before that.
    assert_eq!(real.ask(&nested.beside("c0:2:write")), Reply::Granted);
}

#[test]
fn only_the_only_reader_may_write_and_none_that_is_gone() {
    let mut real = Real::new();
    let writes = Ask::once(0, "c0:2:write").beside("c0:1");
    assert_eq!(real.ask(&writes), Reply::Gone, "it does not read");
    for owner in ["c0:1", "c1:1"] {
        assert_eq!(real.ask(&Ask::once(0, owner)), Reply::Granted);
    }
    let before = real.hash();
    assert_eq!((real.ask(&writes), real.hash()), (Reply::Refused, before));
    // Both markers have ended: that of the other one shows that it has died.
    real.query::<()>(&["DEL", &marker("c0:1"), &marker("c1:1")]);
    assert_eq!(real.ask(&writes), Reply::Granted);
    both(&mut real, "write");
    real.release("c0:1", &no_waiter(0));
    assert_eq!(real.ask(&Ask::once(0, "c0:3:write").beside("c0:1")), Reply::Taken);
}

/// The hash lasted as long as the lease of a reader that has died.
#[test]
fn a_writer_beside_its_own_reader_keeps_the_lock_for_the_longer_lease_of_the_two() {
    let mut real = Real::new();
    let [gone, longer, shorter] = [LEASE, LEASE / 3, LEASE / 6];
    for (reads, writes, tokens) in [(longer, shorter, 0), (shorter, longer, 2), (longer, 1, 1)] {
        // The other reader leaves, or dies.
        for dies in [false, true] {
            let reader = Ask { lease: reads, ..Ask::once(0, "c0:1") };
            let writer = Ask { lease: writes, tokens, ..Ask::once(0, "c0:2:write") };
            let writer = writer.beside(&reader.owner);
            let other = Ask { lease: gone, ..Ask::once(1, "c1:1") };
            assert_eq!((real.ask(&other), real.ask(&reader)), (Reply::Granted, Reply::Granted));
            if dies {
                real.query::<()>(&["DEL", &marker(&other.owner)]);
            } else {
                real.release(&other.owner, &no_waiter(1));
            }
            let before: u64 = real.query(&["PTTL", LOCK]);
            // A reader that leaves takes its lease along.
            assert_eq!(before > longer, dies, "{before}");
            for _ in 0..2 {
                assert_eq!(real.ask(&writer), Reply::Granted);
                both(&mut real, "write");
                let [lasts, marked]: [u64; 2] =
                    [LOCK.to_owned(), marker(&reader.owner)].map(|key| real.query(&["PTTL", &key]));
                assert!(lasts <= longer && lasts >= marked, "{lasts}, {marked}");
                assert!(lasts > longer - shorter, "{lasts}: no hold gets a shorter lease");
            }
            real.query::<()>(&["FLUSHALL"]);
        }
    }
    // Its marker has ended: what is left is the lease of the writer.
    assert_eq!(real.ask(&Ask::once(0, "c0:1")), Reply::Granted);
    real.query::<()>(&["DEL", &marker("c0:1")]);
    let writer = Ask { lease: shorter, ..Ask::once(0, "c0:2:write").beside("c0:1") };
    assert_eq!(real.ask(&writer), Reply::Granted);
    assert!((1..=shorter).contains(&real.query(&["PTTL", LOCK])));
}

/// A writer knows its own lease, and the server that of the reader.
#[test]
fn a_writer_that_is_updated_keeps_the_lock_for_its_reader_and_no_longer_than_both() {
    let mut real = Real::new();
    let (long, short) = (LEASE, LEASE / 2);
    for (marked, asked, kept) in
        [(Some(long), short, long), (Some(short), long, long), (None, short, short)]
    {
        assert_eq!(real.ask(&Ask { lease: 2 * LEASE, ..Ask::once(0, "c0:1") }), Reply::Granted);
        let writer = Ask { lease: short, ..Ask::once(0, "c0:2:write") }.beside("c0:1");
        assert_eq!(real.ask(&writer), Reply::Granted);
        if let Some(lease) = marked {
            real.query::<()>(&["PEXPIRE", &marker("c0:1"), &lease.to_string()]);
        } else {
            real.release("c0:1", &no_waiter(0));
        }
        let args = ["c0:2:write", "1", &asked.to_string(), "", "c0:1"].map(str::to_owned);
        for _ in 0..2 {
            let keys = [marker("c0:1")];
            real.run(&SCRIPTS.rw_update, &no_waiter(0), &keys, &args);
            let left: u64 = real.query(&["PTTL", LOCK]);
            assert!(left <= kept && left > kept - LEASE / 4, "{marked:?}: {left}, not {kept}");
            let of_reader: i64 = real.query(&["PTTL", &marker("c0:1")]);
            assert_eq!(of_reader > 0, marked.is_some(), "it is not written");
        }
        real.query::<()>(&["FLUSHALL"]);
    }
}

/// The server evicts what is known of the waiting clients, and leaves their queue.
#[test]
fn a_client_of_which_the_server_has_kept_a_part_is_notified_and_never_granted_the_lock() {
    let mut real = Real { counts: true, ..Real::new() };
    let ask = |client: usize, at| {
        let came = Some(Came::new(at, 1, true));
        Ask { came, ..Ask::once(client, &format!("c{client}:1:write")) }
    };
    let (holds, waits) = (ask(0, 1), ask(1, 2));
    assert_eq!((real.ask(&holds), real.ask(&waits)), (Reply::Granted, Reply::Refused));
    let mut listener = real.server.connect();
    let mut listener = listener.as_pubsub();
    listener.subscribe(format!("{CHANNEL}:c1")).unwrap();
    for alive in [false, true] {
        real.query::<()>(&["DEL", WAITING]);
        if alive {
            let until = "9000000000000000";
            real.query::<()>(&["HSET", WAITING, "alive:c1", until]);
        }
        let says = Says { client: 0, came: None, ticket: 1 };
        real.release(&holds.owner, &says);
        assert_eq!(real.hash(), BTreeMap::new(), "no grant: only one that asks may have it");
        assert_eq!(real.ask(&waits), Reply::Granted);
        real.release(&waits.owner, &Says { client: 1, came: None, ticket: 1 });
        assert_eq!((real.ask(&holds), real.ask(&waits)), (Reply::Granted, Reply::Refused));
    }
}

/// Of the waiting clients those matter to a reader that want to write, whether or not a reader of theirs came before.
#[test]
fn a_reader_waits_for_the_writers_before_it_alone_and_hears_of_no_others() {
    let mut real = Real::new();
    let age = |real: &Real, came: u64| i64::try_from((real.now - came) * 1_000_000).unwrap();
    let oldest = |reply: Value| {
        let Value::Array(reply) = reply else { panic!("no grant") };
        let [Value::Nil, Value::Int(oldest)] = *reply else { panic!("{reply:?}") };
        oldest
    };
    assert_eq!(real.ask(&Ask::once(0, "c0:1:write")), Reply::Granted);
    let [first, second, last] =
        [(1, 1), (2, 2), (5, 9)].map(|(client, at)| ask(client, Came::new(at, 1, false)));
    let behind = ask(3, Came { writer: Some(6), ..Came::new(3, 1, false) });
    let before = ask(4, Came::new(8, 1, true));
    for one in [&first, &second, &behind] {
        assert_eq!(real.ask(one), Reply::Refused);
    }
    real.release("c0:1:write", &no_waiter(0));
    // It is the turn of the first, which has yet to come.
    let heard = oldest(real.ask_once(&second, &[]));
    assert!((age(&real, 6)..age(&real, 5)).contains(&heard), "{heard}: that of the writer");
    assert_eq!(real.ask(&before), Reply::Refused, "others read");
    assert_eq!(real.ask(&last), Reply::Refused, "two writers came before it");
    assert_eq!(real.ask(&Ask::once(0, "c0:2")), Reply::Refused, "it would go before those");
    // The reader goes, and the writer behind it stays, also if the request comes twice.
    let heard = oldest(real.ask_once(&behind, &[]));
    assert!((age(&real, 8)..age(&real, 7)).contains(&heard), "{heard}: that of the next writer");
    real.ask(&behind);
    let heard = oldest(real.ask_once(&first, &[]));
    assert!((age(&real, 6)..age(&real, 5)).contains(&heard), "{heard}: the writer has an entry");
    assert_eq!(real.order(), ["c3", "c4", "c5"]);
}

/// It may be all that keeps a reader out, and each request of its client says how old it is.
#[test]
fn a_writer_that_leaves_readers_of_its_client_behind_keeps_nobody_out() {
    let mut real = Real::new();
    assert_eq!(real.ask(&Ask::once(0, "c0:1")), Reply::Granted);
    // The writer of the first client has yet to subscribe.
    let arriving = Came { writes: false, writer: Some(1), ..Came::new(1, 1, true) };
    let (waits, reads) = (ask(1, arriving), ask(2, Came::new(2, 1, false)));
    assert_eq!(
        real.ask(&Ask { owner: "c1:1:write".into(), writes: true, ..waits }),
        Reply::Refused
    );
    assert_eq!(real.ask(&reads), Reply::Refused);
    let says = Says { client: 1, came: Some(Came::new(3, 2, false)), ticket: 2 };
    let keys = [marker("c0:1")];
    let args = ["c0:1".to_owned(), "1".into(), LEASE.to_string(), String::new()];
    real.run(&SCRIPTS.rw_update, &says, &keys, &args);
    assert_eq!(real.ask(&reads), Reply::Granted);
}

/// Redis publishes nothing when a lease ends by itself: the request of another client notifies the first in the queue.
#[test]
fn the_first_in_the_queue_of_a_free_lock_is_notified_when_another_client_asks() {
    let mut real = Real::new();
    for writes in [true, false] {
        let waits = |client: usize, writes| ask(client, Came::new(client as u64, 1, writes));
        assert_eq!(real.ask(&Ask::once(0, "c0:1:write")), Reply::Granted);
        let (first, second) = (waits(1, true), waits(2, writes));
        assert_eq!((real.ask(&first), real.ask(&second)), (Reply::Refused, Reply::Refused));
        real.query::<()>(&["DEL", LOCK]);
        assert_eq!(real.ask(&second), Reply::Refused);
        let notified: Option<String> = real.query(&["HGET", WAITING, "notified"]);
        assert_eq!(notified.as_deref(), Some("c1"), "writes: {writes}");
        assert_eq!(real.ask(&first), Reply::Granted);
        real.query::<()>(&["FLUSHALL"]);
    }
}

/// Its channel has no subscriber yet: the server must not take it for dead when its turn comes.
#[test]
fn a_client_that_has_yet_to_subscribe_is_still_arriving_when_its_reader_has_the_lock() {
    for arrives in [true, false] {
        let mut real = Real::new();
        assert_eq!(real.ask(&Ask::once(0, "c0:1")), Reply::Granted);
        let says = Says { client: 1, came: Some(Came::new(2, 1, false)), ticket: 1 };
        let mut args = ["c1:1", "1000000", "1", "read", "", "", ""].map(str::to_owned).to_vec();
        args.push(real.age(Some(3)));
        if arrives {
            real.run_as("arriving", 0, &SCRIPTS.rw_acquire, &says, &[marker("c1:1")], &args);
        } else {
            real.run(&SCRIPTS.rw_acquire, &says, &[marker("c1:1")], &args);
        }
        assert!(real.hash().contains_key("c1:1"));
        let mode: Option<String> = real.query(&["HGET", WAITING, "mode:c1"]);
        assert_eq!(mode.as_deref(), Some(if arrives { "arriving" } else { "write" }));
    }
}

/// The last waiter of a client has left, and a release says so before the request that gives the entry up.
#[test]
fn who_leaves_the_queue_passes_the_turn_on_although_its_entry_is_gone() {
    let mut real = Real::new();
    for client in 0..2 {
        assert_eq!(real.ask(&Ask::once(client, &format!("c{client}:1"))), Reply::Granted);
    }
    let (writes, reads) = (ask(1, Came::new(1, 1, true)), ask(2, Came::new(2, 1, false)));
    assert_eq!((real.ask(&writes), real.ask(&reads)), (Reply::Refused, Reply::Refused));
    real.release("c1:1", &no_waiter(1));
    assert_eq!(real.order(), ["c2"]);
    for _ in 0..2 {
        real.run(&SCRIPTS.rw_leave, &no_waiter(1), &[], &[]);
        let notified: Option<String> = real.query(&["HGET", WAITING, "notified"]);
        assert_eq!(notified.as_deref(), Some("c2"));
    }
    assert_eq!(real.ask(&reads), Reply::Granted);
}

/// As Redisson's readers do it, on which its writers count: they look at no markers.
#[test]
fn a_reader_that_leaves_others_leaves_them_the_longest_of_their_leases_and_none_to_the_dead() {
    let mut real = Real::new();
    let lasts = |real: &mut Real| real.query::<i64>(&["PTTL", LOCK]);
    let longer = Ask { lease: LEASE / 3, ..Ask::once(1, "c1:1") };
    let shorter = Ask { lease: LEASE / 6, ..Ask::once(2, "c2:1") };
    for ask in [&longer, &Ask::once(0, "c0:1"), &shorter] {
        assert_eq!(real.ask(ask), Reply::Granted);
    }
    assert!(lasts(&mut real) > LEASE as i64 / 3);
    real.release("c0:1", &no_waiter(0));
    let left = lasts(&mut real);
    assert!(left <= LEASE as i64 / 3 && left > LEASE as i64 / 6, "{left}");
    // The first of its two markers has ended: one of Redisson's that has read twice.
    real.query::<()>(&["HSET", LOCK, &longer.owner, "2"]);
    let second = format!("{LOCK}:{}:rwlock_timeout:2", longer.owner);
    real.query::<()>(&["RENAME", &marker(&longer.owner), &second]);
    real.release(&shorter.owner, &no_waiter(2));
    assert_eq!(real.hash().len(), 2, "it lives");
    for (client, owner) in [(0, "c0:2"), (2, "c2:2")] {
        assert_eq!(real.ask(&Ask::once(client, owner)), Reply::Granted);
    }
    real.query::<()>(&["DEL", &second, &marker("c0:2")]);
    let mut other = real.server.connect();
    let mut listener = other.as_pubsub();
    listener.subscribe(CHANNEL).unwrap();
    assert_eq!(real.release("c2:2", &no_waiter(2)), Value::Int(1), "a message, as of the last one");
    assert!(real.hash().is_empty(), "none of them lives");
    // More than it looks at.
    for dead in 0..40 {
        assert_eq!(real.ask(&Ask::once(0, &format!("c0:{dead}"))), Reply::Granted);
        real.query::<()>(&["DEL", &marker(&format!("c0:{dead}"))]);
    }
    let mut left = 40;
    for _ in 0..60 {
        assert_eq!(real.ask(&Ask::once(1, "c1:2")), Reply::Granted);
        real.release("c1:2", &no_waiter(1));
        let before = std::mem::replace(&mut left, real.hash().len());
        assert!(before - left <= 6, "{before}, {left}: at a cost that grows");
    }
    assert_eq!(left, 0);
}

/// By chance it may look at all of them and not at the mode.
#[test]
fn a_reader_that_leaves_five_dead_ones_leaves_a_lock_or_none() {
    let mut real = Real::new();
    for round in 0..60 {
        for dead in 0..5 {
            assert_eq!(real.ask(&Ask::once(0, &format!("c0:{dead}"))), Reply::Granted, "{round}");
            real.query::<()>(&["DEL", &marker(&format!("c0:{dead}"))]);
        }
        assert_eq!(real.ask(&Ask::once(1, "c1:1")), Reply::Granted, "{round}");
        real.release("c1:1", &no_waiter(1));
        let hash = real.hash();
        assert!(hash.is_empty() || hash.len() > 1, "{hash:?}: that is no lock");
    }
}
