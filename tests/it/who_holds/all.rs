//! All locks of a pattern.

use std::collections::BTreeSet;

use super::*;

#[tokio::test]
async fn locks_of_all_kinds_are_found_and_nothing_else() {
    let server = Server::start();
    let (holder, watcher) = (labelled(&server, "orders").await, connect(&server).await);
    let plain = hold(&holder.lock("a:plain")).await;
    let fenced = holder.fenced_lock("a:fenced").lock().await.unwrap();
    let reads = holder.read_write_lock("a:shared").read().await.unwrap();
    let writes = holder.read_write_lock("a:written").write().await.unwrap();
    let both = holder.multi_lock(["a:one", "b:two"]).lock().await.unwrap();
    let fair = holder.fair_lock("a:fair").lock().await.unwrap();
    let waits = watcher.fair_lock("a:fair");
    let waiter = tokio::spawn(async move { waits.lock().await.unwrap() });
    queued(&server, "redlatch_queue:{a:fair}", 1).await;
    server.hold_by_hand("a:java", "5f6b1bd4-9b1e-4c9a-8a7a-6f1ab4b4d1b1:47", MINUTE);
    server.ask::<u64>(&["HSET", "a:user", "name", "x"]);
    server.ask::<()>(&["SET", "a:text", "x"]);
    let found = all(&watcher, "a:*").await;
    use InspectedKind::{Fair, Fenced, Lock, ReadWrite};
    let kinds: Vec<_> = found.iter().map(|(name, lock)| (&**name, lock.kind)).collect();
    let expected = [
        ("a:fair", Fair),
        ("a:fenced", Fenced),
        ("a:java", Lock),
        ("a:one", Lock),
        ("a:plain", Lock),
        ("a:shared", ReadWrite),
        ("a:written", ReadWrite),
    ];
    assert_eq!(kinds, expected);
    for (name, lock) in &found {
        let is_known = place(&lock.holders[0]).is_some_and(|(label, ..)| label == "orders");
        assert_eq!(is_known, name != "a:java", "{lock:?}");
    }
    assert_eq!(found["a:fair"].waiting[0].id, id(&watcher));
    assert!(found["a:fenced"].token >= Some(fenced.token()));
    assert_eq!(found["a:shared"].holders[0].mode, Some(HoldMode::Read));
    assert_eq!(found["a:written"].holders[0].mode, Some(HoldMode::Write));
    let names: Vec<_> = all(&watcher, "[ab]:[ot]*").await.into_keys().collect();
    assert_eq!(names, ["a:one", "b:two"]);
    assert!(all(&watcher, "nothing:*").await.is_empty());
    release(plain).await;
    fenced.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    writes.unlock().await.unwrap();
    both.unlock().await.unwrap();
    fair.unlock().await.unwrap();
    release(soon("the lock", waiter).await.unwrap()).await;
    server.ask::<()>(&["FLUSHALL"]);
}

#[tokio::test]
async fn the_prefix_of_a_client_is_no_part_of_names_and_no_pattern() {
    let server = Server::start();
    let of = async |prefix: &str| {
        let builder = LockClient::builder().url(server.url()).name_prefix(prefix);
        soon("connecting", builder.connect()).await.expect("a client")
    };
    let odd = "a*[b]?\\:";
    let (mine, theirs) = (of(odd).await, of("aXb?:").await);
    let (guard, other) = (hold(&mine.lock("order")).await, hold(&theirs.lock("order")).await);
    assert!(server.exists(&format!("{odd}order")));
    for pattern in ["*", "o*", "order"] {
        let names: Vec<_> = all(&mine, pattern).await.into_keys().collect();
        assert_eq!(names, ["order"], "{pattern}");
    }
    assert_eq!(seen(&mine, "order").await.holders[0].owner, guard.owner());
    assert_eq!(seen(&theirs, "order").await.holders[0].owner, other.owner());
    release(guard).await;
    release(other).await;
}

/// For how long the server has worked at commands that only read.
fn micros(server: &Server) -> u64 {
    let info: String = server.ask(&["INFO", "commandstats"]);
    let of = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let is_one = ["scan", "hscan", "pttl", "exists", "client|list"].contains(&command);
        let micros = rest.split(',').find_map(|field| field.strip_prefix("usec="))?;
        is_one.then(|| micros.parse::<u64>().expect("a number"))
    };
    info.lines().filter_map(of).sum()
}

#[tokio::test]
async fn many_locks_come_in_pages_each_once() {
    let server = Server::start();
    let client = labelled(&server, "many").await;
    let names: BTreeSet<String> = (0..1_500).map(|number| format!("many:{number}")).collect();
    let locks: Vec<_> = names.iter().map(|name| client.lock(name)).collect();
    let guards = join_all(locks.iter().map(hold)).await;
    let watcher = connect(&server).await;
    // A machine that stops while the server works makes that longer. It does not do so each time.
    let mut shares: Vec<f64> = Vec::new();
    while shares.iter().all(|share| *share > 0.02) {
        assert!(shares.len() < 5, "the server worked for these parts of the time: {shares:?}");
        server.reset_stats();
        let begun = std::time::Instant::now();
        let found = all(&watcher, "many:*").await;
        let took = begun.elapsed();
        assert!(found.keys().eq(&names));
        assert!(found.values().all(|lock| is_here(&lock.holders[0], "many")));
        let stats = server.commandstats();
        assert_eq!(stats.get("hscan"), Some(&1_500), "{stats:?}");
        assert!((5..=40).contains(&stats["scan"]), "{stats:?}");
        // It leaves the server to others.
        shares.push(micros(&server) as f64 / took.as_micros() as f64);
    }
    // One that is dropped half-way asks for nothing more.
    server.reset_stats();
    let mut locks = watcher.locks("many:*");
    soon("a lock", locks.next()).await.unwrap().unwrap();
    drop(locks);
    let asked = server.calls("hscan");
    assert!((1..=100).contains(&asked), "{asked}");
    join_all(guards.into_iter().map(release)).await;
}

