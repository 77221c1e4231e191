//! W3 with a crowd: an outage ends although callers keep coming.
//!
//! Each task of the crowd calls again at once, whatever became of its call. So at every moment some
//! call has hardly any time left, and no other call may have to pay for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redlatch::{Error, Lock, LockClient};
use tokio::task::JoinSet;

use super::probe::undisturbed;
use crate::support::{Distance, Network, SOON, Server, machine, ms, soon, wait_until};

const COMMAND_TIMEOUT: Duration = ms(300);

/// Whose lock a task of the crowd uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Locks {
    /// One of its own, of another name each time.
    Own,
    /// That of all, and the handle, too: one request at a time is under way.
    Shared,
}

/// What a task has seen.
#[derive(Default)]
struct Seen {
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// Microseconds that the last success took.
    took: AtomicU64,
}

/// Tasks that lock and unlock until it ends.
struct Crowd {
    tasks: JoinSet<()>,
    seen: Arc<Vec<Seen>>,
    over: Arc<AtomicBool>,
}

async fn call(lock: &Lock) -> Result<(), Error> {
    match lock.try_lock_now().await? {
        Some(guard) => guard.unlock().await,
        None => Ok(()),
    }
}

impl Crowd {
    fn start(client: &LockClient, tasks: usize, locks: Locks) -> Self {
        let shared = Arc::new(client.lock("of all"));
        let seen: Arc<Vec<Seen>> = Arc::new((0..tasks).map(|_| Seen::default()).collect());
        let over = Arc::new(AtomicBool::new(false));
        let mut crowd = Self { tasks: JoinSet::new(), seen: seen.clone(), over: over.clone() };
        for number in 0..tasks {
            let (client, shared) = (client.clone(), shared.clone());
            let (seen, over) = (seen.clone(), over.clone());
            // At each moment another one of them has little time left.
            let begins = COMMAND_TIMEOUT.mul_f64(number as f64 / tasks as f64);
            crowd.tasks.spawn(async move {
                tokio::time::sleep(begins).await;
                let seen = &seen[number];
                for turn in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let begun = Instant::now();
                    let called = match locks {
                        Locks::Own => call(&client.lock(format!("{number} {turn}"))).await,
                        Locks::Shared => call(&shared).await,
                    };
                    if called.is_ok() {
                        let took = begun.elapsed().as_micros().try_into().expect("a short time");
                        seen.took.store(took, Ordering::SeqCst);
                        seen.succeeded.fetch_add(1, Ordering::SeqCst);
                    } else {
                        seen.failed.fetch_add(1, Ordering::SeqCst);
                        // An error may come at once.
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        crowd
    }

    fn all(&self, of: impl Fn(&Seen) -> &AtomicU64) -> Vec<u64> {
        self.seen.iter().map(|seen| of(seen).load(Ordering::SeqCst)).collect()
    }

    fn failures(&self) -> u64 {
        self.all(|seen| &seen.failed).into_iter().sum()
    }

    /// The longest time that a task needed when it succeeded last.
    fn longest(&self) -> Duration {
        Duration::from_micros(self.all(|seen| &seen.took).into_iter().max().unwrap_or_default())
    }

    /// Waits until each task has succeeded from now on. Returns how long that took; `None` if it
    /// takes too long.
    async fn each_succeeds(&self) -> Option<Duration> {
        let (begun, before) = (Instant::now(), self.all(|seen| &seen.succeeded));
        let succeeded = || {
            let now = self.all(|seen| &seen.succeeded);
            now.iter().zip(&before).all(|(now, before)| now > before)
        };
        while !succeeded() {
            if begun.elapsed() > SOON {
                return None;
            }
            tokio::time::sleep(ms(2)).await;
        }
        Some(begun.elapsed())
    }

    async fn end(mut self) {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = soon("the end of a task", self.tasks.join_next()).await {
            ended.expect("no panic");
        }
    }
}

#[derive(Debug)]
struct Recovery {
    /// The longest that a call and its `unlock` took before the stall.
    before: Duration,
    /// From the end of the stall until each task has succeeded; `None` if it never did.
    took: Option<Duration>,
    failures: u64,
}

impl Recovery {
    /// From the end of the stall: a dial takes two calls and their `unlock`, a call that has waited
    /// for it fails after the rest of its time at most, which is no longer than two, and the next
    /// call takes one. For the machine as much again.
    fn is_soon(&self) -> bool {
        self.took.is_some_and(|took| took < 10 * self.before)
    }
}

async fn far_away(server: &Server, round_trip: Duration) -> (Network, LockClient) {
    let network = Network::new(server, Distance::default());
    let options = LockClient::builder().url(network.url(server));
    let connect = options.command_timeout(COMMAND_TIMEOUT).connect();
    let client = soon("connecting", connect).await.expect("connecting");
    network.set(Distance::round_trip(round_trip));
    (network, client)
}

async fn after_a_stall(server: &Server, tasks: usize, round_trip: Duration) -> Recovery {
    let (network, client) = far_away(server, round_trip).await;
    let crowd = Crowd::start(&client, tasks, Locks::Own);
    crowd.each_succeeds().await.expect("a success of each before the stall");
    let (before, failures) = (crowd.longest(), crowd.failures());
    let stall = ms(400);
    network.stall(stall);
    tokio::time::sleep(stall).await;
    let took = crowd.each_succeeds().await;
    let failures = crowd.failures() - failures;
    crowd.end().await;
    // What was unknown is undone: a lock that is left over would stay for its lease.
    wait_until("nothing is left", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
    Recovery { before, took, failures }
}

async fn crowds(tasks: usize, round_trips: &[u64]) {
    let server = Server::start();
    for round_trip in round_trips.iter().copied().map(ms) {
        let scene = async || after_a_stall(&server, tasks, round_trip).await;
        let recovery = undisturbed(&server, round_trip / 2, Recovery::is_soon, scene).await;
        println!("{tasks} tasks, {round_trip:?} away: {recovery:?}");
        assert!(recovery.failures > 0, "the stall took no effect");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_a_stall_is_over_soon_after_its_end_though_a_crowd_keeps_calling() {
    let _quiet = machine::quiet();
    crowds(40, &[120, 140, 240]).await;
    crowds(200, &[120, 140]).await;
}

/// One request after the other, so that each third one has less time left than a round trip takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_calls_of_one_handle_that_run_out_of_time_cost_no_connection() {
    let _quiet = machine::quiet();
    let server = Server::start();
    let round_trip = ms(120);
    let (network, client) = far_away(&server, round_trip).await;
    assert!(network.connections() > 0, "the client does not use this network");
    let scene = async || {
        let before = network.connections();
        let crowd = Crowd::start(&client, 4, Locks::Shared);
        wait_until("calls that run out of time", SOON, || crowd.failures() >= 8).await;
        crowd.end().await;
        network.connections() - before
    };
    undisturbed(&server, round_trip / 2, |more: &u64| *more == 0, scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: half a minute"]
async fn the_whole_table_of_crowds() {
    let _quiet = machine::quiet();
    for tasks in [1, 40, 200] {
        crowds(tasks, &[60, 90, 120, 140, 200, 240, 260]).await;
    }
}
