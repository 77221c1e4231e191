//! Whoever waits gets the lock by a message, whichever side gives it back, and soon. The leases are
//! half a minute and more: who missed the message would get the lock at the end of one.

use std::fmt::Write;

use crate::parties::{KINDS, Kind, Micros, PROMPT, Party, now};
use crate::setup::{Setup, Topology};
use crate::sides::{ASKS, Ask, Side};
use crate::support::cluster::shards_channels;
use crate::support::{SOON, channel, release, soon, wait_until};

/// How often in each direction hand-offs are timed. They take their time where the server is far away.
const ROUNDS: [usize; 2] = [100, 30];

/// What the median of them may be on a busy machine.
const BEARABLE: Micros = 100_000;

/// From a holder to who waits for it. Returns how long it took, from before the unlock.
async fn hand_off(from: &mut Party<'_>, to: &mut Party<'_>, ask: Ask) -> Micros {
    from.takes(Side::Plain).await;
    to.waits_by(Side::Plain, ask).await;
    assert!(to.is_waiting(), "it did not wait for who held it");
    let begun = from.gives_back(Side::Plain).await;
    let took = to.gets().await.saturating_sub(begun);
    assert!(took < PROMPT, "it took {took} us by {ask:?}");
    to.gives_back(Side::Plain).await;
    took
}

pub(crate) async fn go_to_the_other_side(setup: &Setup) {
    for kind in KINDS {
        for (i, ask) in ASKS.into_iter().enumerate() {
            let name = format!("from-{kind:?}-{i}");
            let mut from = Party::new(setup, kind, "holder", &name).await;
            let mut to = Party::new(setup, kind.other(), "waiter", &name).await;
            hand_off(&mut from, &mut to, ask).await;
        }
    }
}

/// Java knows nothing of its queue. The first client there hears it, and the next one after that.
pub(crate) async fn from_java_to_a_fair_lock(setup: &Setup) {
    let name = "java-to-fair";
    let mut from = Party::new(setup, Kind::Java, "holder", name).await;
    from.takes(Side::Plain).await;
    let mut waiting = Vec::new();
    for place in 1..=2 {
        let lock = setup.client().await.fair_lock(name);
        waiting.push(tokio::spawn(async move { (lock.lock().await.expect("the lock"), now()) }));
        let key = format!("redlatch_waiting:{{{name}}}");
        let stand = || {
            let modes: Vec<String> = setup.ask_at(name, &["HVALS", &key]);
            modes.iter().filter(|mode| *mode == "grant" || *mode == "notify").count() == place
        };
        wait_until("it is parked", SOON, stand).await;
    }
    let mut begun = from.gives_back(Side::Plain).await;
    for waiter in waiting {
        let (guard, got) = soon("our turn", waiter).await.expect("a task that succeeds");
        let took = got.saturating_sub(begun);
        assert!(took < PROMPT, "{took} us");
        begun = now();
        release(guard).await;
    }
}

pub(crate) async fn from_a_dropped_guard_to_java(setup: &Setup) {
    let mut from = Party::new(setup, Kind::Rust, "", "dropped").await;
    let mut to = Party::new(setup, Kind::Java, "waiter", "dropped").await;
    from.takes(Side::Plain).await;
    to.waits(Side::Plain).await;
    let begun = from.drops(Side::Plain);
    let took = to.gets().await.saturating_sub(begun);
    assert!(took < PROMPT, "{took} us");
    to.gives_back(Side::Plain).await;
}

/// A key is the name itself, and the channel has braces unless the name has one.
pub(crate) async fn of_all_kinds_of_names(setup: &Setup) {
    let mut names = vec!["plain", "a:b", "{x}y", "a{b}c", "schlüssel-鍵-🔑"];
    if setup.topology == Topology::Alone {
        // In a cluster, their channels have slots of their own: Redisson cannot unlock them.
        names.extend(["half{open", "a}b", "{}"]);
    }
    for name in names {
        let mut java = Party::new(setup, Kind::Java, "somebody", name).await;
        let mut rust = Party::new(setup, Kind::Rust, "", name).await;
        hand_off(&mut java, &mut rust, Ask::Lock).await;
        hand_off(&mut rust, &mut java, Ask::Lock).await;
    }
}

/// Nobody hears on a sharded channel what is published on a plain one, nor the other way round: in
/// a cluster that has sharded channels, both sides use those, as from Redis 7.0 on.
pub(crate) async fn are_told_on_the_same_kind_of_channel(setup: &Setup) {
    let sharded = shards_channels(&setup.servers()[0]);
    let (listened, published) =
        if sharded { (["1", "0"], [1, 0]) } else { (["unknown", "1"], [0, 1]) };
    for (holder, waiter) in [(Kind::Java, Kind::Rust), (Kind::Rust, Kind::Java)] {
        let name = format!("sharded-for-{waiter:?}");
        let mut from = Party::new(setup, holder, "holder", &name).await;
        let mut to = Party::new(setup, waiter, "waiter", &name).await;
        from.takes(Side::Plain).await;
        to.waits(Side::Plain).await;
        assert_eq!(["SHARDNUMSUB", "NUMSUB"].map(|kind| listeners(setup, kind, &name)), listened);
        let calls = || ["spublish", "publish"].map(|command| setup.calls(command));
        let [sharded, plain] = calls();
        from.gives_back(Side::Plain).await;
        to.gets().await;
        assert_eq!(calls(), [sharded + published[0], plain + published[1]], "by {holder:?}");
        to.gives_back(Side::Plain).await;
    }
}

/// How many connections to all servers listen on the channel of `name`, if that can be asked.
fn listeners(setup: &Setup, kind: &str, name: &str) -> String {
    let mut sum: u64 = 0;
    for server in setup.servers() {
        match server.try_ask::<(String, u64)>(&["PUBSUB", kind, &channel(name)]) {
            Ok((_, count)) => sum += count,
            Err(_) => return "unknown".to_owned(),
        }
    }
    sum.to_string()
}

/// Between two threads, two handles of two clients, and one of each, in turns.
pub(crate) async fn are_quick_in_every_direction(setup: &Setup) {
    let mut owners = Vec::new();
    for from in KINDS {
        for to in KINDS {
            let name = format!("quick-{from:?}-{to:?}");
            let holder = Party::new(setup, from, "holder", &name).await;
            owners.push((holder, Party::new(setup, to, "waiter", &name).await, Vec::new()));
        }
    }
    let rounds = ROUNDS[usize::from(setup.topology == Topology::Far)];
    for _ in 0..rounds {
        for (from, to, took) in &mut owners {
            took.push(hand_off(from, to, Ask::Lock).await);
        }
    }
    let medians: Vec<Micros> = owners.iter_mut().map(|(.., took)| median(took)).collect();
    let mut report = format!(
        "redisson {}{}: hand-offs, medians of {rounds}:",
        setup.version,
        setup.topology.suffix()
    );
    let directions = ["Java to Java", "Java to Rust", "Rust to Java", "Rust to Rust"];
    for (direction, median) in directions.iter().zip(&medians) {
        let ratio = *median as f64 / medians[0] as f64;
        write!(report, " {direction} {ratio:.2} ({median} us),").expect("memory");
    }
    println!("{}", report.trim_end_matches(','));
    assert!(medians.iter().all(|median| *median < BEARABLE), "{report}");
}

fn median(figures: &mut [Micros]) -> Micros {
    figures.sort_unstable();
    figures[figures.len() / 2]
}
