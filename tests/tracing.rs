//! What a program that collects `tracing` gets to see: a span for each acquisition, an event for
//! whatever is worth one at a level that fits, and silence on the hot path. That it is never a
//! password is in `secrets.rs`.
//!
//! A client has a thread of its own, so one subscriber records the whole process, and the tests
//! take turns.

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
mod support;

#[path = "tracing/outages.rs"]
mod outages;
#[path = "tracing/refusals.rs"]
mod refusals;
#[path = "tracing/spans.rs"]
mod spans;
#[path = "tracing/surprises.rs"]
mod surprises;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use redlatch::{ErrorKind, LockClient};
use support::{
    MINUTE, Proxy, SOON, Server, client_with, connect, connected, hold, ms, release, soon,
    unpoisoned, wait_until, waiting, within,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

type Fields = BTreeMap<String, String>;

/// A span that was closed, or an event.
#[derive(Debug, Clone)]
struct Entry {
    span: bool,
    level: Level,
    name: String,
    fields: Fields,
}

impl Entry {
    fn new(metadata: &Metadata<'_>, fields: Fields) -> Self {
        Self {
            span: metadata.is_span(),
            level: *metadata.level(),
            name: metadata.name().to_owned(),
            fields,
        }
    }

    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    fn says(&self, words: &str) -> bool {
        !self.span && self.field("message").contains(words)
    }

    /// Whether it is about a call of that handle.
    fn is_of(&self, lock: &redlatch::Lock) -> bool {
        self.field("name") == lock.name() && self.field("owner") == lock.owner()
    }

    /// Whether it is about a hold that Redis counts for that owner.
    fn is_by(&self, owner: &str) -> bool {
        self.field("owner") == owner
    }
}

static RECORD: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
static INSTALLED: LazyLock<()> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::registry().with(Recorder);
    tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
});

fn record() -> MutexGuard<'static, Vec<Entry>> {
    unpoisoned(&RECORD)
}

fn entries(wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    record().iter().filter(|entry| wanted(entry)).cloned().collect()
}

/// The acquisitions of a name that have ended.
fn acquisitions(name: &str) -> Vec<Entry> {
    entries(|entry| entry.span && entry.name == "acquire" && entry.field("name") == name)
}

async fn told(what: &str, wanted: impl Fn(&Entry) -> bool) -> Entry {
    wait_until(what, SOON, || record().iter().any(&wanted)).await;
    entries(wanted).remove(0)
}

struct Recorder;

struct Collect<'a>(&'a mut Fields);

impl Visit for Collect<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Collect(&mut fields));
        context.span(id).expect("a new span").extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("a living span");
        let mut extensions = span.extensions_mut();
        values.record(&mut Collect(extensions.get_mut().expect("its fields")));
    }

    fn on_follows_from(&self, id: &Id, earlier: &Id, context: Context<'_, S>) {
        let span = context.span(id).expect("a living span");
        let earlier = context.span(earlier).expect("a living span").name();
        let mut extensions = span.extensions_mut();
        let fields: &mut Fields = extensions.get_mut().expect("its fields");
        fields.insert("follows".to_owned(), earlier.to_owned());
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Collect(&mut fields));
        add(Entry::new(event.metadata(), fields));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("a closing span");
        let fields = span.extensions_mut().remove().expect("its fields");
        add(Entry::new(span.metadata(), fields));
    }
}

/// Ends the task that logs without end: it may never give the others a chance to see it.
fn add(entry: Entry) {
    let mut record = record();
    record.push(entry);
    let many = record.len() > 100_000;
    drop(record);
    assert!(!many || std::thread::panicking(), "it logs without end");
}

/// Runs a test with the record to itself, until its clients have gone.
async fn alone(args: &[&str], test: impl AsyncFnOnce(&Server)) {
    let _turn = TURN.lock().await;
    LazyLock::force(&INSTALLED);
    let server = Server::start_with(args);
    record().clear();
    test(&server).await;
    let clients = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count();
    wait_until("the clients are gone", SOON, || clients() == 1).await;
}

