//! Locks over TLS: who is trusted, who is refused and how that is told, and that a lock behind it is
//! the same lock. The servers are real ones, with certificates that are made here.
//!
//! A server that was built without TLS cannot be asked for it: then these are ignored.

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
mod support;
#[path = "support/trials.rs"]
mod trials;

use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{env, fs};

use libtest_mimic::Arguments;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redis::{ClientTlsConfig, TlsCertificates};
use redlatch::{Error, ErrorKind, LockClient, Outcome};
use support::{
    Child, SOON, Server, child, connected, hold, ms, release, renewed, soon, wait_until, waiting,
};
use tempfile::TempDir;
use trials::trials;

/// Whoever signs certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
struct Papers {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = named(&uuid::Uuid::new_v4().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn signs(&self, name: &str) -> Papers {
        let key = KeyPair::generate().expect("a key");
        let params = named(name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Papers { certificate, key: key.serialize_pem() }
    }
}

/// Of that name, which tells one from another.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A server with a port for TLS beside the plain one, by which the tests ask it.
struct Guarded {
    server: Server,
    port: u16,
    authority: Authority,
    dir: TempDir,
}

const HOST: &str = "127.0.0.1";

impl Guarded {
    fn start() -> Self {
        Self::start_with(&["--tls-auth-clients", "no"])
    }

    fn start_with(args: &[&str]) -> Self {
        let authority = Authority::new();
        let papers = authority.signs(HOST);
        let dir = TempDir::with_prefix("redlatch-tls-").expect("a temporary directory");
        let port = free_port().to_string();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("writing a file");
            path.to_str().expect("a path in UTF-8").to_owned()
        };
        let (ca, cert) = (file("ca.pem", &authority.pem), file("cert.pem", &papers.certificate));
        let key = file("key.pem", &papers.key);
        let tls = ["--tls-port", &port, "--tls-ca-cert-file", &ca, "--tls-cert-file", &cert];
        let server = Server::start_with(&[&tls[..], &["--tls-key-file", &key], args].concat());
        Self { server, port: port.parse().expect("a port"), authority, dir }
    }

    fn url(&self) -> String {
        format!("rediss://{HOST}:{}/", self.port)
    }

    /// A client of the `redis` crate that trusts this server's authority.
    fn client(&self, papers: Option<&Papers>) -> redis::Client {
        client_at(self.url(), &self.authority, papers)
    }

    async fn connect(&self) -> LockClient {
        try_connect(self.client(None)).await.expect("connecting")
    }

    /// A process that connects as [`connects_and_says_so`] does, and trusts that file.
    fn child(&self, what: &str, file: &str) -> Child {
        let file = self.dir.path().join(file);
        let variables = [("SSL_CERT_FILE", file.to_str().expect("a path in UTF-8"))];
        let role = format!("{what} {}", self.url());
        Child::start_with("connects_and_says_so", &role, &variables)
    }

    /// The connections that came by TLS.
    fn connections(&self) -> Vec<String> {
        let list: String = self.server.ask(&["CLIENT", "LIST"]);
        let here = format!("laddr={HOST}:{} ", self.port);
        list.lines().filter(|line| line.contains(&here)).map(str::to_owned).collect()
    }
}

fn client_at(url: String, trusted: &Authority, papers: Option<&Papers>) -> redis::Client {
    let client_tls = papers.map(|papers| ClientTlsConfig {
        client_cert: papers.certificate.clone().into_bytes(),
        client_key: papers.key.clone().into_bytes(),
    });
    let root_cert = Some(trusted.pem.clone().into_bytes());
    redis::Client::build_with_tls(url, TlsCertificates { client_tls, root_cert }).expect("a client")
}

async fn try_connect(client: redis::Client) -> Result<LockClient, Error> {
    soon("connecting", LockClient::builder().client(client).connect()).await
}

/// Below the plain ports of servers, as is the port that is 10,000 above, of the nodes of a cluster.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 2_000) as u16;
    loop {
        let port = 2_500 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 2_000;
        if std::net::TcpListener::bind((HOST, port)).is_ok() {
            return port;
        }
    }
}

/// An error that says that no connection came about, and why.
#[track_caller]
fn refused(result: Result<LockClient, Error>, why: &str) {
    let error = result.expect_err("it was let in");
    let what = (error.kind(), error.outcome());
    assert_eq!(what, (ErrorKind::Unavailable, Outcome::NotExecuted), "{error}");
    let said = format!("{error:#}");
    assert!(said.contains("could not connect") && said.contains(why), "{said}");
}

