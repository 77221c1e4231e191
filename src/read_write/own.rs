//! Which guards of a handle read.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock;
use crate::lease::Validity;

/// The guards of one handle that read.
#[derive(Default)]
pub(super) struct Own(Mutex<Vec<Arc<Validity>>>);

impl Own {
    pub(super) fn reads(&self) -> bool {
        let now = clock::now();
        self.0.lock().iter().any(|validity| validity.check(now).is_some())
    }

    pub(super) fn add(&self, validity: &Arc<Validity>) {
        self.0.lock().push(validity.clone());
    }

    pub(super) fn remove(&self, validity: &Arc<Validity>) {
        let mut all = self.0.lock();
        if let Some(at) = all.iter().position(|one| Arc::ptr_eq(one, validity)) {
            all.swap_remove(at);
        }
    }
}
