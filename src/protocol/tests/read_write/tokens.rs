//! The fencing tokens of a read-write lock: a writer draws some, and a reader has the last one.

use super::*;

/// Far ahead of the server's clock: so each script counts on by what it draws.
const AHEAD: u64 = 8_000_000_000_000_000;

fn no_waiter(client: usize) -> Says {
    Says { client, came: None, ticket: 9 }
}

fn fenced(client: usize, owner: &str, tokens: u32) -> Ask {
    Ask { tokens, ..Ask::once(client, owner) }
}

/// What a request says that keeps the lock, and draws so many.
fn update(real: &mut Real, owner: &str, tokens: u32) -> Value {
    let marker = (!owner.ends_with(":write")).then(|| marker(owner));
    let keys = marker.into_iter().chain((tokens > 0).then(|| TOKEN.to_owned()));
    let args = [owner.to_owned(), "1".to_owned(), LEASE.to_string(), String::new()];
    let keys: Vec<_> = keys.collect();
    real.run_as("arriving", tokens, &SCRIPTS.rw_update, &no_waiter(0), &keys, &args)
}

fn updated(token: Value) -> Value {
    Value::Array(vec![Value::Array(vec![Value::Int(-1), token]), Value::Int(-1)])
}

#[test]
fn a_reader_has_the_token_of_the_last_writer_and_none_before_the_first() {
    let mut real = Real::new();
    let reads = fenced(0, "c0:1", 1);
    for before in [None, Some("0")] {
        if let Some(before) = before {
            real.query::<()>(&["SET", TOKEN, before]);
        }
        assert_eq!((real.ask(&reads), real.granted), (Reply::Granted, None));
        real.release("c0:1", &no_waiter(0));
    }
    real.query::<()>(&["SET", TOKEN, &AHEAD.to_string()]);
    assert_eq!((real.ask(&reads), real.granted), (Reply::Granted, Some(AHEAD)));
    real.release("c0:1", &no_waiter(0));
    assert_eq!(real.ask(&fenced(1, "c1:1:write", 1)), Reply::Granted);
    assert_eq!(real.granted, Some(AHEAD + 1));
    assert_eq!(real.ask(&reads), Reply::Refused);
    assert_eq!(real.ask(&fenced(0, "c0:2:write", 5)), Reply::Refused);
    assert_eq!(real.counter(), Some(AHEAD + 1), "a refusal uses up no token");
    // A nested hold has none, and neither has a lock that is not fenced.
    assert_eq!(real.ask(&Ask { count: 2, ..fenced(1, "c1:1:write", 0) }), Reply::Granted);
    assert_eq!((real.granted, real.counter()), (None, Some(AHEAD + 1)));
    real.release("c1:1:write", &no_waiter(1));
    assert_eq!((real.ask(&reads), real.granted), (Reply::Granted, Some(AHEAD + 1)));
}

#[test]
fn a_writer_draws_more_when_it_keeps_the_lock_and_a_reader_none() {
    let mut real = Real::new();
    real.query::<()>(&["SET", TOKEN, &AHEAD.to_string()]);
    assert_eq!(real.ask(&fenced(0, "c0:1:write", 2)), Reply::Granted);
    let last = Value::BulkString((AHEAD + 2 + 64).to_string().into_bytes());
    assert_eq!(update(&mut real, "c0:1:write", 64), updated(last));
    assert_eq!(update(&mut real, "c0:1:write", 0), updated(Value::Int(0)));
    assert_eq!(update(&mut real, "c0:2:write", 64), said(Loss::TakenOver));
    assert_eq!(real.counter(), Some(AHEAD + 66));
    // A counter that is none costs the writer nothing but the tokens.
    real.query::<()>(&["SET", TOKEN, "text"]);
    assert_eq!(update(&mut real, "c0:1:write", 64), updated(Value::Int(0)));
    real.release("c0:1:write", &no_waiter(0));
    assert_eq!(real.ask(&Ask::once(0, "c0:1")), Reply::Granted);
    assert_eq!(update(&mut real, "c0:1", 0), updated(Value::Int(0)));
    assert!(real.query::<bool>(&["EXISTS", &marker("c0:1")]));
}