async fn a_lock_goes_round_and_its_waiter_is_woken_by_a_message() {
    let guarded = Guarded::start();
    let (client, other) = (guarded.connect().await, guarded.connect().await);
    let (lock, next) = (client.lock("round"), other.lock("round"));
    let guard = hold(&lock).await;
    let nested = hold(&lock).await;
    assert_eq!(guarded.server.holds("round")[guard.owner()], 2);
    assert!(!guarded.connections().is_empty(), "nobody came by TLS");
    let waiting = tokio::spawn(async move { hold(&next).await });
    wait_until("it parks", SOON, || guarded.server.subscribers("round") == 1).await;
    release(nested).await;
    // The lease of 30 s would end too late for `hold`, so it is the message.
    drop(guard);
    release(soon("the message", waiting).await.expect("the waiter")).await;
    soon("closing", client.close()).await;
    assert!(!guarded.server.exists("round"));
}

async fn a_cut_is_ridden_out() {
    let guarded = Guarded::start();
    let builder = LockClient::builder().client(guarded.client(None)).watchdog_timeout(ms(3_000));
    let client = connected(builder).await;
    let other = guarded.connect().await;
    let guard = hold(&client.lock("cut")).await;
    let waiting = waiting(&other, "cut");
    wait_until("it parks", SOON, || guarded.server.subscribers("cut") == 1).await;
    let before = guarded.connections();
    let kill = |kind| guarded.server.ask::<u64>(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    let cut = kill("normal") + kill("pubsub");
    assert!(cut >= 2, "only {cut} connections were cut");
    wait_until("it parks again", SOON, || guarded.server.subscribers("cut") == 1).await;
    renewed(&guard).await;
    let after = guarded.connections();
    assert!(after.iter().all(|new| !before.contains(new)), "{before:?} {after:?}");
    assert!(after.len() >= 2, "{after:?}");
    release(guard).await;
    release(soon("the message", waiting).await.expect("the waiter")).await;
    assert!(!guarded.server.exists("cut"));
}

async fn a_password_and_a_database_go_with_it() {
    let guarded = Guarded::start_with(&["--tls-auth-clients", "no", "--requirepass", "behind-tls"]);
    let url = format!("rediss://:behind-tls@{HOST}:{}/3", guarded.port);
    let client = try_connect(client_at(url, &guarded.authority, None)).await.expect("connecting");
    let guard = hold(&client.lock("third")).await;
    assert!(guarded.connections().iter().any(|line| line.contains(" db=3 ")));
    release(guard).await;
    let error = try_connect(guarded.client(None)).await.expect_err("no password");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Server, Outcome::NotExecuted));
}

async fn a_server_that_nobody_vouches_for_is_refused() {
    let guarded = Guarded::start();
    let stranger = client_at(guarded.url(), &Authority::new(), None);
    refused(try_connect(stranger).await, "invalid peer certificate: UnknownIssuer");
    wait_until("it is gone", SOON, || guarded.connections().is_empty()).await;
    // The same server for whoever knows it.
    release(hold(&guarded.connect().await.lock("known")).await).await;
}

async fn a_certificate_for_another_host_is_refused() {
    let guarded = Guarded::start();
    let url = guarded.url().replace(HOST, "localhost");
    let client = client_at(url, &guarded.authority, None);
    refused(try_connect(client).await, "certificate not valid for name \"localhost\"");
}

async fn a_url_cannot_do_without_the_check() {
    let guarded = Guarded::start();
    let url = format!("{}#insecure", guarded.url());
    let error = soon("an answer", LockClient::connect(url)).await.expect_err("unchecked");
    let what = (error.kind(), error.outcome());
    assert_eq!(what, (ErrorKind::InvalidArgument, Outcome::NotExecuted), "{error}");
    assert!(error.to_string().contains("not checked"), "{error}");
}

async fn plain_text_is_refused_where_tls_is_spoken_and_the_other_way_round() {
    let guarded = Guarded::start();
    let plain = guarded.url().replace("rediss", "redis");
    refused(soon("connecting", LockClient::connect(plain)).await, "");
    let port = guarded.server.port();
    let client = client_at(format!("rediss://{HOST}:{port}/"), &guarded.authority, None);
    let builder = LockClient::builder().client(client).command_timeout(ms(1_000));
    refused(soon("connecting", builder.connect()).await, "");
}

