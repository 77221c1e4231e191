//! The table of all rows, and the check that none is without a test.

use std::fs;
use std::path::Path;

use crate::prelude::*;

/// Id and fault.
const ROWS: &[(&str, &str)] = &[
    ("N1", "reset after an acquire was executed, before its answer"),
    ("N2", "reset before an acquire is sent"),
    ("N3", "the answer to an acquire never comes"),
    ("N4", "the answer to an acquire comes after its lease"),
    ("N6", "the answer to a release is lost"),
    ("N7", "the answer to a renewal is lost, once"),
    ("N8", "all answers to renewals are lost"),
    ("N9", "the subscription is cut while waiters are parked, and the message lost"),
    ("N10", "an unlock between the first try and the confirmed subscription"),
    ("N11", "duplicate, forged and garbage messages"),
    ("N12", "requests arrive, answers do not"),
    ("N13", "a half-open connection"),
    ("N14", "connections refused for a while"),
    ("N15", "a thousand locks held, all connections cut"),
    ("S1", "scripts flushed all the time"),
    ("S2", "restarted empty while a lock is held"),
    ("S3", "restarted with what it held"),
    ("S4", "memory full while acquiring"),
    ("S5", "memory full while releasing"),
    ("S6", "memory full while renewing"),
    ("S7", "the lock's key evicted"),
    ("S8", "the key holds something else"),
    ("S9", "a lock without a TTL, left by somebody"),
    ("S11", "busy with somebody's script"),
    ("S12", "read-only: it has become a replica"),
    ("S13", "loading its data, or its master is down"),
    ("S15", "too few replicas to write"),
    ("S17", "no permission to publish"),
    ("S18", "no permission for the key"),
    ("S20", "writes paused for longer than the lease"),
    ("S21", "stopped for longer than the lease"),
    ("S22", "an operator deletes, renames, swaps, flushes or makes eternal"),
    ("S23", "the server's clock jumps"),
    ("S25", "other versions of the server"),
    ("T1", "planned failover while held"),
    ("T2", "a failover loses the lock"),
    ("T3", "a stopped master resumes"),
    ("T4", "Sentinel is down"),
    ("T5", "a slot moves while its lock is held"),
    ("T7", "keys of one lock in two slots"),
    ("T8", "the owner of the slot is dead"),
    ("T9", "messages across a cluster"),
    ("T10", "WAIT times out"),
    ("C1", "an acquire dropped at each await"),
    ("C2", "a renewal, a release, a parked wait dropped"),
    ("C3", "a timeout wins when the grant arrives"),
    ("C4", "the holder's task aborted"),
    ("C5", "the runtime ends before its guards"),
    ("C6", "a guard dropped with no runtime, or while unwinding"),
    ("C7", "the guard forgotten, the process ended or killed"),
    ("C9", "the runtime blocked for twice the lease"),
    ("C10", "the watchdog itself starved"),
    ("C11", "the process stopped past its lease"),
    ("C12", "stopped between the check and the effect"),
    ("C13", "the machine suspended"),
    ("C14", "the client's wall clock jumps"),
    ("C15", "a future that is not polled waits on the same lock"),
    ("I1", "leases that cannot be"),
    ("I2", "waits that cannot be"),
    ("I3", "names that are odd"),
    ("I6", "10,000 waiters on one name"),
    ("I7", "100,000 locks renewed"),
    ("I9", "a renewal races with a release"),
    ("I10", "lost, then locked again"),
    ("I12", "granted after its lease"),
    ("W1", "a server that is far away, and leases of six round trips"),
    ("W2", "callers who give up after two round trips, and a cut"),
    ("W3", "a stall that is longer than the command timeout"),
    ("W4", "clients at any distance, with long and short holds"),
    ("W5", "a listener that takes long to come"),
    ("W6", "a network that changes, jitters and is narrow, while clients take turns"),
    ("W7", "a lease in force that gets shorter while others wait"),
    ("W8", "a runtime ends with a request under way"),
    ("W9", "a client is closed, or a topology moves on, with a request under way"),
    ("W10", "workers that are blocked at the moment of a hand-off"),
    ("W11", "an unlock that is polled once and never again"),
    ("W12", "scripts flushed, and slow to load, while deadlines of shared calls pass"),
    ("W13", "options at their bounds and beyond"),
    ("W14", "a process forks with a client, with guards and with calls under way"),
    ("W15", "a server that stops while tasks hand a lock around"),
    ("W16", "a server that takes no more connections once a client has connected"),
    ("W17", "tenants who run scripts all the time"),
    ("W18", "a hash that is not a lock, under every call"),
    ("W19", "the client's thread, its runtime or its connection cannot be made"),
    ("W20", "a key is found gone while others of the client wait"),
    ("W21", "a wait on a silent server after a suspension"),
    ("W22", "one server under two names, with a request late at the old one"),
    ("W23", "Sentinels name A, B and A again, with a request late at A"),
    ("W24", "a Sentinel's report that was refuted once becomes true"),
    ("W25", "a request late at a node to which ASK led"),
    ("W26", "a new primary has missed releases"),
    ("W27", "a primary that stands still while the only client is parked"),
    ("W28", "connections that are cut as soon as they answer"),
    ("W29", "clients that listen on different channels during an upgrade"),
    ("W30", "Redisson beside tasks of this crate, far away"),
    ("X2", "a waiter whose client cannot listen, or lost an answer"),
    ("X3", "a hand-off of a fair lock that is gone"),
    ("X5", "hundreds of dead clients in the queue"),
    ("X6", "something else where the queue belongs"),
];

/// Every test of the project: its name, and the file that it is in.
fn tests() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut tests, mut folders) = (BTreeMap::new(), vec![root.join("tests"), root.join("src")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                let file = path.strip_prefix(root).unwrap().display().to_string();
                let functions = text.lines().filter_map(|line| {
                    let line = line.trim_start();
                    let line = line.strip_prefix("pub(super) ").unwrap_or(line);
                    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
                    line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))
                });
                let names = functions.filter_map(|rest| rest.split(['(', '<']).next());
                tests.extend(names.map(|name| (name.to_owned(), file.clone())));
            }
        }
    }
    tests
}

#[test]
fn every_row_has_a_test() {
    let tests = tests();
    for (id, fault) in ROWS {
        println!("{id:<4} {fault}");
        let prefix = format!("{}_", id.to_lowercase());
        let mut found = tests.iter().filter(|(name, _)| name.starts_with(&prefix)).peekable();
        assert!(found.peek().is_some(), "{id} has no test");
        for (name, file) in found {
            println!("       {file}: {name}");
        }
    }
}

#[test]
fn every_test_that_a_page_of_the_guide_names_is_there() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let page = |name| fs::read_to_string(guide.join(name)).expect("UTF-8");
    let tests = tests();
    let (promises, questions) = (page("promises.md"), page("faq.md"));
    let held = promises.split("<summary>Held by</summary>").skip(1);
    let held = held.flat_map(|held| {
        let list = held.split("</details>").next().expect("a list");
        list.split('`').skip(1).step_by(2).filter(|name| !name.contains('/'))
    });
    // Nothing else on that page has so long a name.
    let is_test =
        |name: &&str| name.matches('_').count() > 4 && !name.contains(char::is_whitespace);
    let answered = questions.split('`').skip(1).step_by(2).filter(is_test);
    let named: [Vec<_>; 2] = [held.collect(), answered.collect()];
    for name in named.iter().flatten() {
        assert!(tests.contains_key(*name), "there is no test {name}");
    }
    assert!(named[0].len() > 30 && named[1].len() >= 8, "only {named:?}: is this test blind?");
}