#[test]
fn what_a_writer_has_drawn_in_vain_is_given_back_with_the_lock_and_only_by_who_has_it() {
    let mut real = Real::new();
    real.query::<()>(&["SET", TOKEN, &AHEAD.to_string()]);
    let (last, used) = (AHEAD + 64, AHEAD + 3);
    assert_eq!(real.ask(&fenced(0, "c0:1:write", 64)), Reply::Granted);
    let release =
        |real: &mut Real, owner: &str| real.release_with(owner, &no_waiter(0), Some((last, used)));
    assert_eq!(release(&mut real, "c0:2:write"), said(Loss::TakenOver));
    assert_eq!(real.counter(), Some(last));
    // A reader that is beside it stays.
    assert_eq!(real.ask(&fenced(0, "c0:3", 1).beside("c0:1:write")), Reply::Granted);
    assert_eq!(release(&mut real, "c0:1:write"), Value::Int(0));
    assert_eq!(real.counter(), Some(used));
    assert!(real.query::<bool>(&["EXISTS", &marker("c0:3")]));
    assert_eq!((real.ask(&fenced(1, "c1:1", 1)), real.granted), (Reply::Granted, Some(used)));
    for (reader, client) in [("c0:3", 0), ("c1:1", 1)] {
        real.release(reader, &no_waiter(client));
    }
    // The next writer goes on from there, and a late copy of that release changes nothing.
    assert_eq!(
        (real.ask(&fenced(1, "c1:2:write", 61)), real.granted),
        (Reply::Granted, Some(last))
    );
    assert_eq!(release(&mut real, "c0:1:write"), said(Loss::TakenOver));
    assert_eq!(real.counter(), Some(last));
    // Nor does one that says of others what it cannot know.
    assert_eq!(
        real.release_with("c1:2:write", &no_waiter(1), Some((last + 7, used))),
        Value::Int(0)
    );
    assert_eq!(real.counter(), Some(last));
}

#[test]
fn a_counter_that_is_none_is_an_error_and_leaves_no_holder() {
    let mut real = Real::new();
    for spoil in [&["SET", TOKEN, "text"][..], &["RPUSH", TOKEN, "an element"]] {
        real.query::<()>(&["DEL", TOKEN]);
        real.query::<()>(spoil);
        for owner in ["c0:1", "c0:1:write"] {
            let ask = fenced(0, owner, 1);
            let mut keys = if ask.writes { vec![] } else { vec![marker(owner)] };
            keys.push(TOKEN.to_owned());
            let mode = if ask.writes { "write" } else { "read" };
            let args = [owner, "1000", "1", mode, "", "", "", ""].map(str::to_owned);
            let all = [LOCK, QUEUE, WAITING].into_iter().chain(keys.iter().map(String::as_str));
            let mut cmd = evalsha(&SCRIPTS.rw_acquire, &all.collect::<Vec<_>>());
            cmd.arg("c0").arg("").arg(0).arg("arriving").arg(TERM).arg(GRACE);
            cmd.arg(CHANNEL).arg("PUBLISH").arg("").arg(1).arg(&args[..]);
            cmd.query::<Value>(&mut real.redis).expect_err(owner);
            assert_eq!(real.query::<Vec<String>>(&["KEYS", "*"]), [TOKEN], "{owner}");
        }
    }
}

/// As with a plain lock.
#[test]
fn an_update_of_a_writer_whose_lease_is_over_at_once_leaves_no_key() {
    let mut real = Real::new();
    for count in [1, 2] {
        assert_eq!(real.ask(&Ask { count, ..Ask::once(0, "c0:1:write") }), Reply::Granted);
    }
    let args = ["c0:1:write".to_owned(), "1".into(), "-1".into(), String::new()];
    real.run_as("arriving", 0, &SCRIPTS.rw_update, &no_waiter(0), &[], &args);
    assert!(!real.query::<bool>(&["EXISTS", LOCK]));
}
