//! The two sides of a read-write lock: the caller writes by a handle of its own, and reads by the
//! handle that all readers of its client share.

use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::lease::Validity;
use crate::possession::{HandleId, Held, Joint, Possession};

use super::Handle;

pub(crate) struct Sides {
    pub(crate) read: Arc<Handle>,
    pub(crate) write: Arc<Handle>,
    own: Mutex<Own>,
}

#[derive(Default)]
struct Own {
    /// The guards of this handle among those of all readers of the client.
    guards: Vec<Arc<Validity>>,
    /// The possession in which the last one of them was. As a rule the next one is there, too: so it need not ask the
    /// handle that all readers share.
    readers: Weak<Possession>,
    /// And its joint hold, if the guard has a part of one.
    joint: Weak<Joint>,
}

impl Sides {
    pub(crate) fn new(read: Arc<Handle>, write: Arc<Handle>) -> Self {
        Self { read, write, own: Mutex::default() }
    }

    /// Whether the handle has a guard that reads.
    pub(crate) fn reads(&self, now: Instant) -> bool {
        self.own.lock().guards.iter().any(|validity| validity.check(now).is_some())
    }

    /// Whether the handle has a guard that writes.
    pub(crate) fn writes(&self, now: Instant) -> bool {
        self.write.holding(now).is_some()
    }

    pub(crate) fn is_inside(&self, now: Instant) -> bool {
        self.reads(now) || self.writes(now)
    }

    pub(crate) fn is_own(&self, validity: &Arc<Validity>) -> bool {
        self.own.lock().guards.iter().any(|one| Arc::ptr_eq(one, validity))
    }

    /// The possession in which the handle read last, if that is still known: others may read in another one by now.
    pub(crate) fn readers(&self) -> Option<Arc<Possession>> {
        self.own.lock().readers.upgrade()
    }

    /// The joint hold of which the handle had a part last, if that is one of the running thread.
    pub(crate) fn joint(&self) -> Option<Arc<Joint>> {
        let joint = self.own.lock().joint.upgrade();
        joint.filter(|joint| joint.is_of_this_thread())
    }

    /// The number under which the handle has a part of a joint hold.
    pub(crate) fn reads_as(&self) -> HandleId {
        self.write.number
    }

    /// The handle has got that guard, which reads.
    pub(crate) fn add(&self, granted: &Held) {
        let mut own = self.own.lock();
        own.guards.push(granted.validity.clone());
        if own.readers.as_ptr() != Arc::as_ptr(&granted.possession) {
            own.readers = Arc::downgrade(&granted.possession);
        }
        if let Held::Part(part) = granted
            && own.joint.as_ptr() != Arc::as_ptr(part.joint())
        {
            own.joint = Arc::downgrade(part.joint());
        }
    }

    /// The handle has got a guard with a part of that joint hold.
    pub(crate) fn add_part(&self, joint: &Joint) {
        self.own.lock().guards.push(joint.granted.validity.clone());
    }

    /// One of the handle's guards has another validity from now on.
    pub(crate) fn replace(&self, before: &Arc<Validity>, after: &Arc<Validity>) {
        let mut own = self.own.lock();
        if let Some(guard) = own.guards.iter_mut().find(|one| Arc::ptr_eq(one, before)) {
            *guard = after.clone();
        }
    }

    pub(crate) fn remove(&self, validity: &Arc<Validity>) {
        let mut own = self.own.lock();
        if let Some(at) = own.guards.iter().position(|one| Arc::ptr_eq(one, validity)) {
            own.guards.swap_remove(at);
        }
    }
}
