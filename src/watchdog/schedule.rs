//! Which owner is due when: the pure state of the watchdog.
//!
//! Entries are weak references: an owner that is dropped does not have to remove its entry. A sweep
//! removes dead entries when they could outnumber the live ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::sweep::Sweep;

pub(crate) struct Schedule<T> {
    entries: BTreeMap<(Instant, u64), Weak<T>>,
    number: u64,
    sweep: Sweep,
    /// When the driver looks next by itself; `None` while it sleeps until it is notified.
    next_look: Option<Instant>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), number: 0, sweep: Sweep::default(), next_look: None }
    }
}

impl<T> Schedule<T> {
    /// Returns whether the caller has to notify the driver, because it would look too late.
    pub(crate) fn insert(&mut self, due: Instant, item: &Arc<T>) -> bool {
        if self.sweep.is_due(self.entries.len()) {
            self.entries.retain(|_, item| item.strong_count() > 0);
            self.sweep.swept(self.entries.len());
        }
        self.number += 1;
        self.entries.insert((due, self.number), Arc::downgrade(item));
        self.next_look.is_none_or(|look| due < look)
    }

    /// Takes out the live items that are due by `by`, in the order of their due times, and `most` at
    /// most.
    pub(crate) fn take_due(&mut self, by: Instant, most: usize) -> Vec<Arc<T>> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some(entry) = self.entries.first_entry()
            && entry.key().0 <= by
        {
            due.extend(entry.remove().upgrade());
        }
        due
    }

    /// When to look next, unless the driver is notified before.
    pub(crate) fn next_look(&mut self) -> Option<Instant> {
        self.next_look = self.entries.first_key_value().map(|((due, _), _)| *due);
        self.next_look
    }
}

#[cfg(test)]
mod tests;
