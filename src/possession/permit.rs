//! Which task may talk to Redis for a possession.
//!
//! 1. **The permit goes to no task by itself.** Who waits for it is woken, and takes it when it is polled. A call may never
//!    be polled again, and the client's thread releases what another guard gives back meanwhile.
//! 2. **Calls take turns**, first come, first served, or one that asks again and again would keep the others out. The one
//!    whose turn it is waits for the permit itself. If it is not polled any more, the calls behind it wait until their
//!    deadlines.
//! 3. **The client's thread comes before the calls.** Its jobs end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use tokio::sync::{Notify, Semaphore};

use super::Possession;

/// The right to talk to Redis for one possession. On drop it wakes who waits for it.
pub(crate) struct Permit(Arc<Possession>);

/// Where tasks wait for a permit.
pub(super) struct Waits {
    /// Wakes the call whose turn it is.
    call: Notify,
    turn: Semaphore,
    jobs: Notify,
    /// How many jobs wait.
    many_jobs: AtomicU32,
}

impl Default for Waits {
    fn default() -> Self {
        let (call, turn) = (Notify::new(), Semaphore::new(1));
        Self { call, turn, jobs: Notify::new(), many_jobs: AtomicU32::new(0) }
    }
}

impl Waits {
    fn wake(&self) {
        self.jobs.notify_one();
        self.call.notify_one();
    }
}

impl Possession {
    /// Waits for the permit, in the client's thread.
    pub(crate) async fn permit(self: &Arc<Self>) -> Permit {
        let waits = self.waits_for_permit();
        let _waits = JobWaits::begin(waits);
        self.permit_behind(&waits.jobs, || true).await
    }

    /// Waits for the permit, in a call.
    pub(crate) async fn permit_of_call(self: &Arc<Self>) -> Permit {
        let waits = self.waits_for_permit();
        let _turn = waits.turn.acquire().await.expect("BUG: the turn of the calls was closed");
        self.permit_behind(&waits.call, || waits.many_jobs.load(Ordering::Acquire) == 0).await
    }

    fn waits_for_permit(&self) -> &Waits {
        &self.seldom().waits
    }

    async fn permit_behind(
        self: &Arc<Self>,
        freed: &Notify,
        may_take: impl Fn() -> bool,
    ) -> Permit {
        loop {
            let mut freed = pin!(freed.notified());
            freed.as_mut().enable();
            // What changes from here on wakes this task, and this task sees what has changed before.
            fence(Ordering::SeqCst);
            if may_take()
                && let Some(permit) = self.try_permit()
            {
                return permit;
            }
            freed.await;
        }
    }

    /// The permit, if it is free.
    pub(crate) fn try_permit(self: &Arc<Self>) -> Option<Permit> {
        let was_taken = self.permit_is_taken.swap(true, Ordering::AcqRel);
        (!was_taken).then(|| Permit(self.clone()))
    }

    /// The permit, if it is free and no task waits for it.
    pub(crate) fn try_permit_of_call(self: &Arc<Self>) -> Option<Permit> {
        let Some(seldom) = self.seldom.get() else { return self.try_permit() };
        let waits = &seldom.waits;
        let _turn = waits.turn.try_acquire().ok()?;
        if waits.many_jobs.load(Ordering::Acquire) == 0 { self.try_permit() } else { None }
    }

    /// The permit, if it is free, for the client's thread: in one step with the note that a hand-off need not wait
    /// for it.
    pub(crate) fn try_updating(self: &Arc<Self>) -> Option<Permit> {
        let mut holds = self.holds.lock();
        let permit = self.try_permit()?;
        holds.set_updating(true);
        Some(permit)
    }

    /// Whether a task has the permit.
    pub(crate) fn is_permit_taken(&self) -> bool {
        self.permit_is_taken.load(Ordering::Acquire)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.permit_is_taken.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        if let Some(seldom) = self.0.seldom.get() {
            seldom.waits.wake();
        }
        self.0.changed();
    }
}

/// A job that waits.
struct JobWaits<'a>(&'a Waits);

impl<'a> JobWaits<'a> {
    fn begin(waits: &'a Waits) -> Self {
        waits.many_jobs.fetch_add(1, Ordering::AcqRel);
        Self(waits)
    }
}

impl Drop for JobWaits<'_> {
    fn drop(&mut self) {
        self.0.many_jobs.fetch_sub(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        // It may have kept the call waiting alone.
        self.0.call.notify_one();
    }
}