async fn a_server_that_asks_for_papers_lets_in_who_has_them() {
    let guarded = Guarded::start_with(&["--tls-auth-clients", "yes"]);
    refused(try_connect(guarded.client(None)).await, "CertificateRequired");
    // Signed by somebody whom the server does not know.
    let forged = Authority::new().signs("client");
    refused(try_connect(guarded.client(Some(&forged))).await, "received fatal alert");
    let papers = guarded.authority.signs("client");
    let client = try_connect(guarded.client(Some(&papers))).await.expect("connecting");
    let lock = client.lock("papers");
    let guard = hold(&lock).await;
    // Another runtime's connection, and the client's own thread's, bring them too.
    drop(guard);
    wait_until("the release", SOON, || !guarded.server.exists("papers")).await;
    assert!(guarded.connections().len() >= 2, "{:?}", guarded.connections());
}

/// In the child that the next two start: connects by a url, and says what came of it.
async fn connects_and_says_so() {
    let role = child::role().expect("a child");
    let (what, url) = role.split_once(' ').expect("two words");
    if what == "own" {
        let mut own = rustls::crypto::ring::default_provider();
        own.cipher_suites.truncate(1);
        own.install_default().expect("the first provider");
    }
    let builder = match what {
        "cluster" => LockClient::builder().cluster([url]),
        _ => LockClient::builder().url(url),
    };
    match soon("connecting", builder.connect()).await {
        Ok(client) => {
            release(hold(&client.lock("child")).await).await;
            let chosen = rustls::crypto::CryptoProvider::get_default().expect("a provider");
            child::say(format!("connected {}", chosen.cipher_suites.len() > 1));
        }
        Err(error) => child::say(format!("{error:#}")),
    }
}

async fn a_url_goes_by_the_systems_list_or_the_file_of_ssl_cert_file() {
    let guarded = Guarded::start();
    let mut trusting = guarded.child("plain", "ca.pem");
    trusting.hear_that("connected true");
    assert!(trusting.ended().success());
    fs::write(guarded.dir.path().join("other.pem"), Authority::new().pem).expect("a file");
    let mut other = guarded.child("plain", "other.pem");
    let said = other.hear();
    assert!(said.contains("could not connect") && said.contains("UnknownIssuer"), "{said}");
}

async fn the_nodes_of_a_cluster_are_reached_by_tls_too() {
    // Its nodes name each other's ports of TLS.
    let cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
    let guarded = Guarded::start_with(&[&["--tls-auth-clients", "no"][..], &cluster].concat());
    // One by one: Redis 6.2 knows of no ranges.
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
    guarded.server.ask::<()>(&[&["CLUSTER", "ADDSLOTS"], &*slots].concat());
    let state = || guarded.server.ask::<String>(&["CLUSTER", "INFO"]);
    wait_until("a cluster", SOON, || state().contains("cluster_state:ok")).await;
    let mut child = guarded.child("cluster", "ca.pem");
    child.hear_that("connected true");
    assert!(child.ended().success());
    assert!(guarded.server.calls("evalsha") >= 2, "it locked somewhere else");
}

async fn a_provider_that_the_program_has_chosen_is_kept() {
    let guarded = Guarded::start();
    guarded.child("own", "ca.pem").hear_that("connected false");
}

/// Whether the server is built with TLS: if so it asks for a certificate.
fn speaks_tls() -> bool {
    let program = env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    // Without one, no server starts.
    let probe = ["--tls-port", "1", "--port", "0", "--save", ""];
    let out = Command::new(program).args(probe).stdin(Stdio::null()).output();
    let out = out.expect("redis-server has to be installed: run tests/run, which sees to it");
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let knows = said.contains("configure TLS");
    let without = ["Bad directive", "Missing implement"].iter().any(|words| said.contains(words));
    assert!(knows != without, "what does it say? {said}");
    knows
}

fn main() -> ExitCode {
    if child::role().is_some() {
        libtest_mimic::run(&Arguments::from_args(), trials![connects_and_says_so,]).exit();
    }
    let trials = trials![
        a_lock_goes_round_and_its_waiter_is_woken_by_a_message,
        a_cut_is_ridden_out,
        a_password_and_a_database_go_with_it,
        a_server_that_nobody_vouches_for_is_refused,
        a_certificate_for_another_host_is_refused,
        a_url_cannot_do_without_the_check,
        plain_text_is_refused_where_tls_is_spoken_and_the_other_way_round,
        a_server_that_asks_for_papers_lets_in_who_has_them,
        a_url_goes_by_the_systems_list_or_the_file_of_ssl_cert_file,
        the_nodes_of_a_cluster_are_reached_by_tls_too,
        a_provider_that_the_program_has_chosen_is_kept,
    ];
    let missing = !speaks_tls();
    let kind = if missing { "this server is built without TLS" } else { "" };
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(missing).with_kind(kind));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
