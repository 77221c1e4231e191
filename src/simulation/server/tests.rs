//! What the differential with real servers does not see: several servers, time that has to pass, and
//! what a world does to a server.

use std::time::Duration;

use super::*;

const START: Duration = Duration::from_secs(1_764_000_000);

/// A server with one client, and the time there.
struct Scene {
    server: Server,
    now: Duration,
    client: ClientId,
    replicated: Vec<Update>,
}

impl Scene {
    fn new(settings: Settings) -> Self {
        let mut server = Server::new(settings);
        server.start(START);
        let client = server.accept(START, "10.0.0.1:1000");
        Self { server, now: START, client, replicated: Vec::new() }
    }

    /// Sends requests, one a line. What is between quotes is one word.
    fn tell(&mut self, client: ClientId, lines: &str) {
        for line in lines.lines() {
            let parts = line.split('"').enumerate().flat_map(|(at, part)| match at % 2 {
                0 => part.split_whitespace().collect(),
                _ => vec![part],
            });
            self.server.receive(self.now, client, &packed(&parts.collect::<Vec<_>>()));
        }
    }

    /// What a client hears, as text in which `|` stands for the end of a line. The end is `END`.
    fn heard(&mut self, listener: ClientId) -> String {
        let mut heard = String::new();
        for effect in self.server.take_effects() {
            match effect {
                Effect::Send { client, bytes } if client == listener => {
                    heard += &String::from_utf8_lossy(&bytes).replace("\r\n", "|");
                }
                Effect::Close { client } if client == listener => heard += "END",
                Effect::Replicate(update) => self.replicated.push(update),
                _ => {}
            }
        }
        heard
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(self.client, line);
        self.heard(self.client)
    }

    fn passes(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        while let Some(at) = self.server.next_timer().filter(|at| *at <= self.now) {
            self.server.tick(at.max(START));
        }
    }
}

fn packed(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
    bytes.into_bytes()
}

fn scene() -> Scene {
    Scene::new(Settings::default())
}

