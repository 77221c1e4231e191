//! Which task may talk to Redis for a possession.
//!
//! A call may never be polled again. So the permit goes to no call by itself: a call takes it when it is polled, and
//! until then the client's thread can have it, which releases what another guard gives back.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::Possession;

/// The right to talk to Redis for one possession. On drop it goes to the client's thread, if that waits; else the first
/// call that waits can take it.
pub(crate) struct Permit(Arc<Possession>);

impl Possession {
    /// Waits for the permit, in the client's thread. First come, first served.
    pub(crate) async fn permit(self: &Arc<Self>) -> Permit {
        let permit = self.permit.acquire().await.expect("BUG: a permit was closed");
        permit.forget();
        Permit(self.clone())
    }

    /// Waits for the permit, in a call.
    pub(crate) async fn permit_of_call(self: &Arc<Self>) -> Permit {
        let freed = self.freed.get_or_init(Box::default);
        loop {
            let mut freed = pin!(freed.notified());
            freed.as_mut().enable();
            // Whoever drops the permit from here on notifies, or else this finds it.
            fence(Ordering::SeqCst);
            if let Some(permit) = self.try_permit() {
                return permit;
            }
            freed.await;
        }
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
        fence(Ordering::SeqCst);
        if let Some(freed) = self.0.freed.get() {
            freed.notify_one();
        }
        self.0.changed();
    }
}
