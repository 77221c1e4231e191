//! The table of all rows, and the check that none is without a test or a reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Id, fault, and the reason if there is no test.
const ROWS: &[(&str, &str, Option<&str>)] = &[
    ("N1", "reset after an acquire was executed, before its answer", None),
    ("N2", "reset before an acquire is sent", None),
    ("N3", "the answer to an acquire never comes", None),
    ("N4", "the answer to an acquire comes after its lease", None),
    ("N6", "the answer to a release is lost", None),
    ("N7", "the answer to a renewal is lost, once", None),
    ("N8", "all answers to renewals are lost", None),
    ("N9", "the subscription is cut while waiters are parked, and the message lost", None),
    ("N10", "an unlock between the first try and the confirmed subscription", None),
    ("N11", "duplicate, forged and garbage messages", None),
    ("N12", "requests arrive, answers do not", None),
    ("N13", "a half-open connection", None),
    ("N14", "connections refused for a while", None),
    ("N15", "a thousand locks held, all connections cut", None),
    ("S1", "scripts flushed all the time", None),
    ("S2", "restarted empty while a lock is held", None),
    ("S3", "restarted with what it held", None),
    ("S4", "memory full while acquiring", None),
    ("S5", "memory full while releasing", None),
    ("S6", "memory full while renewing", None),
    ("S7", "the lock's key evicted", None),
    ("S8", "the key holds something else", None),
    ("S9", "a lock without a TTL, left by somebody", None),
    ("S11", "busy with somebody's script", None),
    ("S12", "read-only: it has become a replica", None),
    ("S13", "loading its data, or its master is down", None),
    ("S15", "too few replicas to write", None),
    ("S17", "no permission to publish", None),
    ("S18", "no permission for the key", None),
    ("S20", "writes paused for longer than the lease", None),
    ("S21", "stopped for longer than the lease", None),
    ("S22", "an operator deletes, renames, swaps, flushes or makes eternal", None),
    ("S23", "the server's clock jumps", None),
    ("S25", "other versions of the server", None),
    ("T1", "planned failover while held", None),
    ("T2", "a failover loses the lock", None),
    ("T3", "a stopped master resumes", None),
    ("T4", "Sentinel is down", None),
    ("T5", "a slot moves while its lock is held", None),
    ("T7", "keys of one lock in two slots", None),
    ("T8", "the owner of the slot is dead", None),
    ("T9", "messages across a cluster", None),
    ("T10", "WAIT times out", None),
    ("C1", "an acquire dropped at each await", None),
    ("C2", "a renewal, a release, a parked wait dropped", None),
    ("C3", "a timeout wins when the grant arrives", None),
    ("C4", "the holder's task aborted", None),
    ("C5", "the runtime ends before its guards", None),
    ("C6", "a guard dropped with no runtime, or while unwinding", None),
    ("C7", "the guard forgotten, the process ended or killed", None),
    ("C9", "the runtime blocked for twice the lease", None),
    ("C10", "the watchdog itself starved", None),
    ("C11", "the process stopped past its lease", None),
    ("C12", "stopped between the check and the effect", None),
    ("C13", "the machine suspended", None),
    ("C14", "the client's wall clock jumps", None),
    ("C15", "a future that is not polled waits on the same lock", None),
    ("I1", "leases that cannot be", None),
    ("I2", "waits that cannot be", None),
    ("I3", "names that are odd", None),
    ("I6", "10,000 waiters on one name", None),
    ("I7", "100,000 locks renewed", None),
    ("I9", "a renewal races with a release", None),
    ("I10", "lost, then locked again", None),
    ("I12", "granted after its lease", None),
    ("W1", "a server that is far away, and leases of six round trips", None),
    ("W2", "callers who give up after two round trips, and a cut", None),
    ("W3", "a stall that is longer than the command timeout", None),
    ("W4", "clients at any distance, with long and short holds", None),
    ("W5", "a listener that takes long to come", None),
    ("W6", "a network that changes, jitters and is narrow, while clients take turns", None),
    ("W7", "a lease in force that gets shorter while others wait", None),
    ("W8", "a runtime ends with a request under way", None),
    ("W9", "a client is closed, or a topology moves on, with a request under way", None),
    ("W10", "workers that are blocked at the moment of a hand-off", None),
    ("W11", "an unlock that is polled once and never again", None),
    ("W12", "scripts flushed, and slow to load, while deadlines of shared calls pass", None),
    ("W13", "options at their bounds and beyond", None),
    ("W14", "a process forks with a client, with guards and with calls under way", None),
    ("W15", "a server that stops while tasks hand a lock around", None),
    ("W16", "a server that takes no more connections once a client has connected", None),
    ("W17", "tenants who run scripts all the time", None),
    ("W18", "a hash that is not a lock, under every call", None),
    ("W19", "the client's thread, its runtime or its connection cannot be made", None),
    ("W20", "a key is found gone while others of the client wait", None),
    ("W21", "a wait on a silent server after a suspension", None),
    ("W22", "one server under two names, with a request late at the old one", None),
    ("W23", "Sentinels name A, B and A again, with a request late at A", None),
    ("W24", "a Sentinel's report that was refuted once becomes true", None),
    ("W25", "a request late at a node to which ASK led", None),
    ("W26", "a new primary has missed releases", None),
    ("W27", "a primary that stands still while the only client is parked", None),
    ("W28", "connections that are cut as soon as they answer", None),
    ("W29", "clients that listen on different channels during an upgrade", None),
    ("W30", "Redisson beside tasks of this crate, far away", None),
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
fn every_row_has_a_test_or_a_reason() {
    let tests = tests();
    let mut missing = Vec::new();
    for (id, fault, reason) in ROWS {
        let prefix = format!("{}_", id.to_lowercase());
        let mut found = tests.iter().filter(|(name, _)| name.starts_with(&prefix)).peekable();
        match (found.peek().is_some(), reason) {
            (false, None) => missing.push(*id),
            (false, Some(reason)) => println!("{id:<4} {fault}: not here: {reason}"),
            (true, _) => println!("{id:<4} {fault}"),
        }
        for (name, file) in found {
            println!("       {file}: {name}");
        }
    }
    assert!(missing.is_empty(), "neither a test nor a reason: {missing:?}");
}

#[test]
fn every_test_that_the_page_of_promises_names_is_there() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/promises.md"));
    let tests = tests();
    let mut named = 0;
    for held in page.split("*Held by*").skip(1) {
        let held = held.split("\n\n").next().expect("a paragraph");
        for name in held.split('`').skip(1).step_by(2).filter(|name| !name.contains('/')) {
            assert!(tests.contains_key(name), "there is no test {name}");
            named += 1;
        }
    }
    assert!(named > 30, "only {named} found: is this test blind?");
}
