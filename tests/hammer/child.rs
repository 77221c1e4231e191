//! A process under test: its clients, its tasks, and what its parent tells it.
//!
//! The parent says `stop`: every call comes home, guards are kept, and the child says `kept`. It
//! says `end`: the guards are dropped, the clients are closed, and the child exits. If the parent
//! is gone, the child goes at once.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use redlatch::LockClient;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::watch;

use crate::handle::{Dropped, Handle};
use crate::names::Names;
use crate::record::{Event, How, MS, Outcome, Record, Recorder, now};
use crate::resource::Resource;
use crate::worker::Worker;

/// The hidden arguments with which the hammer starts itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Assignment {
    #[arg(long)]
    pub(crate) log: PathBuf,
    /// Of the servers: straight, through the proxy, and of the protected resource.
    #[arg(long, num_args = 3)]
    pub(crate) urls: Vec<String>,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) names: u16,
    #[arg(long)]
    pub(crate) tasks: u16,
}

/// The watchdog timeouts of the two clients of a process.
pub(crate) const WATCHDOGS: [Duration; 2] =
    [Duration::from_millis(600), Duration::from_millis(1200)];

/// Shorter than the longest stall, so that calls fail.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

const OUTAGE_LIMIT: Duration = Duration::from_secs(3);

/// A pause of a thread that is written down: less is what every busy machine has.
const GAP: u64 = 10 * MS;

/// Everything that the tasks of a process share.
pub(crate) struct Shop {
    pub(crate) log: Arc<Recorder>,
    pub(crate) names: Names,
    pub(crate) resource: Resource,
    /// Handles that several tasks use: by client, then by name.
    pub(crate) shared: Vec<Vec<Arc<Handle>>>,
    pub(crate) stop: watch::Receiver<bool>,
    /// To the thread that drops guards outside of any runtime.
    pub(crate) dropper: mpsc::Sender<Dropped>,
    clients: Vec<LockClient>,
    calls: AtomicU32,
    handles: AtomicU32,
}

impl Shop {
    pub(crate) fn next_call(&self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// A new owner.
    pub(crate) fn handle(&self, client: usize, key: u16, fenced: bool) -> Handle {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        let flags = u8::try_from(client << 4).expect("a few clients");
        let base = Record { key, handle, flags, ..Record::default() };
        let name = self.names.name(key);
        Handle::new(&self.clients[client], &name, fenced, WATCHDOGS[client], base)
    }
}

pub(crate) fn main(assignment: &Assignment) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(serve(assignment));
}

async fn serve(assignment: &Assignment) {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let log = Arc::new(Recorder::create(&assignment.log).expect("a new file for the history"));
    let heard = log.clone();
    std::thread::spawn(move || watch_the_clock(&heard));
    tokio::spawn(watch_the_runtime(log.clone()));

    let (stop, stopped) = watch::channel(false);
    let shop = tokio::select! {
        shop = open(assignment, log, stopped) => Arc::new(shop),
        () = gone(&mut orders) => return,
    };
    let workers: Vec<_> = (0..assignment.tasks)
        .map(|task| tokio::spawn(Worker::new(shop.clone(), task, assignment.seed).run()))
        .collect();
    println!("ready");

    if order(&mut orders).await != "stop" {
        std::process::exit(1);
    }
    stop.send_replace(true);
    let mut kept = Vec::new();
    for worker in workers {
        kept.extend(worker.await.expect("a task of the hammer failed"));
    }
    for hold in &mut kept {
        hold.is_believed(&shop.log);
        shop.log.put(Record { t: now(), event: Event::Kept, ..hold.base() });
    }
    println!("kept");

    if order(&mut orders).await != "end" {
        std::process::exit(1);
    }
    for hold in kept {
        hold.drop_guard(&shop.log, How::Drop, drop);
    }
    for (number, client) in shop.clients.iter().enumerate() {
        let flags = u8::try_from(number << 4).expect("a few clients");
        let close = Record { event: Event::Close, flags, ..Record::default() };
        shop.log.put(Record { t: now(), ..close });
        client.close().await;
        shop.log.put(Record { t: now(), aux: 1, outcome: Outcome::Done, ..close });
    }
}

async fn open(assignment: &Assignment, log: Arc<Recorder>, stop: watch::Receiver<bool>) -> Shop {
    let mut clients = Vec::new();
    for (url, watchdog) in assignment.urls.iter().zip(WATCHDOGS) {
        clients.push(connect(url, watchdog).await);
    }
    let resource = Resource::open(&assignment.urls[2]).await;
    let (dropper, dropped) = mpsc::channel();
    std::thread::spawn(move || dropped.into_iter().for_each(drop));
    let mut shop = Shop {
        log,
        names: Names::new(assignment.names),
        resource,
        shared: Vec::new(),
        stop,
        dropper,
        clients,
        calls: AtomicU32::new(1),
        handles: AtomicU32::new(1),
    };
    for client in 0..shop.clients.len() {
        shop.introduce(client);
        let of = |key| Arc::new(shop.handle(client, key, shop.names.is_fenced(key)));
        let shared = shop.names.all().map(of).collect();
        shop.shared.push(shared);
    }
    shop
}

impl Shop {
    /// Writes down under which name Redis knows a client.
    fn introduce(&self, client: usize) {
        let owner = self.clients[client].lock("nobody").owner().to_owned();
        let uuid = owner.split(':').next().unwrap_or_default().replace('-', "");
        let uuid = u128::from_str_radix(&uuid, 16).expect("an owner is <uuid>:<number>");
        let flags = u8::try_from(client << 4).expect("a few clients");
        let [token, aux] = [(uuid >> 64) as u64, uuid as u64];
        self.log.put(Record { flags, token, aux, ..Record::new(Event::Client) });
    }
}

/// The nemesis is at work already: whoever starts in the middle of it tries until it is served.
async fn connect(url: &str, watchdog: Duration) -> LockClient {
    loop {
        let client = LockClient::builder()
            .url(url)
            .watchdog_timeout(watchdog)
            .command_timeout(COMMAND_TIMEOUT)
            .outage_limit(OUTAGE_LIMIT);
        match client.connect().await {
            Ok(client) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn order(orders: &mut Lines<BufReader<Stdin>>) -> String {
    orders.next_line().await.ok().flatten().unwrap_or_default()
}

async fn gone(orders: &mut Lines<BufReader<Stdin>>) {
    while !order(orders).await.is_empty() {}
}

/// Writes down when this process was not run for a while.
fn watch_the_clock(log: &Recorder) {
    let mut last = now();
    loop {
        std::thread::sleep(Duration::from_millis(1));
        last = beat(log, last);
    }
}

/// The same for its runtime, whose tasks can be late while its threads are not.
async fn watch_the_runtime(log: Arc<Recorder>) {
    let mut last = now();
    loop {
        tokio::time::sleep(Duration::from_millis(2)).await;
        last = beat(&log, last);
    }
}

fn beat(log: &Recorder, last: u64) -> u64 {
    let t = now();
    if t - last > GAP {
        log.put(Record { t, event: Event::Gap, aux: last, ..Record::default() });
    }
    t
}
