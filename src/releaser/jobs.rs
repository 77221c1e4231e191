//! What the client's thread does in the background, one task for each job.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::clock;
use crate::handoff::Handoffs;
use crate::host::{here, joined};
use crate::possession::{Permit, Possession};
use crate::protocol::Grant;
use crate::spans;
use crate::transport::Router;

use super::background::release_in_background;
use super::gap::await_end_of_gap;
use super::granted::{KnownGrants, pass_on};
use super::{BackgroundRelease, Job};

/// After this many jobs the client's thread looks for other work: a poll has a budget, and the jobs would use it up.
const JOBS_BEFORE_YIELD: u32 = 32;

/// Does all jobs until no sender of jobs is left and all jobs are done.
pub(crate) async fn do_jobs(
    mut jobs: UnboundedReceiver<Job>,
    mut grants: UnboundedReceiver<Grant>,
    router: &Arc<Router>,
    handoffs: &Arc<Handoffs>,
) {
    let mut under_way = JoinSet::new();
    let mut drains: Vec<oneshot::Sender<()>> = Vec::new();
    let mut known_grants = KnownGrants::default();
    let mut open = true;
    let mut begun = 0_u32;
    while open || !under_way.is_empty() {
        begun = begun.wrapping_add(1);
        if begun.is_multiple_of(JOBS_BEFORE_YIELD) {
            tokio::task::yield_now().await;
        }
        if under_way.is_empty() {
            for done in drains.drain(..) {
                let _ = done.send(());
            }
        }
        let todo = tokio::select! {
            // New jobs come before completions, and all that are there before a drain is answered.
            biased;
            job = jobs.recv(), if open => {
                open = job.is_some();
                if !open {
                    handoffs.standstills.close();
                }
                job.into_iter().collect()
            }
            Some(grant) = grants.recv() => vec![Job::Granted(grant)],
            // A job's follow-up jobs run beside the others: one may have to wait for another.
            Some(ended) = under_way.join_next() => joined(ended).unwrap_or_default(),
        };
        for job in todo {
            match job {
                Job::Drain(done) => drains.push(done),
                Job::Granted(grant) if !known_grants.is_new(&grant, clock::now()) => {}
                job => {
                    under_way.spawn(here(work(job, router.clone(), handoffs.clone())));
                }
            }
        }
    }
}

/// Does one job. Returns its follow-up jobs.
async fn work(job: Job, router: Arc<Router>, handoffs: Arc<Handoffs>) -> Vec<Job> {
    match job {
        Job::Release(release) => {
            let of = &release.possession;
            let key = of.names.key();
            let span = spans::release(key, || of.id(), true, || router.address_of(key));
            release_in_background(release, &router, &handoffs).instrument(span).await
        }
        Job::Update(possession) => update(&possession, &router, &handoffs).await,
        Job::Granted(grant) => pass_on(grant, &router, &handoffs).await,
        Job::LeaveQueue(names, behind) => {
            let leaves = handoffs.waiters.leave_queue(&names, behind, &router, &handoffs.config);
            leaves.await.into_iter().map(Job::Granted).collect()
        }
        Job::Drain(_) => Vec::new(),
    }
}

/// Tells Redis of a possession, and waits for the end of a gap. Returns what is left to do.
async fn update(possession: &Arc<Possession>, router: &Router, handoffs: &Handoffs) -> Vec<Job> {
    let heard = handoffs.update_redis(router, possession).await;
    await_end_of_gap(handoffs, possession).await;
    let (names, mut jobs) = (&possession.names, Vec::new());
    // The entry of a waiter that had the lock, or that has left meanwhile, may still be there.
    if names.is_in_order() && (!heard || handoffs.waiters.gives_entry_up(names)) {
        jobs.push(Job::LeaveQueue(names.clone(), Some(possession.clone())));
    }
    let releases = {
        let holds = possession.holds.lock();
        // No call has come back. Or callers still wait for a confirmation, and a release confirms them, too.
        holds.gap_needs_release() || heard && holds.leaves_confirms()
    };
    if releases || heard && is_left_unreleased(handoffs, possession).await {
        jobs.push(Job::Release(BackgroundRelease::of_possession(possession)));
    }
    jobs
}

/// Whether no call goes on with the release that waited for the end of a hand-off: for a round trip, one that is polled has
/// the time to send it, and another one to take the lock before.
async fn is_left_unreleased(handoffs: &Handoffs, possession: &Possession) -> bool {
    let is_left = || possession.holds.lock().only_needs_release() && !possession.is_permit_taken();
    if !is_left() {
        return false;
    }
    clock::sleep(handoffs.round_trip().min(handoffs.config.command_timeout / 4)).await;
    is_left()
}

/// Releases what Redis still counts for a possession that has released it before.
pub(crate) async fn release_again(
    possession: Arc<Possession>,
    permit: Permit,
    router: &Arc<Router>,
    handoffs: &Arc<Handoffs>,
) {
    let lease = handoffs.config.watchdog_timeout;
    let mut jobs = vec![Job::Release(BackgroundRelease::new(possession, Some(permit), lease))];
    while let Some(job) = jobs.pop() {
        jobs.extend(work(job, router.clone(), handoffs.clone()).await);
    }
}
