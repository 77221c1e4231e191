//! A process under test: its tasks, its runtimes, and what its parent tells it.
//!
//! The parent says `stop`: every call comes home, guards are kept, and the child says `kept`. It
//! says `end`: the guards are dropped, the clients are closed, and the child exits. If the parent
//! is gone, the child goes at once.

use std::path::PathBuf;

use redlatch::LockClient;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::platform::Real;
use crate::prelude::*;
use crate::processes::PATIENCE;
use crate::resource::Resource;
use crate::runtimes;
use crate::shared::STEADY;
use crate::stop::Stop;
use crate::support::sentinel::MASTER;
use crate::worker::Worker;

/// The hidden arguments with which the hammer starts itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Assignment {
    #[arg(long)]
    pub(crate) log: PathBuf,
    /// Of the servers: straight, through the proxy, and of the protected resource.
    #[arg(long, num_args = 3)]
    pub(crate) urls: Vec<String>,
    /// Names the server to all clients but the one that goes straight to it.
    #[arg(long)]
    pub(crate) sentinel: Option<String>,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) names: u16,
    #[arg(long)]
    pub(crate) tasks: u16,
}

/// A pause of a thread that is written down: less is what every busy machine has.
const GAP: u64 = 10 * MS;

pub(crate) fn main(assignment: &Assignment) {
    crate::support::workers().block_on(serve(assignment));
}

async fn serve(assignment: &Assignment) {
    let mut orders = orders();
    let path = assignment.log.display().to_string();
    let log = Arc::new(Recorder::create(&assignment.log).expect("a new file for the history"));
    let heard = log.clone();
    std::thread::spawn(move || watch_the_clock(&heard));
    tokio::spawn(watch_the_runtime(log.clone()));

    let stop = Stop::default();
    let shared = Arc::new(open(assignment, log, stop.clone()).await);
    let Assignment { seed, tasks, .. } = *assignment;
    let workers: Vec<_> = (0..tasks)
        .map(|task| tokio::spawn(Worker::new(shared.clone(), task, seed).run()))
        .collect();
    let (heir, left) = unbounded_channel();
    let others = [
        tokio::spawn(runtimes::inherit(seed, left)),
        tokio::spawn(shared.clone().close_now_and_then(!seed)),
    ];
    let of_runtimes = shared.clone();
    let running = std::thread::spawn(move || {
        runtimes::one_after_the_other(&of_runtimes, tasks, seed, &heir);
    });
    println!("ready");

    assert_eq!(orders.recv().await.as_deref(), Some("stop"));
    stop.tell();
    let mut kept = Vec::new();
    for (task, worker) in workers.into_iter().enumerate() {
        kept.extend(comes_home(&format!("task {task}"), &path, worker).await);
    }
    for (what, other) in ["heir", "closing of clients"].into_iter().zip(others) {
        comes_home(what, &path, other).await;
    }
    let runtimes = tokio::task::spawn_blocking(|| running.join());
    let runtimes = comes_home("thread of the runtimes", &path, runtimes).await;
    runtimes.expect("a thread of the hammer failed");
    let kept = keep(kept);
    println!("kept");

    assert_eq!(orders.recv().await.as_deref(), Some("end"));
    for mut hold in kept {
        // It may have been lost since, by a fault that was just over then.
        hold.is_believed();
        hold.drop_guard(How::Drop, drop);
    }
    shared.close_all().await;
}

/// Says so if a task goes on for long after it was to stop.
async fn comes_home<T>(what: &str, log: &str, mut task: JoinHandle<T>) -> T {
    let ended = tokio::time::timeout(PATIENCE / 2, &mut task).await;
    let ended = match ended {
        Ok(ended) => ended,
        Err(_) => {
            eprintln!("{log}: the {what} was to stop {:?} ago, and goes on", PATIENCE / 2);
            task.await
        }
    };
    ended.expect("a task of the hammer failed")
}

async fn open(assignment: &Assignment, log: Arc<Recorder>, stop: Stop) -> Shared {
    let [straight, second, resource] = [0, 1, 2].map(|at| assignment.urls[at].clone());
    let client = LockClient::builder();
    let second = match &assignment.sentinel {
        Some(sentinel) => client.clone().sentinel(MASTER, [sentinel]),
        None => client.clone().url(second),
    };
    let ways = vec![client.url(straight), second];
    let resource = Box::new(Resource::open(&resource).await);
    let names = Names::new(assignment.names);
    Shared::open(ways, names, resource, Box::new(Real::new()), log, stop).await
}

/// What of those holds is kept for the count at the server.
pub(crate) fn keep(held: Vec<Hold>) -> Vec<Hold> {
    // The client may be closed already, and then the watchdog does not keep it.
    let (mut kept, fleeting): (Vec<Hold>, Vec<Hold>) =
        held.into_iter().partition(|hold| hold.client < STEADY);
    fleeting.into_iter().for_each(|hold| hold.drop_guard(How::Drop, drop));
    for hold in &mut kept {
        hold.is_believed();
        hold.put(Record { t: now(), event: Event::Kept, ..hold.base });
    }
    kept
}

/// What the parent says, kept until it is asked for: it may say `stop` before this process is ready.
fn orders() -> UnboundedReceiver<String> {
    let (said, orders) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = said.send(line);
        }
        std::process::exit(1);
    });
    orders
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
