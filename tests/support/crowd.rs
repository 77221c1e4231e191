//! A crowd inside a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redlatch::LockClient;
use tokio::task::{JoinHandle, yield_now};

use super::{SOON, release, soon, wait_until};

/// Tasks of one client that take one lock as often as they can: it goes from one to the next
/// inside the client, and stays there while nobody else wants it.
pub(crate) struct Crowd {
    turns: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// `None`: they drop their guards, which are given back in the background. So the next one goes on at once.
    pub(crate) fn new(
        client: &LockClient,
        name: &str,
        tasks: usize,
        held: Option<Duration>,
    ) -> Self {
        let (turns, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let task = |_| {
            let (lock, turns, over) = (client.lock(name), turns.clone(), over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = lock.lock().await.expect("the lock");
                    turns.fetch_add(1, Ordering::Relaxed);
                    if let Some(held) = held {
                        tokio::time::sleep(held).await;
                        release(guard).await;
                    } else {
                        yield_now().await;
                        drop(guard);
                    }
                }
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { turns, over, tasks }
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(crate) async fn has_turns(&self, more: u64) {
        let before = self.turns();
        wait_until("the crowd is at it", SOON, || self.turns() > before + more).await;
    }

    pub(crate) async fn ends(self) {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            soon("the end of the crowd", task).await.expect("a task that succeeds");
        }
    }
}
