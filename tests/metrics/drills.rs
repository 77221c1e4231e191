//! Three incidents, seen from a real Prometheus alone: it scrapes real processes, and evaluates the alerts of
//! `guide::operations` as they are, but with shorter times.
//!
//! Each incident fires its own alerts and no other's.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redlatch::LockClient;
use tokio::time::sleep;

use crate::exporter::export;
use crate::support::{Child, Server, block_until, child, free_port, ms};

const PAGE: &str = include_str!("../../src/guide/operations.md");
const ALERTS: &str = include_str!("../../src/guide/operations/alerts.yml");
const DASHBOARD: &str = include_str!("../../src/guide/operations/dashboard.json");

/// The watchdog timeout of the services: three tenths of that for which the alerts are.
const LEASE: Duration = ms(9_000);

/// With so many in each of three services that have it for 5 ms, a call waits for more than the two seconds of an alert.
const MEMBERS: usize = 200;

/// Longer than any alert takes.
const LONG: Duration = ms(60_000);

/// What a process does that a Prometheus scrapes, at a port that it says: `<url> <name> <what>`.
#[test]
fn a_service() {
    let Some(role) = child::role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [url, name, what] = words[..] else { panic!("{role}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Another program of the suite may have taken it meanwhile.
        let port = loop {
            let port = free_port();
            if export(port).is_ok() {
                break port;
            }
        };
        let builder =
            LockClient::builder().url(url).watchdog_timeout(LEASE).command_timeout(ms(2_000));
        let client = builder.connect().await.unwrap();
        child::say(port);
        loop {
            match what {
                "works" => works(&client, name).await,
                "works-on" => works_on(&client, name).await,
                "crowd" => crowd(&client, name).await,
                _ => waits(&client, name).await,
            }
        }
    });
}

/// Holds the lock until it is lost, and then wants it again.
async fn works(client: &LockClient, name: &str) {
    if let Ok(guard) = client.lock(name).lock().await {
        let _ = guard.run_until_lost(std::future::pending::<()>()).await;
    }
}

/// The same, and does not look whether it is lost.
async fn works_on(client: &LockClient, name: &str) {
    if let Ok(_guard) = client.lock(name).lock().await {
        std::future::pending::<()>().await;
    }
}

/// Wants the lock for a short time again and again.
async fn waits(client: &LockClient, name: &str) {
    if let Ok(guard) = client.lock(name).lock().await {
        sleep(ms(200)).await;
        let _ = guard.unlock().await;
    }
    sleep(ms(200)).await;
}

/// Wants the lock in many tasks, and never has it for long.
async fn crowd(client: &LockClient, name: &str) {
    let member = async || {
        loop {
            let guard = client.lock(name).lock().await.expect("the lock");
            sleep(ms(5)).await;
            guard.unlock().await.expect("a release");
        }
    };
    let _: Vec<()> = futures::future::join_all((0..MEMBERS).map(|_| member())).await;
}

/// A server, services and their Prometheus.
struct Scene {
    server: Server,
    services: Vec<Child>,
    prometheus: std::process::Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Scene {
    /// `None` where Prometheus is not installed, and need not be.
    fn start(what: &[&str]) -> Option<Self> {
        if Command::new("prometheus").arg("--version").output().is_err() {
            assert_ne!(std::env::var("REDLATCH_INSIST").as_deref(), Ok("1"), "install Prometheus");
            eprintln!("Prometheus is not installed: this drill is left out");
            return None;
        }
        let server = Server::start();
        let service = |what: &&str| {
            let role = format!("{} order {what}", server.url());
            let mut child = Child::start("drills::a_service", &role);
            (child.hear(), child)
        };
        let (ports, services): (Vec<String>, Vec<Child>) = what.iter().map(service).unzip();
        let directory = tempfile::tempdir().expect("a directory");
        let targets: Vec<String> = ports.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [alerts.yml]\n\
             scrape_configs: [{{job_name: services, static_configs: [{{targets: [{}]}}]}}]\n",
            targets.join(", ")
        );
        std::fs::write(directory.path().join("prometheus.yml"), config).expect("a file");
        std::fs::write(directory.path().join("alerts.yml"), with_shorter_times()).expect("a file");
        let (prometheus, port) = start_prometheus(directory.path());
        let mut scene = Self { server, services, prometheus, port, directory };
        block_until("a scrape of each service", LONG, || {
            // It ends if another program of the suite has taken its port meanwhile.
            if scene.prometheus.try_wait().expect("a child").is_some() {
                (scene.prometheus, scene.port) = start_prometheus(scene.directory.path());
            }
            scene
                .query("count(redlatch_connections{state=\"up\"} == 1)")
                .contains(&format!("\"{}\"]", what.len()))
        });
        Some(scene)
    }

