//! The platform of a process under test: the real machine, or one of a simulated world.

use std::sync::mpsc;

use futures::future::BoxFuture;

use crate::handle::Dropped;
use crate::prelude::*;

pub(crate) trait Platform: Send + Sync {
    /// Keeps the process, or a thread of it, from running for so long.
    fn block(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// Drops a guard where there is no runtime.
    fn drop_outside(&self, guard: Dropped);

    /// How long a task rests between two sessions. On a real machine everything takes time anyway.
    fn rest(&self, rng: &mut Rng) -> Duration;

    /// The shortest explicit lease.
    fn shortest_lease(&self) -> Duration {
        Duration::ZERO
    }
}

/// The real machine.
pub(crate) struct Real {
    /// To the thread that drops guards. It is there for as long as the process is.
    dropper: mpsc::Sender<Dropped>,
}

impl Real {
    pub(crate) fn new() -> Self {
        let (dropper, dropped) = mpsc::channel();
        std::thread::spawn(move || dropped.into_iter().for_each(drop));
        Self { dropper }
    }
}

impl Platform for Real {
    fn block(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { std::thread::sleep(time) })
    }

    fn drop_outside(&self, guard: Dropped) {
        let _ = self.dropper.send(guard);
    }

    fn rest(&self, _: &mut Rng) -> Duration {
        Duration::ZERO
    }
}
