//! Renews default leases: the driver over the [`schedule`], which says which handle is due when.
//!
//! It runs on the client's own thread with that thread's connection, so neither a user's task
//! that blocks its runtime nor a flood of commands delays a renewal.
//!
//! 1. A renewal has three answers: renewed, lost, unknown. An unknown one extends nothing; the
//!    watchdog tries again until each lease's own deadline. If a third of the lease passes without an
//!    answer, it tries on another connection. Where the server is so far away, or so busy, that a new
//!    connection takes longer than that, it waits for the answer instead, as long as it is of use.
//! 2. The watchdog renews locks in batches, and the script judges each lock on its own.
//! 3. **A few batches are under way at a time** to one server, those that are due first in front. So
//!    a hundred thousand locks that are due at once hold up no other user's commands. Where answers
//!    take long, batches follow each other all the same: no lock is late for it, and a server that
//!    does not answer holds up the locks on no other.
//! 4. The watchdog renews a lock for no longer than `max_hold`. After that its lease ends.
//! 5. A handle is on the schedule once at most. When it is due, the watchdog finds out whether it is inside a
//!    possession that has something to renew. So to lock and unlock one uncontended handle again touches no schedule and
//!    wakes no thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::clock;
use crate::config::Config;
use crate::error::{ErrorKind, Loss};
use crate::events::Events;
use crate::handle::Handle;
use crate::host::{HashMap, here, spawn};
use crate::join::join_all;
use crate::lease::whole_millis;
use crate::loss::Losses;
use crate::possession::{FoundBy, Possession, Renewal};
use crate::protocol::{Call, Renewed};
use crate::sync::Mutex;
use crate::transport::{Router, ServerEpoch};

mod schedule;
use schedule::Schedule;

/// The most locks in one renewal. A script over this many takes the server about a quarter of a millisecond.
const BATCH: usize = 100;

/// How many locks of a refused batch the watchdog tries together, before it tries each alone.
const RETRY_BATCH: usize = 10;

/// The most batches under way to one server at a time, unless an answer takes longer than [`PACE`], there or at a server
/// that is silent.
const MAX_BATCHES_UNDER_WAY: usize = 4;

/// The longest time between two batches that are due.
const PACE: Duration = Duration::from_millis(1);

pub(crate) struct Watchdog {
    schedule: Mutex<Schedule<Handle>>,
    /// Something is due before the driver would look.
    changed: Notify,
    /// Renewals have been answered, or failed.
    pub(crate) answered: Arc<Notify>,
    panicked: Notify,
    events: Arc<Events>,
    losses: Arc<Losses>,
    lease: Duration,
    period: Duration,
    /// How long before a lock is due the watchdog may renew it.
    early: Duration,
    /// How long the watchdog waits for more locks to be due: one batch instead of many.
    linger: Duration,
    /// How long a renewal may go unanswered before the watchdog tries it again.
    answer_timeout: Duration,
    /// For how long the watchdog renews a lock.
    max_hold: Duration,
}

/// A possession in a batch, and the handle that is inside.
struct Entry {
    handle: Arc<Handle>,
    possession: Arc<Possession>,
    /// Until when the lease is valid as it is, and how often it was made shorter before.
    until: Instant,
    shortened: u32,
}

impl Entry {
    fn key(&self) -> &str {
        self.handle.names.key()
    }
}

/// Its renewal is over, whether or not there was an answer: the client may end meanwhile.
impl Drop for Entry {
    fn drop(&mut self) {
        self.possession.holds.lock().renewal_ends();
    }
}

/// Notifies the tasks that wait for the end of a batch, however that ends, and the client of a panic. A client that has
/// ended does not hear of one.
struct NotesPanic<'a>(&'a Watchdog);

impl Drop for NotesPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.panicked.notify_one();
        }
        self.0.answered.notify_waiters();
    }
}

impl Watchdog {
    pub(crate) fn new(config: &Config, losses: Arc<Losses>) -> Self {
        let period = config.renewal_period();
        Self {
            schedule: Mutex::default(),
            changed: Notify::new(),
            answered: Arc::default(),
            panicked: Notify::new(),
            events: losses.events.clone(),
            losses,
            lease: config.watchdog_timeout,
            period,
            early: period / 10,
            linger: period / 100,
            answer_timeout: config.command_timeout.min(period),
            max_hold: config.max_hold,
        }
    }

