//! The place in a queue that Redis keeps, from the first try until the call is in the wait queue.

use std::sync::Arc;

use crate::engine::Engine;
use crate::owner::Owner;
use crate::protocol::{Place, Turn};

use super::{Acquisition, Wait};

/// The place that a try takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum TryPlace {
    None,
    /// Of a call that may not be subscribed yet, and is not in the wait queue.
    First,
    /// Of the head of the wait queue. An older waiter may have left, so that the place moves.
    Head {
        moves: bool,
    },
}

/// The place that a first try takes in a queue that Redis keeps. The drop gives it up.
pub(super) struct FirstPlace<'a> {
    engine: &'a Engine,
    owner: &'a Arc<Owner>,
}

impl FirstPlace<'_> {
    /// It went with a grant, or a waiter has it now.
    pub(super) fn ends(self) {
        self.engine.waiters.first_place_ends(&self.owner.names);
        std::mem::forget(self);
    }
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
        takes.then(|| {
            engine.waiters.first_place_begins(&owner.names);
            FirstPlace { engine, owner }
        })
    }

    /// What a request says of this client's place, if Redis keeps a queue.
    pub(super) fn place(&self, takes: TryPlace) -> Option<Place> {
        let Self { engine, owner, begun, .. } = *self;
        let (since, moves, in_queue) = match takes {
            TryPlace::None => (None, false, false),
            TryPlace::First => (Some(begun), false, false),
            TryPlace::Head { moves } => (Some(begun), moves, true),
        };
        let turn = || {
            let hears = in_queue && engine.waiters.hears(&owner.names);
            Turn::of(hears, engine.config.takes_grants())
        };
        let grace = engine.config.fair_grace;
        owner.kind.has_queue().then(|| Place { since, moves, grace, turn: turn() })
    }
}
