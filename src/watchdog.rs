//! Renews default leases: the driver over the [`schedule`], which says who is due.
//!
//! It runs on the client's own thread with that thread's connection, so neither a user's task
//! that blocks its runtime nor a flood of commands delays a renewal.
//!
//! 1. A renewal has three answers: renewed, lost, unknown. Unknown extends nothing and is tried
//!    again until each lease's own deadline.
//! 2. Locks are renewed in batches, and each is judged on its own.
//! 3. An owner is on the schedule once at most, and finds out in its turn that it has nothing to
//!    renew. So an uncontended lock and unlock of one handle touches no schedule and wakes no
//!    thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(not(test))]
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;
use crate::config::Config;
use crate::connection::Link;
use crate::error::ErrorKind;
use crate::holds::{Owner, Renewal};
use crate::protocol::Call;

mod schedule;
use schedule::Schedule;

// The same, and a place where the tests' scheduler may let another task run.
#[cfg(test)]
use tests::Mutex;

/// Locks in one renewal. A script over so many takes the server about a tenth of a millisecond.
const BATCH: usize = 100;

pub(crate) struct Watchdog {
    schedule: Mutex<Schedule<Owner>>,
    /// Something is due before the driver would look.
    changed: Notify,
    lease: Duration,
    period: Duration,
    /// What is due so much later travels along: one batch instead of many.
    early: Duration,
    /// How long a renewal may go unanswered before it is tried again.
    patience: Duration,
}

/// One owner in a batch.
struct Entry {
    owner: Arc<Owner>,
    tenure: u64,
    /// Until when its lease is believed as it is.
    until: Instant,
}

impl Watchdog {
    pub(crate) fn new(config: &Config) -> Self {
        let period = config.renewal_period();
        Self {
            schedule: Mutex::default(),
            changed: Notify::new(),
            lease: config.watchdog_timeout,
            period,
            early: period / 10,
            patience: config.command_timeout.min(period),
        }
    }

    /// Puts an owner on the schedule whose first watched lease was requested at `sent`.
    pub(crate) fn watch(&self, owner: &Arc<Owner>, sent: Instant) {
        self.insert(owner, sent + self.period);
    }

    fn insert(&self, owner: &Arc<Owner>, due: Instant) {
        let told = self.schedule.lock().insert(due, owner);
        if told && !seeded!("lost-start") {
            self.changed.notify_one();
        }
    }

    /// Renews until it is dropped.
    pub(crate) async fn keep_renewed(self: &Arc<Self>, link: &Arc<Link>) {
        loop {
            let due = self.due().await;
            let mut entries = due.into_iter().filter_map(|owner| self.look_at(owner));
            loop {
                let batch: Vec<Entry> = entries.by_ref().take(BATCH).collect();
                if batch.is_empty() {
                    break;
                }
                let (watchdog, link) = (self.clone(), link.clone());
                tokio::spawn(async move {
                    for entry in watchdog.renew(&link, batch).await {
                        watchdog.renew(&link, vec![entry]).await;
                    }
                });
            }
        }
    }

    /// Waits until somebody is due.
    async fn due(&self) -> Vec<Arc<Owner>> {
        loop {
            let (due, next) = {
                let mut schedule = self.schedule.lock();
                let due = schedule.take_due(clock::now() + self.early);
                (due, schedule.next_look())
            };
            if !due.is_empty() {
                return due;
            }
            let look = async {
                match next {
                    Some(next) => clock::sleep_until(next - self.early).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = look => {}
            }
        }
    }

    /// An owner's turn has come: is there something to renew?
    fn look_at(&self, owner: Arc<Owner>) -> Option<Entry> {
        let found = owner.account.lock().renewal(clock::now(), self.period - self.early);
        match found {
            Renewal::Due { tenure, until } => {
                return Some(Entry { owner, tenure, until });
            }
            Renewal::NotBefore(due) => self.insert(&owner, due + self.early),
            Renewal::Idle { ran_out: true } => {
                lost(&owner, "its lease could not be renewed in time")
            }
            Renewal::Idle { ran_out: false } => {}
        }
        None
    }

    /// Returns those that are to be renewed one by one: a lock that may not be touched has the
    /// whole batch refused that it is in.
    async fn renew(&self, link: &Link, batch: Vec<Entry>) -> Vec<Entry> {
        let locks: Vec<(&str, &str)> =
            batch.iter().map(|e| (e.owner.names.key(), &*e.owner.id)).collect();
        let mut call = Call::new(link, clock::now() + self.patience);
        let answer = call.renew(&locks, self.lease).await;
        let now = clock::now();
        match answer {
            Ok((held, sent)) => {
                for (entry, held) in batch.iter().zip(held) {
                    self.judge(entry, held, sent, now);
                }
            }
            Err(error)
                if error.kind() == ErrorKind::Server
                    && batch.len() > 1
                    && !seeded!("batch-stands-or-falls") =>
            {
                return batch;
            }
            Err(error) => {
                tracing::warn!(%error, locks = batch.len(), "a renewal failed; trying again");
                let again = now + (self.period / 4).min(Duration::from_secs(1));
                for entry in &batch {
                    if seeded!("watchdog-gives-up") {
                        continue;
                    }
                    if seeded!("unknown-is-loss") {
                        self.judge(entry, false, now, now);
                        continue;
                    }
                    if seeded!("unknown-extends") {
                        entry.owner.account.lock().renewed(entry.tenure, now, self.lease, now);
                    }
                    // At its deadline it finds out that it is lost.
                    self.insert(&entry.owner, again.min(entry.until) + self.early);
                }
            }
        }
        Vec::new()
    }

    /// This is the place that decides, from an answer, that a lock is lost.
    fn judge(&self, entry: &Entry, held: bool, sent: Instant, now: Instant) {
        let Entry { owner, tenure, .. } = entry;
        if held || seeded!("loss-untold") {
            let in_time = owner.account.lock().renewed(*tenure, sent, self.lease, now);
            // Too late is lost: it finds that out in its turn.
            self.insert(owner, if in_time { sent + self.period } else { now });
        } else {
            let believed = owner.renewal_refused(*tenure, now);
            if believed {
                lost(owner, "the key expired, or was deleted or taken");
            }
            // To find out that there is nothing to renew any more, or something new.
            self.insert(owner, now);
        }
    }
}

fn lost(owner: &Owner, why: &str) {
    tracing::warn!(name = %owner.names.key(), owner = %owner.id, "lost a lock: {why}");
}

#[cfg(test)]
mod tests;