    /// Puts a handle on the schedule, if it has got a watched lease and is not there.
    pub(crate) fn watch(&self, handle: &Arc<Handle>) {
        if let Some(since) = handle.start_watching() {
            self.insert(handle, since + self.period);
        }
    }

    fn insert(&self, handle: &Arc<Handle>, due: Instant) {
        let looks_too_late = self.schedule.lock().insert(due, handle);
        if looks_too_late {
            self.changed.notify_one();
        }
    }

    /// Renews until it is dropped.
    ///
    /// # Panics
    ///
    /// If a batch has panicked, because what hears of an event has: its locks would be renewed no more.
    pub(crate) async fn keep_renewed(self: &Arc<Self>, router: &Arc<Router>) {
        tokio::select! {
            biased;
            () = self.panicked.notified() => panic!("a batch of renewals has panicked"),
            () = self.renew_what_is_due(router) => {}
        }
    }

    async fn renew_what_is_due(self: &Arc<Self>, router: &Arc<Router>) {
        let mut permits: HashMap<ServerEpoch, Arc<Semaphore>> = HashMap::default();
        loop {
            let mut by_server: BTreeMap<ServerEpoch, Vec<Entry>> = BTreeMap::new();
            for entry in self.batch().await {
                by_server.entry(router.server_of(entry.key())).or_default().push(entry);
            }
            // Of the others no batch is under way.
            permits.retain(|_, permits| Arc::strong_count(permits) > 1);
            // Of all servers together: else a batch would wait for each that is silent.
            let until = clock::now() + PACE;
            for (server, batch) in by_server {
                let permits = permits
                    .entry(server)
                    .or_insert_with(|| Semaphore::new(MAX_BATCHES_UNDER_WAY).into());
                // If no permit is free within the pace, the batch goes without one.
                let permit = clock::timeout_at(until, permits.clone().acquire_owned()).await;
                let (watchdog, router) = (self.clone(), router.clone());
                spawn(async move {
                    watchdog.renew_by_slot(&router, batch).await;
                    drop(permit);
                });
            }
        }
    }

    /// In a cluster one call can only have keys of one slot, and read-write locks have a script of their own:
    /// then this makes several calls at once.
    async fn renew_by_slot(self: &Arc<Self>, router: &Arc<Router>, batch: Vec<Entry>) {
        let mut by_slot: BTreeMap<(Option<u16>, bool), Vec<Entry>> = BTreeMap::new();
        for entry in batch {
            let (slot, names) = (router.slot_of(entry.key()), &entry.possession.names);
            by_slot.entry((slot, names.is_read_write())).or_default().push(entry);
        }
        let mut calls = JoinSet::new();
        let last = by_slot.pop_last();
        for (_, batch) in by_slot {
            let (watchdog, router) = (self.clone(), router.clone());
            calls.spawn(here(async move { watchdog.renew_all(&router, batch).await }));
        }
        if let Some((_, batch)) = last {
            self.renew_all(router, batch).await;
        }
        while calls.join_next().await.is_some() {}
    }

    /// Waits until a handle is due. Returns those that have something to renew: a batch at most.
    async fn batch(&self) -> Vec<Entry> {
        let mut batch = Vec::new();
        let mut due = self.due().await;
        while !due.is_empty() {
            batch.extend(due.into_iter().filter_map(|handle| self.look_at(handle)));
            (due, _) = self.take_due(BATCH - batch.len());
        }
        batch
    }

    /// The handles that are due, and when to look for more.
    fn take_due(&self, most: usize) -> (Vec<Arc<Handle>>, Option<Instant>) {
        let mut schedule = self.schedule.lock();
        let due = schedule.take_due(clock::now() + self.early, most);
        (due, schedule.next_look())
    }

