//! One process: tasks that wait for locks, hold them for a moment, and write down when.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use redlatch::{ErrorKind, LockClient};

use super::history::{Event, NAMES, Record};
use crate::support::{child, ms};

/// More than there are names, so that some always wait.
const TASKS: usize = 3 * NAMES / 2;

/// So that those of a process that was killed are free again soon.
const LEASE: Duration = ms(1_000);

struct Log {
    file: File,
    calls: AtomicU64,
}

impl Log {
    /// One write for each record: a process that is killed has written what happened.
    fn put(&self, event: Event, name: usize, call: u64) {
        Record::now(event, name, call).write(&self.file);
    }
}

pub(super) fn run(role: &str) {
    let (file, url) = role.split_once(' ').expect("a file and a URL");
    let file = File::options().create(true).append(true).open(file).expect("a file");
    let log = Arc::new(Log { file, calls: AtomicU64::new(0) });
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let Some(client) = connected(url).await else { return };
        tokio::spawn(measure_trips(url.to_owned(), log.clone()));
        for _ in 0..TASKS {
            tokio::spawn(take_turns(client.clone(), log.clone()));
        }
        tokio::task::spawn_blocking(child::hear).await.expect("no panic");
        client.close().await;
    });
    runtime.shutdown_background();
}

/// Its connections may be cut while it connects.
async fn connected(url: &str) -> Option<LockClient> {
    for _ in 0..50 {
        if let Ok(client) = LockClient::connect(url).await {
            return Some(client);
        }
    }
    None
}

async fn take_turns(client: LockClient, log: Arc<Log>) {
    let mut rng = Rng::new();
    loop {
        let name = rng.usize(..NAMES);
        let lock = client.fair_lock(format!("order-{name}"));
        let call = log.calls.fetch_add(1, Ordering::Relaxed);
        // Some are dropped while they wait.
        let patience = if rng.u8(..8) == 0 { ms(rng.u64(..60)) } else { Duration::from_secs(60) };
        log.put(Event::Called, name, call);
        let answer = tokio::time::timeout(patience, lock.lock_with_lease(LEASE)).await;
        let guard = match answer {
            Ok(Ok(guard)) => guard,
            other => {
                log.put(Event::Left, name, call);
                if other.is_ok_and(|result| result.is_err_and(|e| e.kind() == ErrorKind::Closed)) {
                    return;
                }
                continue;
            }
        };
        log.put(Event::Granted, name, call);
        match rng.u8(..4) {
            0 => tokio::time::sleep(Duration::from_micros(rng.u64(..3_000))).await,
            _ => tokio::task::yield_now().await,
        }
        if !guard.is_lost() {
            log.put(Event::Held, name, call);
        }
        if rng.bool() {
            let _ = guard.unlock().await;
        }
    }
}

/// What a round trip takes, now and then: with what the machine and the server add to the distance.
async fn measure_trips(url: String, log: Arc<Log>) {
    let client = redis::Client::open(url).expect("a URL");
    loop {
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else { continue };
        loop {
            let begun = Instant::now();
            if redis::cmd("PING").query_async::<()>(&mut connection).await.is_err() {
                break;
            }
            let trip = u64::try_from(begun.elapsed().as_nanos()).expect("a short time");
            log.put(Event::Trip, 0, trip);
            tokio::time::sleep(ms(5)).await;
        }
    }
}
