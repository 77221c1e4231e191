//! A password is told to the server and to nobody else, however it was given and whatever fails:
//! no error has it in its words, nor what stands behind the error, nor what the types show of
//! themselves, nor what anybody logs at any level.

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
mod support;

use std::error::Error as _;
use std::fmt::{Debug, Write};
use std::sync::{LazyLock, Mutex, MutexGuard};

use redlatch::{Error, ErrorKind, LockClient, LockClientBuilder};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use support::{Proxy, SOON, Server, hold, listen, ms, release, soon, unpoisoned, wait_until};

/// The part of every password here that no encoding changes.
const SECRET: &str = "correct-horse-battery";

/// With what has a meaning in a url, and the same as a part of one.
const ODD: &str = "%@/correct-horse-battery?#";
const ODD_IN_A_URL: &str = "%25%40%2Fcorrect-horse-battery%3F%23";

/// All that was logged by the whole process, and all that was shown.
static TOLD: Mutex<String> = Mutex::new(String::new());

/// Takes what the library and every other crate logs, by `tracing` and by `log`.
static LISTENING: LazyLock<()> = LazyLock::new(|| {
    tracing_subscriber::registry().with(Recorder).init();
    tracing::trace!(target: "another", "said by tracing");
    log::trace!(target: "another", "said by log");
    for said in ["said by tracing", "said by log"] {
        assert!(told().contains(said), "it is not heard what is {said}");
    }
});

fn told() -> MutexGuard<'static, String> {
    unpoisoned(&TOLD)
}

struct Recorder;

struct Tell<'a>(&'a mut String);

impl Visit for Tell<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string");
    }
}

fn tell(metadata: &Metadata<'_>, record: impl FnOnce(&mut Tell<'_>)) {
    let mut line = format!("{} {}:", metadata.target(), metadata.name());
    record(&mut Tell(&mut line));
    writeln!(told(), "{line}").expect("a string");
}

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        tell(attributes.metadata(), |to| attributes.record(to));
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut line = String::new();
        values.record(&mut Tell(&mut line));
        writeln!(told(), "{line}").expect("a string");
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        tell(event.metadata(), |to| event.record(to));
    }
}

fn show(value: &dyn Debug) {
    writeln!(told(), "{value:?}\n{value:#?}").expect("a string");
}

fn show_error(error: &Error) {
    show(error);
    writeln!(told(), "{error} {error:#}").expect("a string");
    let mut behind = error.source();
    while let Some(error) = behind {
        writeln!(told(), "{error} {error:?} {error:#?}").expect("a string");
        behind = error.source();
    }
}