    /// Waits until a handle is due.
    async fn due(&self) -> Vec<Arc<Handle>> {
        loop {
            let (due, next) = self.take_due(BATCH);
            if !due.is_empty() {
                return due;
            }
            let look = next.map(|next| next - self.early + self.linger);
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = clock::until(look) => {}
            }
        }
    }

    /// Looks whether a handle that is due is inside a possession that has something to renew.
    fn look_at(&self, handle: Arc<Handle>) -> Option<Entry> {
        let (now, period) = (clock::now(), self.period - self.early);
        let (possession, found) = handle.renewal(now, period, self.max_hold)?;
        match found {
            Renewal::Due { until, shortened } => {
                return Some(Entry { handle, possession, until, shortened });
            }
            Renewal::NotBefore(due) => self.insert(&handle, due + self.early),
            Renewal::Idle { ran_out: true } => {
                possession.report_loss(&self.events, Loss::LeaseEnded, "not renewed in time", now);
            }
            Renewal::Idle { ran_out: false } => {}
            Renewal::Over { until } => {
                self.events.held_long(
                    (possession.names.key(), &possession.id()),
                    whole_millis(until - now),
                    now,
                );
            }
        }
        None
    }

    /// Renews the locks of a batch. One forbidden key fails its whole batch, and so does a slot of which half the keys
    /// have moved. Then this renews the locks ten by ten, and those of a refused ten one by one: all tens at once, and
    /// all of those at once, because a lock that is due has time for a few round trips, and not for one for each other lock.
    async fn renew_all(&self, router: &Router, batch: Vec<Entry>) {
        let _panics = NotesPanic(self);
        let mut refused = self.renew(router, batch).await;
        for size in [RETRY_BATCH, 1] {
            if refused.len() <= size {
                continue;
            }
            let mut again = std::mem::take(&mut refused).into_iter();
            let parts = std::iter::from_fn(|| Some(again.by_ref().take(size).collect::<Vec<_>>()));
            let parts = parts.take_while(|part| !part.is_empty());
            let left = join_all(parts.map(|part| self.renew(router, part))).await;
            refused.extend(left.into_iter().flatten());
        }
    }

    /// Returns the whole batch if Redis refused it and it has more than one lock.
    async fn renew(&self, router: &Router, batch: Vec<Entry>) -> Vec<Entry> {
        let possessions = batch.iter().map(|entry| &entry.possession);
        let ids: Vec<_> = possessions.clone().map(|one| one.id()).collect();
        let locks: Vec<_> = possessions.zip(&ids).map(|(one, id)| (&*one.names, &**id)).collect();
        let mut call = Call::new(router, self.give_up(router, &batch));
        call.answer_timeout = self.answer_timeout;
        let answer = call.renew(&locks, self.lease).await;
        let now = clock::now();
        match answer {
            Err(error) if error.kind() == ErrorKind::Server && batch.len() > 1 => return batch,
            Ok(Renewed { held, sent, .. }) => {
                for (entry, held) in batch.iter().zip(&held) {
                    self.apply_answer(entry, *held, sent, now);
                }
                let renewed = batch.iter().zip(&held).filter(|(_, held)| held.is_ok());
                self.events.counters.has_renewed(renewed.clone().count(), now);
                renewed.for_each(|(entry, _)| self.events.metrics.renewed(entry.until, now));
            }
            Err(error) => {
                let again = now + (self.period / 4).min(Duration::from_secs(1));
                for entry in &batch {
                    // When it is due at its deadline, the watchdog finds that it is lost.
                    self.insert(&entry.handle, again.min(entry.until) + self.early);
                }
                self.events.renewal_failed(&error, batch.len(), now);
            }
        }
        drop(batch);
        self.answered.notify_waiters();
        Vec::new()
    }

    /// Until when the watchdog waits for an answer (invariant 1).
    fn give_up(&self, router: &Router, batch: &[Entry]) -> Instant {
        let soon = clock::now() + self.answer_timeout;
        match batch.iter().max_by_key(|entry| entry.until) {
            Some(last) if router.dial_time(last.key()) > self.period => {
                // A handle that is in the batch has its next lease renewed only behind that.
                last.until.min(clock::now() + self.lease - self.period).max(soon)
            }
            _ => soon,
        }
    }

    fn apply_answer(&self, entry: &Entry, held: Result<(), Loss>, sent: Instant, now: Instant) {
        let Entry { handle, possession, shortened, .. } = entry;
        match held {
            Ok(()) => {
                let mut holds = possession.holds.lock();
                let in_time = holds.renewed(*shortened, sent, self.lease, now);
                drop(holds);
                // Too late is lost: the watchdog finds that out when it looks at the handle.
                self.insert(handle, if in_time { sent + self.period } else { now });
            }
            Err(loss) => {
                // There may be nothing to renew any more, or something new.
                self.insert(handle, now);
                self.losses.found_gone(possession, FoundBy::Renewal, loss);
            }
        }
    }
}

#[cfg(test)]
mod tests;