#[tokio::test]
async fn each_acquisition_has_a_span_that_tells_name_owner_wait_and_result() {
    alone(&[], async |server| {
        let client = connect(server).await;
        let (lock, other) = (client.lock("span"), client.lock("span"));
        let outer = hold(&lock).await;
        assert_eq!(acquisitions("span").len(), 1);
        release(hold(&lock).await).await;
        assert!(other.try_lock_now().await.unwrap().is_none());
        assert!(other.try_lock(ms(60), ms(1000)).await.unwrap().is_none());
        let waiting = tokio::spawn(async move { (hold(&other).await, other) });
        // A subscription may be that of the call before.
        wait_until("it waits", SOON, || client.stats().waiting == 1).await;
        tokio::time::sleep(ms(40)).await;
        release(outer).await;
        let (guard, other) = soon("the waiter has the lock", waiting).await.unwrap();
        release(guard).await;

        let spans = acquisitions("span");
        let granted: Vec<&str> = spans.iter().map(|span| span.field("granted")).collect();
        assert_eq!(granted, ["true", "true", "false", "false", "true"]);
        assert!(spans[..2].iter().all(|span| span.is_of(&lock)), "{spans:?}");
        assert!(spans[2..].iter().all(|span| span.is_of(&other)), "{spans:?}");
        assert!(spans.iter().all(|span| span.level >= Level::DEBUG), "{spans:?}");
        let waited = |at: usize| spans[at].field("waited_ms").parse::<f64>().expect("a number");
        for (at, at_least) in [(0, 0.0), (1, 0.0), (2, 0.0), (3, 59.0), (4, 40.0)] {
            assert!((at_least..10_000.0).contains(&waited(at)), "{:?}", spans[at]);
        }
    })
    .await;
}

#[tokio::test]
async fn an_acquisition_that_was_dropped_has_a_span_without_a_result() {
    alone(&[], async |server| {
        let client = connect(server).await;
        let guard = hold(&client.lock("given up")).await;
        let lock = client.lock("given up");
        assert!(tokio::time::timeout(ms(30), lock.lock()).await.is_err());
        let spans = acquisitions("given up");
        assert_eq!(spans.len(), 2);
        assert!(spans[1].is_of(&lock));
        assert_eq!((spans[1].field("granted"), spans[1].field("waited_ms")), ("", ""));
        release(guard).await;
    })
    .await;
}

#[tokio::test]
async fn nothing_is_told_at_info_or_above_while_all_is_well() {
    alone(&[], async |server| {
        let (client, other) = (connect(server).await, client_with(server.url(), ms(2_400)).await);
        let lock = client.lock("hot");
        for _ in 0..100 {
            release(hold(&lock).await).await;
        }
        let guard = hold(&lock).await;
        let waiting = waiting(&other, "hot");
        wait_until("it parks", SOON, || server.subscribers("hot") == 1).await;
        drop(guard);
        let guard = soon("the waiter has the lock", waiting).await.unwrap();
        // A renewal or two are no news either.
        tokio::time::sleep(ms(1_800)).await;
        release(guard).await;
        drop((lock, client, other));
        let loud = entries(|entry| entry.level <= Level::INFO);
        assert!(loud.is_empty(), "{loud:?}");
        assert_eq!(acquisitions("hot").len(), 102, "it was recorded at all");
    })
    .await;
}

