//! A read-write lock that both sides use: who shares it, who has it alone, and how that stands in Redis.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::owners::{GRAIN, KINDS, Kind, MINUTE, Micros, PROMPT, now};
use crate::parties::{Party, SIDES, Side, tagged};
use crate::setup::Setup;
use crate::support::{SOON, ms, wait_until};

pub(crate) mod watched;

/// For how long somebody must not get in.
const A_WHILE: Duration = ms(150);

/// Long enough for a waiter to park, on a busy machine.
const LEASE: Micros = 1_000_000;

fn fields(setup: &Setup, name: &str) -> BTreeMap<String, String> {
    setup.ask_at(name, &["HGETALL", name])
}

/// What stands in Redis of a lock: the hash, and the TTL of each marker of a reader.
fn stands(setup: &Setup, name: &str) -> (BTreeMap<String, String>, BTreeMap<String, i64>) {
    let prefix = format!("{}:", tagged(name));
    let mut markers = BTreeMap::new();
    for key in setup.keys() {
        if let Some(marker) = key.strip_prefix(&prefix) {
            markers.insert(marker.to_owned(), setup.pttl(&key));
        } else {
            assert_eq!(key, name, "neither the lock nor a marker");
        }
    }
    (fields(setup, name), markers)
}

/// Fails unless the lock stands so, each marker and the lock having about half a minute.
fn assert_stands(setup: &Setup, name: &str, mode: &str, fields: &[(&str, u32)], marked: &[&str]) {
    let (found, markers) = stands(setup, name);
    let mut expected = BTreeMap::from([("mode".to_owned(), mode.to_owned())]);
    expected.extend(fields.iter().map(|(field, count)| (field.to_string(), count.to_string())));
    assert_eq!(found, expected, "of {name}");
    assert_eq!(markers.keys().collect::<Vec<_>>(), marked, "of {name}");
    for left in markers.into_values().chain([setup.pttl(name)]) {
        assert!((20_000..=30_000).contains(&left), "{left} ms left of {name}");
    }
}

/// Fails if either side gets in, on a thread and a client of their own.
async fn assert_kept_out(setup: &Setup, name: &str, sides: &[Side]) {
    for kind in KINDS {
        let mut other = Party::new(setup, kind, "other", name).await;
        for side in sides {
            assert!(!other.tries(*side).await, "{kind:?} got in to {side:?}");
        }
    }
}

/// One reader of each side beside the other, as Redisson has it.
pub(crate) async fn readers_are_there_together(setup: &Setup) {
    for name in ["both-read", "{both}:read"] {
        let mut java = Party::new(setup, Kind::Java, "reader", name).await;
        let mut rust = Party::new(setup, Kind::Rust, "", name).await;
        java.takes(Side::Read).await;
        rust.takes(Side::Read).await;
        let theirs = java.field(Side::Read).await;
        let ours = rust.field(Side::Read).await;
        let marker = |field: &str, i: u32| format!("{field}:rwlock_timeout:{i}");
        let [first, second, own] = [marker(&theirs, 1), marker(&theirs, 2), marker(&ours, 1)];
        let mut marked = [first.as_str(), &own];
        marked.sort_unstable();
        assert_stands(setup, name, "read", &[(&theirs, 1), (&ours, 1)], &marked);
        for party in [&java, &rust] {
            assert!(party.is_locked(Side::Read).await && !party.is_locked(Side::Write).await);
        }
        assert_kept_out(setup, name, &[Side::Write]).await;

        // Java counts its holds; ours is one, however many guards it has.
        java.takes(Side::Read).await;
        rust.takes(Side::Read).await;
        let mut marked = [first.as_str(), &second, &own];
        marked.sort_unstable();
        assert_stands(setup, name, "read", &[(&theirs, 2), (&ours, 1)], &marked);
        for _ in 0..2 {
            assert_kept_out(setup, name, &[Side::Write]).await;
            java.gives_back(Side::Read).await;
        }
        assert_stands(setup, name, "read", &[(&ours, 1)], &[&own]);
        rust.gives_back(Side::Read).await;
        assert_kept_out(setup, name, &[Side::Write]).await;
        java.takes(Side::Read).await;
        rust.gives_back(Side::Read).await;
        assert_stands(setup, name, "read", &[(&theirs, 1)], &[&first]);
        assert_kept_out(setup, name, &[Side::Write]).await;
        java.gives_back(Side::Read).await;
        assert_eq!(setup.keys(), [""; 0]);
    }
}

