//! A reader and a writer of one handle, and what the server forgets.

use super::*;

/// Of a client in which no call waits.
fn nobody(client: usize) -> Says {
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
        // It waits for nobody, whoever came first.
        let waits = Came { at: 1, ticket: 1, writes: true };
        let other = Ask { came: Some(waits), ..Ask::once(1, "c1:1:write") };
        assert_eq!(real.ask(&other), Reply::Refused);
        let second = second.beside(&first.owner);
        assert_eq!((real.ask(&second), real.ask(&second)), (Reply::Granted, Reply::Granted));
        both(&mut real, "write");
        assert_eq!(real.release("c0:2:write", &nobody(0)), Value::Int(0));
        assert_eq!(real.hash().get("mode").map(String::as_str), Some("read"));
        assert_eq!(real.ask(&Ask::once(0, "c0:2:write").beside("c0:1")), Reply::Granted);
        both(&mut real, "write");
        // The other order.
        assert_eq!(real.release("c0:1", &nobody(0)), Value::Int(0));
        assert_eq!(real.hash().get("mode").map(String::as_str), Some("write"));
        assert_eq!(real.release("c0:2:write", &nobody(0)), Value::Int(0));
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
    real.release("c0:2:write", &nobody(0));
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
    real.release("c0:1", &nobody(0));
    assert_eq!(real.ask(&Ask::once(0, "c0:3:write").beside("c0:1")), Reply::Taken);
}

/// The server evicts what is known of the waiting clients, and leaves their queue.
#[test]
fn a_client_of_which_the_server_has_kept_a_part_is_notified_and_never_granted_the_lock() {
    let mut real = Real { counts: true, ..Real::new() };
    let ask = |client: usize, at| {
        let came = Some(Came { at, ticket: 1, writes: true });
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
