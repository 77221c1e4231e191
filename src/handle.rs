//! One handle of a lock, and the possession in which it is inside.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::kind::Kind;
use crate::lease::Lease;
use crate::possession::{Ask, HandleId, Id, Possession, Possessions, Recipient, Renewal};
use crate::protocol::Names;

mod readers;
mod sides;
pub(crate) use readers::Readers;
pub(crate) use sides::Sides;

/// A lock's name as one handle uses it. What may nest is decided here: the guards of a handle share one
/// possession.
pub(crate) struct Handle {
    pub(crate) kind: Kind,
    pub(crate) names: Arc<Names>,
    pub(crate) number: HandleId,
    /// Made for the first who asks.
    id: OnceLock<Box<Id>>,
    /// How many of its calls wait in the queue: when one of them has the lock, the others nest.
    pub(crate) waiting: AtomicU32,
    /// Whether the log has a warning about it.
    sharing_reported: AtomicBool,
    own_wait_reported: AtomicBool,
    /// Whether the watchdog has this handle on its schedule. It changes under the mutex of `possession` only, and has no room
    /// there.
    watched: AtomicBool,
    /// The possession in which it was inside last, or for which it asks.
    possession: Mutex<Option<Arc<Possession>>>,
}

impl Handle {
    pub(crate) fn new(kind: Kind, names: Arc<Names>, possessions: &Possessions) -> Self {
        let number = possessions.new_handle();
        Self {
            kind,
            names,
            number,
            id: OnceLock::new(),
            waiting: AtomicU32::new(0),
            sharing_reported: AtomicBool::new(false),
            own_wait_reported: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            possession: Mutex::default(),
        }
    }

    /// The recipient that a call of this handle is for a hand-off. Its lease is `requested` in whole milliseconds.
    pub(crate) fn as_recipient(&self, lease: Lease, requested: Duration) -> Recipient {
        Recipient {
            to: self.number,
            lease,
            requested,
            needs_token: self.kind.has_token(),
            in_queue: self.names.is_in_order(),
        }
    }

    /// For logs, and for users to tell handles apart. It never stands in Redis.
    pub(crate) fn id(&self, possessions: &Possessions) -> &str {
        self.id.get_or_init(|| possessions.id_of(self.number).into())
    }

    /// A possession to ask for, in the memory of the last one, if that has ended.
    pub(crate) fn begins(&self, possessions: &Arc<Possessions>) -> Arc<Possession> {
        let is_own = |last: &mut Arc<Possession>| last.holds.lock().is_of(self.number);
        let spare = self.possession.lock().take_if(|last| !is_own(last));
        possessions.begin(self.kind, &self.names, spare)
    }

    /// The handle is inside that possession from now on.
    pub(crate) fn enter(&self, possession: &Arc<Possession>) {
        let before = self.possession.lock().replace(possession.clone());
        drop(before);
    }

    /// The handle asks for that possession, whose permit the caller has. `None` if the handle holds another possession
    /// meanwhile, or asks for it, or has yet to release it: that comes first.
    pub(crate) fn asks_for(&self, possession: &Arc<Possession>) -> Option<Ask> {
        let mut last = self.possession.lock();
        let is_own = |last: &Arc<Possession>| last.holds.lock().is_of(self.number);
        if last.as_ref().is_some_and(is_own) {
            return None;
        }
        let ask = {
            let mut holds = possession.holds.lock();
            holds.set_shared(self.kind.is_shared());
            holds.ask_first(self.number)
        };
        let before = last.replace(possession.clone());
        drop(last);
        drop(before);
        Some(ask)
    }

    /// The possession in which the handle was inside last, or for which it asks.
    pub(crate) fn possession(&self) -> Option<Arc<Possession>> {
        self.possession.lock().clone()
    }

    /// If the watchdog must put this handle on its schedule: from when its period counts.
    pub(crate) fn start_watching(&self) -> Option<Instant> {
        let last = self.possession.lock();
        let since = last.as_ref()?.holds.lock().watched_since(self.number)?;
        (!self.watched.swap(true, Ordering::Relaxed)).then_some(since)
    }

    /// The watchdog checks this handle, which it renews for no longer than `max_hold`.
    pub(crate) fn renewal(
        &self,
        now: Instant,
        period: Duration,
        max_hold: Duration,
    ) -> Option<(Arc<Possession>, Renewal)> {
        let last = self.possession.lock();
        let Some(possession) = last.clone() else {
            // It is about to ask for its next possession, and watches that when it has it.
            self.watched.store(false, Ordering::Relaxed);
            return None;
        };
        let found = possession.holds.lock().renewal(self.number, now, period, max_hold);
        let is_watched = matches!(found, Renewal::Due { .. } | Renewal::NotBefore(_));
        self.watched.store(is_watched, Ordering::Relaxed);
        Some((possession, found))
    }

    /// The possession in which it holds the lock now.
    pub(crate) fn holding(&self, now: Instant) -> Option<Arc<Possession>> {
        self.possession().filter(|last| last.holds.lock().holds_for(self.number, now))
    }

    /// The running task got a hold of that possession, `nested` in others or not. True if another task got
    /// the first one: then both are inside, which few users expect, unless the guard was moved to this
    /// task, which the client cannot see. True once.
    pub(crate) fn entered(&self, possession: &Possession, nested: bool) -> bool {
        let (task, first) = (running_task(), &possession.first_task);
        if !nested {
            first.store(task, Ordering::Relaxed);
            return false;
        }
        task != first.load(Ordering::Relaxed)
            && !self.sharing_reported.swap(true, Ordering::Relaxed)
    }

    /// This handle waits long for a lock that its client holds. True once.
    pub(crate) fn is_first_wait_for_its_client(&self) -> bool {
        !self.own_wait_reported.swap(true, Ordering::Relaxed)
    }
}

/// Whether the running task got the first hold.
pub(crate) fn is_of_this_task(possession: &Possession) -> bool {
    let task = running_task();
    task != 0 && task == possession.first_task.load(Ordering::Relaxed)
}

/// The number of the running task, in 32 bits, so that possessions stay small; zero outside of a task.
/// Tokio shows it only to a hasher.
fn running_task() -> u32 {
    let mut number = Number(0);
    if let Some(id) = tokio::task::try_id() {
        id.hash(&mut number);
    }
    number.0 as u32
}

struct Number(u64);

impl Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(5) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
