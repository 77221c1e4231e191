//! The place in a queue that Redis keeps, from the first try until the call is in the wait queue.

use std::sync::Arc;

use crate::engine::Engine;
use crate::owner::Owner;

use super::{Acquisition, Wait};

/// The place that a first try takes in a queue that Redis keeps. The drop gives it up.
pub(super) struct FirstPlace<'a> {
    engine: &'a Engine,
    owner: &'a Arc<Owner>,
}

impl Drop for FirstPlace<'_> {
    fn drop(&mut self) {
        self.engine.waiters.first_place_left(&self.owner.names);
        self.engine.releaser.leave_queue(self.owner);
    }
}

impl Acquisition<'_> {
    /// The first try asks for a place already, so that others know of it after half a round trip. A
    /// call that does not wait takes none.
    pub(super) fn first_place(&self) -> Option<FirstPlace<'_>> {
        let Self { engine, owner, wait, .. } = *self;
        let takes = owner.kind.has_queue() && !matches!(wait, Wait::Once);
        takes.then(|| FirstPlace { engine, owner })
    }
}
