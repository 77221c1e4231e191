//! Which task got the lock, to warn of a handle that surprises its user. For the log alone.

use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering;

use super::Owner;

impl Owner {
    /// The running task got a hold, `nested` in others of this owner or not. True if another task got
    /// the first one: then both are inside, which few users expect, unless the guard was moved to this
    /// task, which cannot be told. True once.
    pub(crate) fn entered(&self, nested: bool) -> bool {
        let (task, first) = (running_task(), &self.first_task);
        if !nested {
            first.store(task, Ordering::Relaxed);
            return false;
        }
        task != first.load(Ordering::Relaxed)
            && !self.sharing_reported.swap(true, Ordering::Relaxed)
    }

    /// Whether the running task got the first hold.
    pub(crate) fn is_of_this_task(&self) -> bool {
        let task = running_task();
        task != 0 && task == self.first_task.load(Ordering::Relaxed)
    }

    /// This owner waits long for a lock that its client holds. True once.
    pub(crate) fn is_first_wait_for_its_client(&self) -> bool {
        !self.own_wait_reported.swap(true, Ordering::Relaxed)
    }
}

/// The number of the running task, in 32 bits, so that handles stay small; zero outside of a task.
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
