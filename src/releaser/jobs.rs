//! What the client's thread does in the background, one task for each job.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
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
    let mut under_way = UnderWay::new(router, handoffs);
    let mut open = true;
    let mut begun = 0_u32;
    while open || !under_way.tasks.is_empty() {
        begun = begun.wrapping_add(1);
        if begun.is_multiple_of(JOBS_BEFORE_YIELD) {
            tokio::task::yield_now().await;
            // While jobs come all the time, tasks that have ended would keep their memory. The last one is joined below,
            // behind the jobs that are there: with it the loop may be over.
            while under_way.tasks.len() > 1
                && let Some(ended) = under_way.tasks.try_join_next()
            {
                under_way.follow_up(ended);
            }
        }
        under_way.answer_drains();
        tokio::select! {
            // A grant comes first: until it is passed on, the lock is idle. New jobs come before completions, and all that
            // are there before a drain is answered.
            biased;
            Some(grant) = grants.recv() => under_way.begin(Job::Granted(grant)),
            job = jobs.recv(), if open => match job {
                Some(job) => under_way.begin(job),
                None => {
                    open = false;
                    handoffs.standstills.close();
                }
            },
            Some(ended) = under_way.tasks.join_next() => under_way.follow_up(ended),
        }
    }
}

/// The jobs that have begun.
struct UnderWay<'a> {
    tasks: JoinSet<Vec<Job>>,
    drains: Vec<oneshot::Sender<()>>,
    known_grants: KnownGrants,
    router: &'a Arc<Router>,
    handoffs: &'a Arc<Handoffs>,
}

impl<'a> UnderWay<'a> {
    fn new(router: &'a Arc<Router>, handoffs: &'a Arc<Handoffs>) -> Self {
        let (tasks, known_grants) = (JoinSet::new(), KnownGrants::default());
        Self { tasks, drains: Vec::new(), known_grants, router, handoffs }
    }

    fn begin(&mut self, job: Job) {
        match job {
            Job::Drain(done) => self.drains.push(done),
            Job::Granted(grant) if !self.known_grants.is_new(&grant, clock::now()) => {}
            job => {
                let (router, handoffs) = (self.router.clone(), self.handoffs.clone());
                self.tasks.spawn(here(work(job, router, handoffs)));
            }
        }
    }

    /// A job has ended. Its follow-up jobs run beside the others: one may have to wait for another.
    fn follow_up(&mut self, ended: Result<Vec<Job>, JoinError>) {
        joined(ended).unwrap_or_default().into_iter().for_each(|job| self.begin(job));
    }

    fn answer_drains(&mut self) {
        if self.tasks.is_empty() {
            for done in self.drains.drain(..) {
                let _ = done.send(());
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