    /// What Prometheus answers; empty while it starts.
    fn query(&self, query: &str) -> String {
        let escape = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        };
        let query: String = query.bytes().map(escape).collect();
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return String::new();
        };
        // What listens there instead of a Prometheus that has ended may not answer.
        stream.set_read_timeout(Some(ms(5_000))).expect("a time");
        let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n");
        let mut answer = String::new();
        let read =
            stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        read.map(|_| answer).unwrap_or_default()
    }

    /// Returns when it shows in the metrics that a call has waited for longer than a healthy one does.
    fn has_waited(&self) {
        block_until("a wait that is long enough", LONG, || {
            self.query("max(redlatch_oldest_wait_seconds) > 2").contains("\"value\"")
        });
    }

    /// The alerts that fire now.
    fn firing(&self) -> BTreeSet<String> {
        let answer = self.query("ALERTS{alertstate=\"firing\"}");
        let names = answer.split("\"alertname\":\"").skip(1);
        names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    }

    /// All alerts that fire until all of these have fired together or one after the other, and for a lease after that.
    fn fire(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|one| (*one).to_owned()).collect();
        let mut fired = BTreeSet::new();
        block_until("the alerts", LONG, || {
            fired.extend(self.firing());
            expected.is_subset(&fired)
        });
        let until = Instant::now() + LEASE;
        while Instant::now() < until {
            fired.extend(self.firing());
            std::thread::sleep(ms(200));
        }
        assert_eq!(fired, expected);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.prometheus.kill();
        let _ = self.prometheus.wait();
    }
}

/// One that has its configuration in that directory, and its port.
fn start_prometheus(directory: &Path) -> (std::process::Child, u16) {
    let port = free_port();
    let prometheus = Command::new("prometheus")
        .current_dir(directory)
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    (prometheus.expect("prometheus"), port)
}

/// What holds for minutes holds for seconds, and the lease is three tenths.
fn with_shorter_times() -> String {
    let mut alerts = ALERTS.to_owned();
    for (long, short) in [
        ("[5m]", "[10s]"),
        ("[1m]", "[5s]"),
        ("[30s]", "[3s]"),
        ("for: 30s", "for: 3s"),
        ("for: 10s", "for: 2s"),
        ("for: 5s", "for: 1s"),
        ("> 10 ", "> 2 "),
        ("10|10[.]0", "3|3[.]0"),
    ] {
        assert!(alerts.contains(long), "{long}");
        alerts = alerts.replace(long, short);
    }
    alerts
}

#[test]
fn a_holder_that_is_killed_is_told_from_the_others() {
    let Some(mut scene) = Scene::start(&["works", "waits", "waits"]) else { return };
    assert_eq!(scene.firing(), BTreeSet::new());
    // All of its lease is left, in which the alert has to see that the others wait for too long.
    scene.has_waited();
    let renewed = LEASE.as_millis() as i64 * 9 / 10;
    block_until("a renewal", LONG, || scene.server.pttl("order") > renewed);
    assert_eq!(scene.firing(), BTreeSet::new());
    scene.services[0].kill();
    scene.fire(&["RedlatchHolderGone"]);
}