/// Fails with every line that has a secret in it.
#[track_caller]
fn nothing_was_told() {
    let told = told();
    let has = |line: &&str| line.contains(SECRET) || line.contains("horse");
    let lines: Vec<&str> = told.lines().filter(has).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

/// Where a server is, if there is one.
struct Place {
    port: u16,
    socket: String,
    _dir: TempDir,
    server: Option<Server>,
}

impl Place {
    fn nowhere() -> Self {
        Self::with(|_| None)
    }

    fn start(args: &[&str]) -> Self {
        Self::with(|socket| {
            Some(Server::start_with(&[&["--unixsocket", socket][..], args].concat()))
        })
    }

    fn with(start: impl FnOnce(&str) -> Option<Server>) -> Self {
        let dir = support::socket_dir();
        let socket = dir.path().join("redis.sock").to_str().expect("UTF-8").to_owned();
        let server = start(&socket);
        let port = server.as_ref().map_or(1, Server::port);
        Self { port, socket, _dir: dir, server }
    }

    /// Every way to give the secret for a server here.
    fn ways(&self) -> Vec<LockClientBuilder> {
        let here = format!("127.0.0.1:{}", self.port);
        let socket = &self.socket;
        let urls = [
            format!("redis://:{SECRET}@{here}/"),
            format!("redis://default:{SECRET}@{here}/0"),
            format!("valkey://default:{SECRET}@{here}"),
            format!("unix://{socket}?pass={SECRET}"),
            format!("redis+unix://{socket}?user=default&pass={SECRET}&db=0"),
            format!("redis://:{ODD_IN_A_URL}@{here}/"),
            format!("unix://{socket}?pass={ODD_IN_A_URL}"),
        ];
        let client = |url: &String| redis::Client::open(url.as_str()).expect("a client");
        let by_hand: redis::ConnectionInfo = format!("redis://{here}/").parse().expect("a url");
        let settings = by_hand.redis_settings().clone().set_password(SECRET);
        let by_hand = redis::Client::open(by_hand.set_redis_settings(settings)).expect("a client");
        let clients = urls.iter().map(client).chain([by_hand]);
        let by_client = clients.map(|client| LockClient::builder().client(client));
        let by_url = urls.iter().map(|url| LockClient::builder().url(url));
        by_url.chain(by_client).map(|builder| builder.command_timeout(ms(500))).collect()
    }
}

/// Tries all ways at a place and shows all that there is to see; each has to fail like this.
async fn all_fail(place: &Place, kinds: &[ErrorKind], words: &str) {
    LazyLock::force(&LISTENING);
    for builder in place.ways() {
        let error = failure(builder).await;
        assert!(kinds.contains(&error.kind()), "{error:?}");
        assert!(format!("{error:#}").contains(words), "{error:#}");
    }
    nothing_was_told();
}

/// The error of connecting, or of locking where that went well.
async fn failure(builder: LockClientBuilder) -> Error {
    show(&builder);
    let error = match soon("an answer", builder.connect()).await {
        Ok(client) => {
            let (lock, fenced) = (client.lock("secret"), client.fenced_lock("secret"));
            show(&(&client, &lock, &fenced));
            let result = soon("an answer", lock.try_lock_now()).await;
            result.expect_err("it has to fail")
        }
        Err(error) => error,
    };
    show_error(&error);
    error
}

#[tokio::test]
async fn not_when_nobody_is_there() {
    all_fail(&Place::nowhere(), &[ErrorKind::Unavailable], "could not connect").await;
}

#[tokio::test]
async fn not_when_the_password_is_wrong() {
    let place = Place::start(&["--requirepass", "another"]);
    all_fail(&place, &[ErrorKind::Server], "WRONGPASS").await;
}

#[tokio::test]
async fn not_when_the_server_repeats_what_it_does_not_understand() {
    let place = Place::start(&["--rename-command", "HELLO", ""]);
    let server = place.server.as_ref().expect("a server");
    let words = server.try_ask::<()>(&["HELLO", "3", "AUTH", "default", SECRET]);
    assert!(words.expect_err("no such command").to_string().contains(SECRET));
    all_fail(&place, &[ErrorKind::Server], "does not know HELLO").await;
}

#[tokio::test]
async fn not_when_the_server_sends_one_elsewhere() {
    let place = Place::start(&["--cluster-enabled", "yes"]);
    all_fail(&place, &[ErrorKind::Unavailable], "Hash slot not served").await;
}

#[tokio::test]
async fn not_when_something_else_listens_there() {
    let listener = listen();
    let port = listener.local_addr().expect("an address").port();
    // It says everything back, the password too.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut back = stream.try_clone().expect("a second handle");
            std::thread::spawn(move || std::io::copy(&mut stream, &mut back));
        }
    });
    LazyLock::force(&LISTENING);
    let here = format!("127.0.0.1:{port}/");
    for url in [format!("redis://:{SECRET}@{here}"), format!("redis://:{ODD_IN_A_URL}@{here}")] {
        let builder = LockClient::builder().url(url).command_timeout(ms(500));
        show(&builder);
        match soon("an answer", builder.connect()).await {
            Ok(client) => {
                // It took the echo for a welcome.
                let result = soon("an answer", client.lock("echo").try_lock_now()).await;
                show_error(&result.expect_err("an echo is no answer"));
            }
            Err(error) => show_error(&error),
        }
    }
    nothing_was_told();
}

#[tokio::test]
async fn not_when_the_url_is_none() {
    LazyLock::force(&LISTENING);
    for url in [
        format!("redis://user:{SECRET}@127.0.0.1:port/"),
        format!("redis://user:{SECRET}@127.0.0.1:99999/"),
        format!("redis://user:{SECRET}@127.0.0.1/database"),
        format!("redis://user:{SECRET}@127.0.0.1/?protocol=4"),
        format!("redis://user:{SECRET}@0.0.0.0/"),
        format!("redis://user:{SECRET}@/"),
        format!("redis://user:{SECRET}@[::1/"),
        format!("redis://user:%FF{SECRET}@127.0.0.1/"),
        format!("redis://%FF:{SECRET}@127.0.0.1/"),
        format!("rodis://user:{SECRET}@127.0.0.1/"),
        format!("user:{SECRET}@127.0.0.1"),
        format!("unix:?pass={SECRET}"),
        format!("unix:///tmp/redis.sock?pass={SECRET}&db=none"),
        // What nobody has encoded ends the host, or the address.
        format!("redis://user:/{SECRET}@127.0.0.1/"),
        format!("redis://user:1#{SECRET}@127.0.0.1:port/x"),
        format!("redis://user:1/{SECRET}@127.0.0.1/"),
        format!("redis://user:x?{SECRET}@127.0.0.1/"),
        format!("redis://{ODD}@127.0.0.1/"),
        format!("redis://user:{SECRET}@127.0.0.1:1/#insecure\n{SECRET}"),
        format!("rediss://user:{SECRET}@127.0.0.1:1/#{SECRET}"),
    ] {
        let error = failure(LockClient::builder().url(&url).command_timeout(ms(500))).await;
        assert_ne!(error.kind(), ErrorKind::Server, "{url}: {error}");
    }
    nothing_was_told();
}