#[tokio::test]
async fn a_lost_lock_is_one_warning_that_names_lock_and_owner() {
    alone(&[], async |server| {
        let client = client_with(server.url(), ms(3_000)).await;
        let lock = client.lock("deleted");
        let guard = hold(&lock).await;
        let owner = guard.owner().to_owned();
        server.ask::<()>(&["DEL", "deleted"]);
        soon("the loss is noticed", guard.lost()).await;
        let unlocked = soon("unlocking", guard.unlock()).await;
        assert_eq!(unlocked.unwrap_err().kind(), ErrorKind::Lost);
        told("the loss", |entry| entry.is_by(&owner) && entry.says("lost")).await;
        // Longer than it takes to look again.
        tokio::time::sleep(ms(1_200)).await;
        let warnings = entries(|entry| entry.level <= Level::INFO);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(warnings[0].level, Level::WARN);
        assert!(warnings[0].is_by(&owner), "{warnings:?}");
        assert_eq!(warnings[0].field("name"), "deleted");
        assert_eq!(warnings[0].field("loss"), "KeyGone");
        assert!(warnings[0].says("its key is gone"), "{warnings:?}");
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_is_held_for_too_long_is_one_warning() {
    alone(&[], async |server| {
        let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(900));
        let client = connected(builder.max_hold(ms(1_000))).await;
        let lock = client.lock("too long");
        let guard = hold(&lock).await;
        soon("the loss", guard.lost()).await;
        let warned = entries(|entry| entry.is_by(guard.owner()) && entry.level == Level::WARN);
        assert!(warned.len() == 1 && warned[0].says("max_hold"), "{warned:?}");

        // A crowd of them is one more, which says that the rest is not told.
        let many: Vec<_> = (0..10).map(|number| client.lock(format!("many {number}"))).collect();
        let mut guards = Vec::new();
        for lock in &many {
            guards.push(hold(lock).await);
        }
        for guard in guards {
            soon("the loss", guard.lost()).await;
        }
        let warned = entries(|entry| entry.says("max_hold") && entry.level == Level::WARN);
        assert!(warned.len() == 2 && warned[1].says("debug"), "{warned:?}");
    })
    .await;
}

#[tokio::test]
async fn a_renewal_that_fails_begins_an_outage_and_the_loss_that_follows_is_a_warning() {
    alone(&[], async |server| {
        let builder = LockClient::builder().url(server.url()).watchdog_timeout(ms(2_400));
        let client = connected(builder.command_timeout(ms(500))).await;
        let lock = client.lock("frozen");
        let guard = hold(&lock).await;
        let owner = guard.owner().to_owned();
        server.pause();
        let failed = told("the outage", |entry| entry.says("Redis is unavailable")).await;
        assert_eq!(failed.level, Level::WARN, "{failed:?}");
        assert!(failed.field("error").contains("a batch of renewals"), "{failed:?}");
        soon("the deadline", guard.lost()).await;
        let lost = told("the loss", |entry| entry.is_by(&owner) && entry.says("lost a lock")).await;
        assert_eq!(lost.level, Level::WARN, "{lost:?}");
        assert_eq!(lost.field("loss"), "LeaseEnded", "{lost:?}");
        assert!(lost.says("its lease has ended"), "{lost:?}");
        drop(guard);
        server.resume();
        told("the release", |entry| entry.is_by(&owner) && entry.says("released")).await;
        assert!(entries(|entry| entry.level == Level::ERROR).is_empty());
    })
    .await;
}

#[tokio::test]
async fn s7_a_server_that_may_evict_locks_is_one_warning_at_connect() {
    alone(&["--maxmemory-policy", "volatile-ttl"], async |server| {
        let warnings = || entries(|entry| entry.field("policy") == "volatile-ttl").len();
        let client = connect(server).await;
        assert_eq!(warnings(), 1);
        let lock = client.lock("evictable");
        release(hold(&lock).await).await;
        // A new connection is no new warning.
        assert!(server.ask::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]) >= 1);
        release(hold(&lock).await).await;
        assert_eq!(warnings(), 1);
        // Who may not ask goes without.
        server.ask::<()>(&["ACL", "SETUSER", "blind", "on", ">p", "~*", "&*", "+@all", "-info"]);
        let url = format!("redis://blind:p@127.0.0.1:{}/", server.port());
        let blind = connected(LockClient::builder().url(url)).await;
        release(hold(&blind.lock("evictable")).await).await;
        assert_eq!(warnings(), 1);
        // A lazy client asks when it can.
        let lazy = LockClient::builder().url(server.url()).connect_lazy().unwrap();
        release(hold(&lazy.lock("evictable")).await).await;
        wait_until("another warning", SOON, || warnings() == 2).await;
    })
    .await;
}