/// No process has the lock when it is looked at, most of the time: each of them has it for moments.
#[test]
fn a_crowd_that_has_its_turns_fires_nothing() {
    let Some(scene) = Scene::start(&["crowd", "crowd", "crowd"]) else { return };
    scene.has_waited();
    let (until, mut fired) = (Instant::now() + 2 * LEASE, BTreeSet::new());
    while Instant::now() < until {
        fired.extend(scene.firing());
        std::thread::sleep(ms(200));
    }
    assert_eq!(fired, BTreeSet::new());
    let had = "min(increase(redlatch_acquire_duration_seconds_count{outcome=\"granted\"}[5s]))";
    assert!(scene.query(had).contains("\"value\""), "{}", scene.query(had));
}

#[test]
fn a_redis_that_is_paused_is_told_from_the_others() {
    let Some(scene) = Scene::start(&["works", "waits", "waits"]) else { return };
    assert_eq!(scene.firing(), BTreeSet::new());
    scene.server.pause();
    let (resumes, mut fired) = (Instant::now() + ms(20_000), BTreeSet::new());
    while Instant::now() < resumes {
        fired.extend(scene.firing());
        std::thread::sleep(ms(200));
    }
    scene.server.resume();
    let expected = ["RedlatchLockLost", "RedlatchRedisSilent"].map(str::to_owned);
    assert_eq!(fired, expected.into());
    block_until("all is well again", LONG, || scene.firing().is_empty());
}

#[test]
fn a_worker_that_goes_on_after_its_loss_is_told_from_the_others() {
    let Some(scene) = Scene::start(&["works-on", "waits"]) else { return };
    assert_eq!(scene.firing(), BTreeSet::new());
    scene.server.free_by_hand("order");
    scene.fire(&["RedlatchLockLost", "RedlatchWorksWithoutLock"]);
}

#[test]
fn each_query_of_the_page_and_of_the_dashboard_has_an_answer() {
    let Some(scene) = Scene::start(&["waits", "waits"]) else { return };
    block_until("the end of a hold", LONG, || {
        scene.query("redlatch_hold_duration_seconds_count").contains("released")
    });
    let page = PAGE
        .split("```promql\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().trim().to_owned());
    let panels = DASHBOARD.split("\"expr\": \"").skip(1).map(|rest| {
        // To the quote that ends it.
        let end = rest
            .char_indices()
            .find(|(at, one)| *one == '"' && !rest[..*at].ends_with('\\'))
            .unwrap()
            .0;
        rest[..end].replace("\\\"", "\"").replace("$__rate_interval", "10s")
    });
    let all: Vec<String> = page.chain(panels).collect();
    assert!(all.len() > 15, "{all:?}");
    let exported = scene.query("count by (__name__) ({__name__=~\"redlatch_.*\"})");
    for query in all {
        let answer = scene.query(&query);
        assert!(answer.contains("\"status\":\"success\""), "{query}: {answer}");
        for name in query.split(|one: char| !one.is_ascii_alphanumeric() && one != '_') {
            let occurs_in_trouble = [
                "redlatch_losses_total",
                "redlatch_reconnects_total",
                "redlatch_usage_warnings_total",
                "redlatch_renewal_margin_seconds_bucket",
            ];
            if name.starts_with("redlatch_") && !occurs_in_trouble.contains(&name) {
                assert!(
                    exported.contains(&format!("\"{name}\"")),
                    "{name} is not exported: {exported}"
                );
            }
        }
    }
}

/// The code of the page is the code of these services.
#[test]
fn the_page_shows_the_exporter_that_the_services_have() {
    let code = include_str!("../../examples/support/exporter.rs").replace("pub(crate) fn", "fn");
    assert!(PAGE.contains(&code));
    assert!(PAGE.contains("install"), "and in which order");
}
