//! Runtimes that begin and end while the process goes on, and use the clients that it shares.
//!
//! A runtime ends with calls under way and guards held by its tasks. Each of them writes that down
//! when it is dropped. Some guards are given to the process's own runtime before.

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::prelude::*;
use crate::worker::Worker;

/// In each of the runtimes.
pub(crate) const TASKS: u16 = 3;

/// Runs one runtime after the other in this thread, until the process stops. No two tasks have
/// the same number; `first` is that of the first.
pub(crate) fn one_after_the_other(
    shared: &Arc<Shared>,
    first: u16,
    seed: u64,
    heir: &UnboundedSender<Hold>,
) {
    let mut rng = Rng::with_seed(seed);
    let mut task = first;
    let stop = &shared.stop;
    while !stop.is_told() {
        let runtime = runtime(&mut rng);
        let before = shared.log.cut_off();
        for _ in 0..TASKS {
            let worker = Worker::new(shared.clone(), task, seed).with_heir(heir.clone());
            runtime.spawn(worker.run());
            task = task.checked_add(1).unwrap_or(first);
        }
        let life = Duration::from_millis(rng.u64(30..700));
        runtime.block_on(async {
            let _ = tokio::time::timeout(life, stop.told()).await;
        });
        if rng.bool() {
            drop(runtime);
        } else {
            runtime.shutdown_background();
        }
        let cut_off = shared.log.cut_off() - before;
        shared.log.put(Record { aux: cut_off, ..Record::new(Event::RuntimeEnd) });
    }
}

fn runtime(rng: &mut Rng) -> Runtime {
    let mut builder =
        if rng.bool() { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(1).enable_all().build().expect("a runtime")
}

/// Gives back what the tasks of those runtimes leave to it. Ends when all of them have ended.
pub(crate) async fn inherit(seed: u64, mut holds: UnboundedReceiver<Hold>) {
    let mut rng = Rng::with_seed(seed);
    let mut all = FuturesUnordered::new();
    loop {
        let mut hold = tokio::select! {
            biased;
            hold = holds.recv() => match hold {
                Some(hold) => hold,
                None => break,
            },
            Some(()) = all.next() => continue,
        };
        let (time, unlocks) = (Duration::from_millis(rng.u64(..40)), rng.bool());
        all.push(async move {
            hold.is_believed();
            tokio::time::sleep(time).await;
            hold.is_believed();
            if unlocks {
                hold.unlock(std::future::pending()).await;
            } else {
                hold.drop_guard(How::Drop, drop);
            }
        });
    }
    while all.next().await.is_some() {}
}