/// A writer of either side is alone.
pub(crate) async fn a_writer_is_alone(setup: &Setup) {
    for kind in KINDS {
        let name = format!("{kind:?}-writes");
        let mut writer = Party::new(setup, kind, "writer", &name).await;
        let minute = Some(Duration::from_secs(20));
        writer.takes_for(Side::Write, minute).await;
        let field = writer.field(Side::Write).await;
        assert!(field.ends_with(":write"), "{field}");
        assert_kept_out(setup, &name, &SIDES).await;
        let hash = |count: &str| {
            [("mode", "write"), (&field, count)].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        };
        assert_eq!(stands(setup, &name), (hash("1"), BTreeMap::new()));
        // Redisson adds the leases up.
        writer.takes_for(Side::Write, minute).await;
        assert_eq!(stands(setup, &name), (hash("2"), BTreeMap::new()));
        let longest = if kind == Kind::Java { 40_000 } else { 20_000 };
        let left = setup.pttl(&name);
        assert!((longest - 5_000..=longest).contains(&left), "{left} ms left of {name}");
        for other in KINDS {
            let other = Party::new(setup, other, "other", &name).await;
            assert!(other.is_locked(Side::Write).await && !other.is_locked(Side::Read).await);
        }
        writer.gives_back(Side::Write).await;
        assert_kept_out(setup, &name, &SIDES).await;
        writer.gives_back(Side::Write).await;
        assert_eq!(setup.keys(), [""; 0]);
    }
}

/// Whom a holder keeps out.
const KEEPS_OUT: [(Side, Side); 3] =
    [(Side::Read, Side::Write), (Side::Write, Side::Read), (Side::Write, Side::Write)];

/// A waiter of the other side gets it after the last hold, and not before.
pub(crate) async fn waiters_get_it_from_the_other_side(setup: &Setup) {
    let cases = KINDS.into_iter().flat_map(|kind| KEEPS_OUT.map(|sides| (kind, sides)));
    let played = cases.map(async |(kind, (held, wanted))| {
        let (name, thread) =
            (format!("{held:?}-by-{kind:?}-then-{wanted:?}"), format!("{held:?}-{wanted:?}"));
        let mut holder = Party::new(setup, kind, &thread, &name).await;
        let mut waiter = Party::new(setup, kind.other(), &thread, &name).await;
        for _ in 0..2 {
            holder.takes_for(held, Some(60 * MINUTE)).await;
        }
        waiter.waits(wanted).await;
        holder.gives_back(held).await;
        tokio::time::sleep(A_WHILE).await;
        assert!(waiter.is_waiting(), "{name}: it got in between two unlocks");
        let begun = holder.gives_back(held).await;
        let took = waiter.gets().await.saturating_sub(begun);
        assert!(took < PROMPT, "{name}: {took} us");
        waiter.gives_back(wanted).await;
    });
    futures::future::join_all(played).await;
    assert_eq!(setup.keys(), [""; 0]);
}

/// Explicit leases end for who waits on the other side.
pub(crate) async fn leases_end_for_the_other_side(setup: &Setup) {
    let cases = KINDS.into_iter().flat_map(|kind| KEEPS_OUT.map(|sides| (kind, sides)));
    let played = cases.map(async |(kind, (held, wanted))| {
        let (name, thread) =
            (format!("{held:?}-of-{kind:?}-ends-for-{wanted:?}"), format!("{held:?}-{wanted:?}"));
        let mut holder = Party::new(setup, kind, &thread, &name).await;
        let mut waiter = Party::new(setup, kind.other(), &thread, &name).await;
        let asked = now();
        holder.takes_for(held, Some(Duration::from_micros(LEASE))).await;
        let taken = now();
        waiter.waits(wanted).await;
        let got = waiter.gets().await;
        assert!(got + GRAIN >= asked + LEASE, "{name}: {} us before the end", asked + LEASE - got);
        assert!(got < taken + LEASE + PROMPT, "{name}: {} us after it", got - taken - LEASE);
        holder.gives_back_too_late(held).await;
        assert!(waiter.is_locked(wanted).await, "{name}: it is no longer there");
        waiter.gives_back(wanted).await;
    });
    futures::future::join_all(played).await;
    assert_eq!(setup.keys(), [""; 0]);
}