#[tokio::test]
async fn not_when_the_host_is_not_known() {
    LazyLock::force(&LISTENING);
    for url in [
        format!("redis://user:{SECRET}@no-such-host.invalid/"),
        format!("redis://:{ODD_IN_A_URL}@no-such-host.invalid/"),
        // The password stands where the host belongs.
        format!("redis://{SECRET}.invalid:6379/"),
    ] {
        let error = failure(LockClient::builder().url(url).command_timeout(ms(500))).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    // Of a cluster it has yet to find a node when the call gives up.
    let cluster = LockClient::builder().cluster([format!("redis://{SECRET}.invalid:6379/")]);
    let lazy = cluster.command_timeout(ms(500)).connect_lazy().expect("an address");
    let answer = soon("an answer", lazy.lock("secret").try_lock_now()).await;
    show_error(&answer.expect_err("no node"));
    nothing_was_told();
}

#[tokio::test]
async fn not_when_tls_is_refused() {
    LazyLock::force(&LISTENING);
    let server = Server::start_with(&["--requirepass", SECRET]);
    let (plain, port) = (server.url(), server.port());
    let urls = [plain.replace("redis:", "rediss:"), format!("rediss://{SECRET}.invalid:{port}/")];
    let builders = urls.iter().map(|url| LockClient::builder().url(url));
    #[cfg(feature = "rustls")]
    let builders = builders.chain(urls.iter().map(|url| {
        let trust = redis::TlsCertificates { client_tls: None, root_cert: None };
        let client = redis::Client::build_with_tls(url.as_str(), trust);
        LockClient::builder().client(client.expect("a client"))
    }));
    for builder in builders {
        let error = failure(builder.command_timeout(ms(500))).await;
        let expected = match cfg!(feature = "rustls") {
            true => ErrorKind::Unavailable,
            false => ErrorKind::InvalidArgument,
        };
        assert_eq!(error.kind(), expected, "{error}");
    }
    nothing_was_told();
}

#[tokio::test]
async fn not_when_all_is_well_or_the_connection_is_cut() {
    LazyLock::force(&LISTENING);
    let server = Server::start();
    server.ask::<()>(&["ACL", "SETUSER", "odd", "on", &format!(">{ODD}"), "~*", "&*", "+@all"]);
    let proxy = Proxy::new(&server);
    let url = |port: u16| format!("redis://odd:{ODD_IN_A_URL}@127.0.0.1:{port}/");
    let builder = LockClient::builder().url(url(proxy.port())).watchdog_timeout(ms(3_000));
    show(&builder);
    let client = soon("connecting", builder.connect()).await.expect("connecting");
    let (lock, fenced) = (client.lock("well"), client.fenced_lock("fenced"));
    let fenced_guard = soon("locking", fenced.lock()).await.expect("locking");
    let guard = hold(&lock).await;
    show(&(&client, &lock, &fenced, &guard, &fenced_guard));
    proxy.refuse(true);
    assert!(proxy.cut_all() > 0);
    let before = proxy.attempts();
    wait_until("another try", SOON, || proxy.attempts() > before).await;
    proxy.refuse(false);
    release(guard).await;
    // The user has another password for a while.
    let password = |password: &str| {
        server.ask::<()>(&["ACL", "SETUSER", "odd", "resetpass", &format!(">{password}")]);
    };
    password("another");
    let refused = async {
        loop {
            proxy.cut_all();
            match lock.is_locked().await {
                Err(error) => break error,
                Ok(_) => tokio::time::sleep(ms(10)).await,
            }
        }
    };
    let refused = soon("a refusal", refused).await;
    assert_eq!(refused.kind(), ErrorKind::Server, "{refused}");
    show_error(&refused);
    password(ODD);
    drop(fenced_guard);
    soon("closing", client.close()).await;
    assert!(told().contains("redlatch"), "the library has said nothing at all");
    nothing_was_told();
}

/// Sentinels and nodes: each has a url, and each url may have a password.
fn topologies(url: &str) -> [LockClientBuilder; 3] {
    let urls = || [url.to_owned(), url.replace("127.0.0.1", "localhost")];
    let sentinel = || LockClient::builder().sentinel("master", urls());
    let own = sentinel().sentinel_credentials("watch", SECRET);
    [sentinel(), own, LockClient::builder().cluster(urls())]
}

#[tokio::test]
async fn not_of_a_sentinel_or_a_node_of_a_cluster() {
    LazyLock::force(&LISTENING);
    // No Sentinel, and no cluster: the wrong password comes first.
    let server = Server::start_with(&["--requirepass", "another"]);
    let renamed = Server::start_with(&["--rename-command", "HELLO", ""]);
    for (place, bad) in [
        (format!("127.0.0.1:{}", server.port()), false),
        (format!("127.0.0.1:{}", renamed.port()), false),
        ("127.0.0.1:1".to_owned(), false),
        ("127.0.0.1:port".to_owned(), true),
        ("127.0.0.1/database".to_owned(), true),
    ] {
        for builder in topologies(&format!("redis://user:{SECRET}@{place}")) {
            let error = failure(builder.command_timeout(ms(500))).await;
            assert_eq!(error.kind() == ErrorKind::InvalidArgument, bad, "{error}");
        }
    }
    nothing_was_told();
}