#[test]
fn the_same_calls_have_the_same_effects() {
    let run = |seed| {
        let mut scene = Scene::new(Settings { seed, ..Settings::default() });
        let mut all = scene.server.run_id().to_owned();
        all += &scene.ask("SADD s a b c d e f g h");
        all += &scene.ask("SPOP s 3");
        all += &scene.ask("EVAL \"return math.random(1000)\" 0");
        all
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn keys_end_without_anybody_who_looks() {
    let mut scene = scene();
    scene.ask("SET k v PX 250");
    scene.ask("SET eternal v");
    assert_eq!(scene.server.keys(scene.now, 0).len(), 2);
    scene.passes(250);
    assert_eq!(scene.ask("PTTL k"), ":0|");
    assert_eq!(scene.ask("DBSIZE"), ":2|");
    scene.passes(101);
    assert_eq!(scene.ask("DBSIZE"), ":1|");
    assert_eq!(scene.server.next_timer(), None);
}

#[test]
fn a_clock_that_is_set_back_makes_leases_longer_and_stops_nothing() {
    let mut scene = scene();
    scene.ask("SET k v PX 250");
    scene.passes(100);
    scene.now -= Duration::from_secs(60);
    assert_eq!(scene.ask("PTTL k"), ":60150|");
    scene.passes(60_251);
    assert_eq!(scene.ask("EXISTS k"), ":0|");
}

#[test]
fn paused_clients_go_on_when_the_pause_ends() {
    let mut scene = scene();
    assert_eq!(scene.ask("CLIENT PAUSE 500 WRITE"), "+OK|");
    let other = scene.server.accept(scene.now, "10.0.0.2:1000");
    scene.tell(other, "GET k\nINCR k\nINCR k");
    assert_eq!(scene.heard(other), "$-1|");
    scene.passes(499);
    assert_eq!(scene.heard(other), "");
    scene.passes(1);
    assert_eq!(scene.heard(other), ":1|:2|");
}

#[test]
fn what_is_written_reaches_a_replica_and_wait_counts_who_has_it() {
    let (mut primary, mut replica) = (scene(), scene());
    primary.ask("SET before 1");
    replica.server.follow(Some(("primary", 6379)));
    replica.server.load(replica.now, primary.server.snapshot());
    replica.server.link(true);
    primary.server.attach(ReplicaId(1), "replica", 6379);
    assert_eq!(primary.ask("WAIT 1 0"), ":1|");
    replica.ask("SUBSCRIBE c");
    let script = "redis.call('SET', 'k', 'v', 'PX', 250) redis.call('DEL', 'before') \
        redis.call('PUBLISH', 'c', 'm') return 1";
    assert_eq!(primary.ask(&format!("EVAL \"{script}\" 0")), ":1|");
    // A script is one update.
    assert_eq!(primary.replicated.len(), 1);
    assert_eq!(primary.ask("WAIT 1 100"), "");
    primary.passes(100);
    assert_eq!(primary.heard(primary.client), ":0|");
    assert_eq!(primary.ask("WAIT 1 100"), "");
    for update in primary.replicated.drain(..) {
        let offset = update.offset();
        replica.server.apply(replica.now, update);
        primary.server.acknowledge(primary.now, ReplicaId(1), offset);
    }
    assert_eq!(primary.heard(primary.client), ":1|");
    assert_eq!(replica.heard(replica.client), "*3|$7|message|$1|c|$1|m|");
    let reader = replica.server.accept(replica.now, "10.0.0.3:1000");
    replica.tell(reader, "MGET k before\r\nSET k 2");
    let refused = "-READONLY You can't write against a read only replica.|";
    assert_eq!(replica.heard(reader), format!("*2|$1|v|$-1|{refused}"));
    // It does not remove what has ended, but hides it.
    replica.now += Duration::from_millis(251);
    replica.tell(reader, "GET k\r\nDBSIZE");
    assert_eq!(replica.heard(reader), "$-1|:1|");
    replica.server.follow(None);
    replica.tell(reader, "GET k\r\nDBSIZE\r\nINCR n");
    assert_eq!(replica.heard(reader), "$-1|:0|:1|");
}

#[test]
fn an_expiry_is_written_for_the_replicas() {
    let mut scene = scene();
    scene.server.attach(ReplicaId(1), "replica", 6379);
    scene.ask("SET k v PX 50");
    scene.passes(200);
    scene.heard(scene.client);
    let last = scene.replicated.last().expect("an update");
    assert_eq!(last.entries, [(0, b"k".to_vec(), None)]);
    scene.server.detach(ReplicaId(1));
}

#[test]
fn a_server_that_starts_again_is_another_one_without_anything() {
    let mut scene = scene();
    scene.ask("SET k v");
    scene.ask("SCRIPT LOAD \"return 1\"");
    let (id, run_id) = (scene.client, scene.server.run_id().to_owned());
    scene.server.start(scene.now);
    assert_ne!(scene.server.run_id(), run_id);
    assert_eq!(scene.ask("PING"), "", "the old connection");
    scene.client = scene.server.accept(scene.now, "10.0.0.1:1001");
    assert_ne!(scene.client, id);
    // Ids are counted from one again.
    assert_eq!(scene.ask("CLIENT ID\r\nDBSIZE"), ":1|:0|");
    assert_eq!(
        scene.ask("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0"),
        "-NOSCRIPT No matching script. Please use EVAL.|"
    );
}

#[test]
fn states_refuse_what_real_servers_refuse() {
    let mut scene = scene();
    for (state, line, code) in [
        (State::Loading, "GET k", "-LOADING"),
        (State::Busy, "GET k", "-BUSY"),
        (State::FullMemory, "SET k v", "-OOM"),
        (State::Unsaved, "SET k v", "-MISCONF"),
    ] {
        scene.server.set(state, true);
        assert!(scene.ask(line).starts_with(code), "{state:?}");
        scene.server.set(state, false);
        assert!(!scene.ask(line).starts_with('-'), "{state:?}");
    }
    scene.ask("CONFIG SET min-replicas-to-write 1");
    assert!(scene.ask("SET k v").starts_with("-NOREPLICAS"));
    scene.server.follow(Some(("primary", 1)));
    scene.ask("CONFIG SET replica-serve-stale-data no");
    assert!(scene.ask("GET k").starts_with("-MASTERDOWN"));
}

/// A node with the lower half of the slots, of a cluster of two.
fn view() -> ClusterView {
    let node = |id: &str, port, slots| ClusterNode {
        id: id.repeat(40),
        host: "10.0.0.9".into(),
        port,
        epoch: 1,
        slots: vec![slots],
        ..ClusterNode::default()
    };
    let nodes = vec![node("a", 7000, (0, 8191)), node("b", 7001, (8192, 16_383))];
    ClusterView { me: "a".repeat(40), nodes, ..ClusterView::default() }
}

#[test]
fn a_node_of_a_cluster_sends_elsewhere_what_is_elsewhere() {
    let mut scene = Scene::new(Settings { cluster: true, ..Settings::default() });
    assert_eq!(scene.ask("GET foo"), "-CLUSTERDOWN The cluster is down|");
    scene.server.see(view());
    // The slots of foo and bar are 12182 and 5061.
    assert_eq!(scene.ask("GET foo"), "-MOVED 12182 10.0.0.9:7001|");
    assert_eq!(scene.ask("SET bar 1"), "+OK|");
    assert_eq!(
        scene.ask("MGET foo bar"),
        "-CROSSSLOT Keys in request don't hash to the same slot|"
    );
    let mut moving = view();
    moving.migrating.insert(5061, "b".repeat(40));
    moving.importing.insert(12_182, "b".repeat(40));
    scene.server.see(moving);
    assert_eq!(scene.ask("GET bar"), "$1|1|");
    assert_eq!(scene.ask("GET {bar}2"), "-ASK 5061 10.0.0.9:7001|");
    assert!(scene.ask("MGET bar {bar}2").starts_with("-TRYAGAIN"));
    assert_eq!(scene.ask("GET foo"), "-MOVED 12182 10.0.0.9:7001|");
    assert_eq!(scene.ask("ASKING\r\nSET foo 1"), "+OK|+OK|");
    assert_eq!(scene.ask("GET foo"), "-MOVED 12182 10.0.0.9:7001|");
    let script = "EVAL \"return redis.call('GET', ARGV[1])\" 1 bar";
    assert!(scene.ask(&format!("{script} foo")).contains("access a non local key"));
}

#[test]
fn subscribers_of_a_slot_that_moves_away_are_dropped() {
    let mut scene = Scene::new(Settings { cluster: true, ..Settings::default() });
    scene.server.see(view());
    scene.ask("HELLO 3");
    assert_eq!(scene.ask("SSUBSCRIBE {bar}c"), ">3|$10|ssubscribe|$6|{bar}c|:1|");
    assert_eq!(scene.server.subscribers(b"{bar}c"), 1);
    let mut moved = view();
    moved.nodes[0].slots = vec![(0, 5060)];
    moved.nodes[1].slots = vec![(5061, 16_383)];
    scene.server.see(moved);
    assert_eq!(scene.heard(scene.client), ">3|$12|sunsubscribe|$6|{bar}c|:0|");
    assert_eq!(scene.ask("SPUBLISH {bar}c m"), "-MOVED 5061 10.0.0.9:7001|");
}

#[test]
fn a_user_may_do_what_the_rules_say() {
    let mut scene = Scene::new(Settings { password: Some("pw".into()), ..Settings::default() });
    assert_eq!(scene.ask("GET k"), "-NOAUTH Authentication required.|");
    assert_eq!(scene.ask("AUTH pw"), "+OK|");
    let rules = "on >x resetchannels ~lock:* &c:* +get +set +evalsha +client|id +publish";
    assert_eq!(scene.ask(&format!("ACL SETUSER app {rules}")), "+OK|");
    assert_eq!(scene.ask("AUTH app x\r\nSET lock:1 v\r\nCLIENT ID"), "+OK|+OK|:1|");
    for line in ["GET other", "DEL lock:1", "PUBLISH d m", "CLIENT INFO"] {
        assert!(scene.ask(line).starts_with("-NOPERM"), "{line}");
    }
    assert_eq!(scene.ask("PUBLISH c:1 m"), ":0|");
}

/// What the scripts of a lock call, when no call waits for the lock.
const ACQUIRE: &str = "
if redis.call('HLEN', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end";
const RELEASE: &str = "
if redis.call('HLEN', KEYS[1]) == 1 and redis.call('HGET', KEYS[1], ARGV[1]) then
  redis.call('DEL', KEYS[1])
  return redis.call(ARGV[3], ARGV[2], '0')
end";

/// How fast it is, on the machine that it runs on. `cargo test --release` says it with
/// `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn scripts_run_fast() {
    let mut scene = scene();
    let load = |scene: &mut Scene, body: &str| {
        scene.server.receive(scene.now, scene.client, &packed(&["SCRIPT", "LOAD", body]));
        scene.heard(scene.client).trim_matches('|').rsplit('|').next().unwrap().to_owned()
    };
    let acquire = load(&mut scene, ACQUIRE);
    let release = load(&mut scene, RELEASE);
    const OWNER: &str = "8d9e1c1e-7b0c-4a46-9a5e-0f4f3c6f5d10:1";
    let requests: Vec<[Vec<u8>; 2]> = (0..1000)
        .map(|at| {
            let name = format!("lock:{at}");
            let channel = format!("redisson_lock__channel:{{{name}}}");
            let acquire = packed(&["EVALSHA", &acquire, "1", &name, OWNER, "30000", "1"]);
            let release = ["EVALSHA", &release, "1", &name, OWNER, &channel, "PUBLISH"];
            [acquire, packed(&release)]
        })
        .collect();
    let start = std::time::Instant::now();
    let mut calls = 0;
    while start.elapsed() < Duration::from_secs(3) {
        for request in requests.iter().flatten() {
            scene.server.receive(scene.now, scene.client, request);
            calls += 1;
        }
        scene.server.take_effects();
    }
    println!("{:.0} scripts a second", f64::from(calls) / start.elapsed().as_secs_f64());
}

#[test]
fn what_the_page_for_users_calls_unknown_is_unknown() {
    let page = include_str!("../../test_util.rs");
    let (_, rest) = page.split_once("refuses as an unknown command").expect("a sentence");
    let (said, _) = rest.split_once("Its scripts have").expect("a sentence");
    let words = said.split('`').skip(1).step_by(2).filter(|word| *word != "execute");
    let names: Vec<String> = words.map(str::to_lowercase).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(!NAMES.iter().any(|command| command.name == name), "{name}");
    }
}

#[test]
fn a_pause_that_nobody_felt_is_over_and_takes_no_part_in_the_next_one() {
    let mut scene = scene();
    assert_eq!(scene.ask("CLIENT PAUSE 10 ALL"), "+OK|");
    scene.passes(100);
    let other = scene.server.accept(scene.now, "10.0.0.2:1000");
    assert_eq!(scene.ask("CLIENT PAUSE 500 WRITE"), "+OK|");
    scene.tell(other, "GET k");
    assert_eq!(scene.heard(other), "$-1|");
}

/// Under the mutex of a whole network.
#[test]
fn one_of_many_members_takes_no_longer_than_all_of_them() {
    let mut scene = scene();
    for from in (0..200_000).step_by(1_000) {
        let members: Vec<_> = (from..from + 1_000).map(|member| member.to_string()).collect();
        scene.ask(&format!("SADD s {}", members.join(" ")));
    }
    let begun = std::time::Instant::now();
    let all = scene.ask("SMEMBERS s").len();
    let of_all = begun.elapsed();
    let begun = std::time::Instant::now();
    let one = scene.ask("SPOP s").len();
    assert!(one < 20 && all > 1_000_000, "{one} of {all}");
    assert!(begun.elapsed() < 20 * of_all, "{:?}, and {of_all:?} for all", begun.elapsed());
}