#[tokio::test]
async fn an_empty_pattern_and_a_closed_client_are_one_error_and_then_the_end() {
    let server = Server::start();
    let client = connect(&server).await;
    for (pattern, expected) in [("", ErrorKind::InvalidArgument), ("*", ErrorKind::Closed)] {
        if expected == ErrorKind::Closed {
            client.close().await;
        }
        let mut locks = client.locks(pattern);
        let error = soon("an error", locks.next()).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.lock_name()), (expected, None), "{error}");
        assert!(soon("the end", locks.next()).await.is_none());
        assert!(soon("the end", locks.next()).await.is_none());
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error_within_the_command_timeout() {
    let server = Server::start();
    let builder = LockClient::builder().url(server.url()).command_timeout(ms(1_000));
    let client = soon("connecting", builder.connect()).await.expect("a client");
    server.pause();
    let (none, failed) = found(&client, "*").await;
    let inspected = soon("an error", client.inspect("x")).await;
    server.resume();
    assert!(none.is_empty());
    let kinds: Vec<_> = failed.iter().map(Error::kind).collect();
    assert_eq!(kinds, [ErrorKind::Unavailable]);
    assert_eq!(inspected.unwrap_err().kind(), ErrorKind::Unavailable);
    // It works again.
    let guard = hold(&client.lock("x")).await;
    assert_eq!(all(&client, "*").await.len(), 1);
    release(guard).await;
}

#[tokio::test]
async fn all_nodes_of_a_cluster_are_looked_at_and_a_dead_one_is_one_error() {
    // Its nodes do not give up the one that stands still.
    let cluster = Cluster::start_with(0, &["--cluster-node-timeout", "60000"]);
    let builder = || LockClient::builder().cluster(cluster.urls()).command_timeout(ms(1_000));
    let holder = builder().label("sharded").connect().await.expect("a client");
    // It connects with this call.
    let watcher = builder().connect_lazy().expect("a client");
    let names: BTreeSet<String> =
        (0..60).map(|number| cluster.name_at(number % 3, &format!("shard:{number}"))).collect();
    let locks: Vec<_> = names.iter().map(|name| holder.lock(name)).collect();
    let guards = join_all(locks.iter().map(hold)).await;
    let found_all = all(&watcher, "*shard:*").await;
    assert!(found_all.keys().eq(&names), "{:?}", found_all.keys());
    assert!(found_all.values().all(|lock| is_here(&lock.holders[0], "sharded")));
    let name = names.first().expect("a name");
    assert!(is_here(&seen(&watcher, name).await.holders[0], "sharded"));
    let alive = names.iter().filter(|name| cluster.node_of(name) != 1).count();
    cluster.pause_node(1);
    let (others, failed) = found(&watcher, "*shard:*").await;
    let kinds: Vec<_> = failed.iter().map(Error::kind).collect();
    cluster.nodes()[1].resume();
    assert_eq!((others.len(), kinds), (alive, vec![ErrorKind::Unavailable]));
    join_all(guards.into_iter().map(LockGuard::unlock)).await;
}

/// What a look at ten thousand locks costs, in a build with optimization:
/// `cargo test --release --features test-util --test it -- --ignored --nocapture who_holds::all::figures`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "figures for people"]
async fn figures() {
    const LOCKS: usize = 10_000;
    let server = Server::start();
    let (holder, watcher) = (labelled(&server, "many").await, connect(&server).await);
    let locks: Vec<_> = (0..LOCKS).map(|number| holder.lock(format!("many:{number}"))).collect();
    let guards = join_all(locks.iter().map(hold)).await;
    let used = || {
        let info: String = server.ask(&["INFO", "cpu"]);
        let field = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            value.trim().parse::<f64>().expect("a number")
        };
        field("used_cpu_user_main_thread:") + field("used_cpu_sys_main_thread:")
    };
    let idle = (used(), std::time::Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = (used() - idle.0) / idle.1.elapsed().as_secs_f64();
    println!("the server is busy for {:.2} % of the time beside this", 100.0 * idle);
    for round in 0..3 {
        let (before, begun) = (used(), std::time::Instant::now());
        let mut stream = watcher.locks("many:*");
        let (mut many, mut first) = (0, None);
        while let Some(lock) = stream.next().await {
            lock.expect("a lock");
            first.get_or_insert_with(|| begun.elapsed());
            many += 1;
        }
        let (took, cost) = (begun.elapsed(), used() - before);
        let share = 100.0 * (cost / took.as_secs_f64() - idle);
        println!(
            "locks {round}: {many} in {took:.2?}, the first after {:.2?}, {:.1} ms of the server, \
             {share:.2} % of its time",
            first.expect("one"),
            1e3 * (cost - idle * took.as_secs_f64()),
        );
    }
    const CALLS: u32 = 5_000;
    let (before, begun) = (used(), std::time::Instant::now());
    for call in 0..CALLS {
        seen(&watcher, &format!("many:{call}")).await;
    }
    let (took, cost) = (begun.elapsed(), used() - before);
    println!(
        "inspect: {:.0} us each, {:.0} us of the server: {:.2} % of its time once a second",
        1e6 * took.as_secs_f64() / f64::from(CALLS),
        1e6 * cost / f64::from(CALLS),
        100.0 * cost / f64::from(CALLS),
    );
    drop(guards);
    holder.close().await;
}
