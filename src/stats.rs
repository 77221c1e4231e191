//! What a program can see of its client: counts, and whether it is well.

use std::ops::Sub;
use std::time::Duration;

use crate::clock;
use crate::engine::Engine;

mod health;
pub use health::{Health, NodeHealth};

/// What a client has done since it was made, and what it does now: [`LockClient::stats`].
///
/// The first five fields are levels; the others only grow. The difference of two snapshots says what happened
/// between them, with the levels of the later one.
///
/// [`LockClient::stats`]: crate::LockClient::stats
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: redlatch::LockClient) {
/// use std::time::Duration;
///
/// let mut before = client.stats();
/// loop {
///     tokio::time::sleep(Duration::from_secs(60)).await;
///     let now = client.stats();
///     let minute = now - before;
///     println!("{} acquired, {} busy, {} lost", minute.acquired, minute.busy, minute.losses);
///     println!("{} calls wait, the first one for {:?}", minute.waiting, minute.oldest_wait);
///     before = now;
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// How many locks the client has now. The readers of one read-write lock have it once.
    pub held: usize,
    /// How many calls wait now for a lock that another owner has. A call whose first request is under way does not.
    pub waiting: usize,
    /// For how long the oldest of these calls has waited; zero if none waits.
    pub oldest_wait: Duration,
    /// How many releases Redis has yet to confirm: those in the background, undos of acquires that were not answered
    /// included, and those that a call awaits.
    pub pending_releases: usize,
    /// How many guards are lost, and have not been dropped: code that may go on without its lock. A lock that was handed
    /// to a call which nothing polls is none.
    pub lost_guards: usize,
    /// Calls that acquired.
    pub acquired: u64,
    /// Calls among the acquired ones that waited for no answer of Redis: another holder of this client handed the lock
    /// off to them, or they joined its readers.
    pub handed_off: u64,
    /// Calls that returned `None`: the lock stayed busy.
    pub busy: u64,
    /// Calls to acquire that returned an error, but for those that are refused before they begin: for their name, or
    /// outside of a runtime.
    pub failed: u64,
    /// Calls to acquire whose futures were dropped before they were ready.
    pub cancelled: u64,
    /// Calls to acquire that did not get their answer at once, and were not dropped.
    pub waited: u64,
    /// How long the calls waited that `waited` counts, together.
    pub wait_time: Duration,
    /// Losses of locks, each when the client finds it out. A lease that ends before its guard goes is one.
    pub losses: u64,
    /// Renewals of default leases that Redis confirmed, one for each lock and time.
    pub renewals: u64,
    /// Renewals that failed, after which the client tried again.
    pub failed_renewals: u64,
}

impl Stats {
    pub(crate) fn of(engine: &Engine) -> Self {
        let Some(_on) = engine.local(false) else { return Self::default() };
        let now = clock::now();
        let overview = engine.possessions.overview(now);
        let (waiting, since) = engine.waiters.waiting();
        let counters = &engine.events.counters;
        Self {
            held: overview.held,
            waiting,
            oldest_wait: since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            pending_releases: overview.pending_releases,
            lost_guards: overview.lost_guards,
            acquired: counters.granted.get() + counters.handed_off.get(),
            handed_off: counters.handed_off.get(),
            busy: counters.busy.get(),
            failed: counters.failed.get(),
            cancelled: counters.cancelled.get(),
            waited: counters.waited.get(),
            wait_time: counters.wait_time(),
            losses: counters.losses.get(),
            renewals: counters.renewed.get(),
            failed_renewals: counters.renewals_failed.get(),
        }
    }
}

/// What happened since the earlier snapshot. Never below zero.
impl Sub for Stats {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            acquired: self.acquired.saturating_sub(earlier.acquired),
            handed_off: self.handed_off.saturating_sub(earlier.handed_off),
            busy: self.busy.saturating_sub(earlier.busy),
            failed: self.failed.saturating_sub(earlier.failed),
            cancelled: self.cancelled.saturating_sub(earlier.cancelled),
            waited: self.waited.saturating_sub(earlier.waited),
            wait_time: self.wait_time.saturating_sub(earlier.wait_time),
            losses: self.losses.saturating_sub(earlier.losses),
            renewals: self.renewals.saturating_sub(earlier.renewals),
            failed_renewals: self.failed_renewals.saturating_sub(earlier.failed_renewals),
            ..self
        }
    }
}
