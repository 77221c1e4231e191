//! What a client takes from the machine under it: time, tasks, threads, connections, random numbers.
//!
//! Everything else that a client does is a function of these and of its callers. So with the feature
//! `test-util` a client can run on a simulated machine ([`simulated`]), and one seed is a whole run.
//! Without the feature there is only the real machine, and the calls of this module are those of Tokio,
//! of the driver and of the standard library.
//!
//! 1. **Nothing else in this crate** reads a clock, starts a thread, opens a connection or draws a random
//!    number, and each task is spawned by way of [`here`] or [`spawn`], so that it stays on the machine of its
//!    spawner. A test of the structure holds that.
//! 2. A call runs on the machine of its client, wherever the caller polls it: see [`Host::run`] and
//!    [`Host::enter`].
//! 3. Maps whose order of iteration can be seen from outside are [`HashMap`]s of this module.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime;
use tokio::task::{JoinError, JoinSet};

#[cfg(not(feature = "test-util"))]
mod real;
#[cfg(feature = "test-util")]
pub(crate) mod simulated;

#[cfg(not(feature = "test-util"))]
pub(crate) use real::{
    Driven, Entered, HashMap, Host, Runtime, RuntimeId, connect, hash, here, lane, machine,
    new_uuid, now, random, sleep, spawn, spawn_thread,
};
#[cfg(feature = "test-util")]
pub(crate) use simulated::{
    Driven, Entered, HashMap, Host, Runtime, RuntimeId, connect, hash, here, lane, machine,
    new_uuid, now, random, sleep, spawn, spawn_thread,
};

/// What a task of the client's thread came to, or `None` if it was aborted. If what hears of an event has panicked in it, this
/// panics, too: what the task would have done is done by no other, and with its thread the client is closed.
pub(crate) fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(done) => Some(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// Waits for all of these tasks. Panics as [`joined`].
pub(crate) async fn join_rest<T: 'static>(tasks: &mut JoinSet<T>) {
    while let Some(ended) = tasks.join_next().await {
        joined(ended);
    }
}

/// Forgets those of these tasks that have ended. Panics as [`joined`].
pub(crate) fn join_ended<T: 'static>(tasks: &mut JoinSet<T>) {
    while let Some(ended) = tasks.try_join_next() {
        joined(ended);
    }
}

/// The number of the running thread, which no other one of this process ever has.
pub(crate) fn real_lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    LANE.try_with(|lane| *lane).unwrap_or(usize::MAX)
}

/// The name of the real machine, as far as it says one, and the id of this process.
pub(crate) fn real_machine() -> (String, u32) {
    let said = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let set = || ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    (said.or_else(set).unwrap_or_default(), std::process::id())
}

/// Starts a thread of that name with a runtime of its own, which runs `main`. `started` learns whether
/// the runtime could be made.
pub(crate) fn real_thread(
    name: &str,
    started: impl FnOnce(io::Result<()>) + Send + 'static,
    main: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    // The thread makes its own runtime: if the caller made it and the thread could not start, the caller
    // would drop the runtime inside its own, and that panics.
    let thread = move || match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            started(Ok(()));
            runtime.block_on(main);
        }
        Err(error) => started(Err(error)),
    };
    std::thread::Builder::new().name(name.into()).spawn(thread).map(drop)
}
