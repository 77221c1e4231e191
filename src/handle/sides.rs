//! The two sides of a handle of a read-write lock: to write it is an owner of its own, and to read it uses the
//! handle that all readers of its client share.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::lease::Validity;

use super::Handle;

pub(crate) struct Sides {
    pub(crate) read: Arc<Handle>,
    pub(crate) write: Arc<Handle>,
    /// Its own guards among those of all readers.
    own: Mutex<Vec<Arc<Validity>>>,
}

impl Sides {
    pub(crate) fn new(read: Arc<Handle>, write: Arc<Handle>) -> Self {
        Self { read, write, own: Mutex::default() }
    }

    /// Whether it has a guard that reads.
    pub(crate) fn reads(&self, now: Instant) -> bool {
        self.own.lock().iter().any(|validity| validity.check(now).is_some())
    }

    /// Whether it has a guard that writes.
    pub(crate) fn writes(&self, now: Instant) -> bool {
        self.write.holding(now).is_some()
    }

    pub(crate) fn is_inside(&self, now: Instant) -> bool {
        self.reads(now) || self.writes(now)
    }

    pub(crate) fn is_own(&self, validity: &Arc<Validity>) -> bool {
        self.own.lock().iter().any(|one| Arc::ptr_eq(one, validity))
    }

    /// It has got that guard, which reads.
    pub(crate) fn add(&self, validity: &Arc<Validity>) {
        self.own.lock().push(validity.clone());
    }

    pub(crate) fn remove(&self, validity: &Arc<Validity>) {
        let mut own = self.own.lock();
        if let Some(at) = own.iter().position(|one| Arc::ptr_eq(one, validity)) {
            own.swap_remove(at);
        }
    }
}
