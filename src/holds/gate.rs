//! Whose turn it is to talk to Redis for an owner.

use std::sync::Arc;

use super::Owner;

/// The right to talk to Redis for one owner. When it is dropped, the next who waits has it.
pub(crate) struct Gate(Arc<Owner>);

impl Owner {
    /// Waits for the gate. First come, first served.
    pub(crate) async fn enter(self: &Arc<Self>) -> Gate {
        let turn = self.gate.acquire().await.expect("BUG: a gate was closed");
        turn.forget();
        Gate(self.clone())
    }

    /// The gate, if nobody has it.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Gate> {
        self.gate.try_acquire().ok()?.forget();
        Some(Gate(self.clone()))
    }

    /// Whether somebody talks to Redis for this owner.
    pub(super) fn is_entered(&self) -> bool {
        self.gate.available_permits() == 0
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.gate.add_permits(1);
    }
}
