//! Which task may talk to Redis for a possession.

use std::sync::Arc;

use super::Possession;

/// The right to talk to Redis for one possession. On drop it goes to the next task that waits.
pub(crate) struct Permit(Arc<Possession>);

impl Possession {
    /// Waits for the permit. First come, first served.
    pub(crate) async fn permit(self: &Arc<Self>) -> Permit {
        let permit = self.permit.acquire().await.expect("BUG: a permit was closed");
        permit.forget();
        Permit(self.clone())
    }

    /// The permit, if it is free.
    pub(crate) fn try_permit(self: &Arc<Self>) -> Option<Permit> {
        self.permit.try_acquire().ok()?.forget();
        Some(Permit(self.clone()))
    }

    /// The permit, if it is free, for the client's thread: in one step with the note that a hand-off need not wait
    /// for it.
    pub(crate) fn try_prolonging(self: &Arc<Self>) -> Option<Permit> {
        let mut holds = self.holds.lock();
        let permit = self.try_permit()?;
        holds.set_prolonging(true);
        Some(permit)
    }

    /// Whether a task has the permit.
    pub(super) fn is_permit_taken(&self) -> bool {
        self.permit.available_permits() == 0
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.permit.add_permits(1);
        self.0.changed();
    }
}
