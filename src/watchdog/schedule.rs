//! Which handle is due when: the pure state of the watchdog.
//!
//! Entries are weak references: a handle that is dropped does not have to remove its entry. A sweep
//! removes dead entries when they could outnumber the live ones.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::stamp::Stamp;
use crate::sweep::{SWEEP_FROM, Sweep};

pub(crate) struct Schedule<T> {
    entries: BinaryHeap<Entry<T>>,
    sweep: Sweep,
    /// When the driver looks next by itself; `None` while it sleeps until it is notified.
    next_look: Option<Instant>,
}

/// Its order is that of a [`BinaryHeap`], which has the greatest first: the one that is due first.
struct Entry<T> {
    due: Stamp,
    item: Weak<T>,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl<T> Eq for Entry<T> {}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { entries: BinaryHeap::new(), sweep: Sweep::default(), next_look: None }
    }
}

impl<T> Schedule<T> {
    /// Returns whether the caller has to notify the driver, because it would look too late.
    pub(crate) fn insert(&mut self, due: Instant, item: &Arc<T>) -> bool {
        if self.sweep.is_due(self.entries.len()) {
            self.entries.retain(|entry| entry.item.strong_count() > 0);
            self.sweep.swept(self.entries.len());
        }
        self.entries.push(Entry { due: due.into(), item: Arc::downgrade(item) });
        self.next_look.is_none_or(|look| due < look)
    }

    /// Takes out the live items that are due by `by`, in the order of their due times, and `most` at
    /// most. Where few are left, gives back the memory of the others.
    pub(crate) fn take_due(&mut self, by: Instant, most: usize) -> Vec<Arc<T>> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some(first) = self.entries.peek_mut()
            && first.due.instant() <= by
        {
            due.extend(PeekMut::pop(first).item.upgrade());
        }
        let left = self.entries.len();
        if self.entries.capacity() > 4 * left.max(SWEEP_FROM) {
            self.entries.shrink_to(2 * left);
        }
        due
    }

    /// When to look next, unless the driver is notified before.
    pub(crate) fn next_look(&mut self) -> Option<Instant> {
        self.next_look = self.entries.peek().map(|first| first.due.instant());
        self.next_look
    }
}

#[cfg(test)]
mod tests;
