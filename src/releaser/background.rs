//! Releases in the background, until Redis has answered or the lease has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::backoff::Backoff;
use crate::clock;
use crate::error::Error;
use crate::handoff::Handoffs;
use crate::possession::Possession;
use crate::protocol::Call;
use crate::transport::Router;

use super::send::{Answered, send_release};
use super::{BackgroundRelease, Job, hand_off_until_taken};

/// For so long a server may stand still before it executes a request that it has received.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(600);

/// A server that does not answer may stand still, and grant a first request when it goes on: then the lease begins.
struct Standstill<'a> {
    /// When the server has lost the request. `None` if there is none that it could grant.
    ends: Option<Instant>,
    is_silent: bool,
    /// Of those that there are for undos whose lease has ended.
    place: Option<SemaphorePermit<'a>>,
    places: &'a Semaphore,
}

impl<'a> Standstill<'a> {
    fn new(release: &BackgroundRelease, handoffs: &'a Handoffs, now: Instant) -> Self {
        let ends = release.is_first.then_some(now + LONGEST_STANDSTILL);
        Self { ends, is_silent: false, place: None, places: &handoffs.standstills }
    }

    /// Whether it may last on. Not if the client was dropped, or if there are too many undos.
    fn may_last(&mut self, now: Instant) -> bool {
        if self.place.is_none() {
            self.place = self.places.try_acquire().ok();
        }
        let has_place = self.place.is_some() && !self.places.is_closed();
        has_place && self.is_silent && self.ends.is_some_and(|ends| now < ends)
    }
}

pub(super) async fn release_in_background(
    mut release: BackgroundRelease,
    router: &Router,
    handoffs: &Handoffs,
) -> Vec<Job> {
    let (possession, config) = (&release.possession, &handoffs.config);
    let mut permit = Some(match release.permit.take() {
        Some(permit) => permit,
        None => possession.permit().await,
    });
    // The undo of a request that may still be on its way goes behind it, on its connection.
    let settled = release.connection.is_none() && !release.unanswered;
    let mut jobs = Vec::new();
    let then = |job| jobs.push(job);
    if settled && hand_off_until_taken(handoffs, possession, permit.as_ref(), None, then) {
        return jobs;
    }
    let now = clock::now();
    // The holder before a hand-off may have had a longer one.
    let lease = release.lease.max(possession.holds.lock().longest_lease(now));
    let lease_ends = now + config.command_timeout + lease;
    let mut standstill = Standstill::new(&release, handoffs, now);
    let mut backoff = Backoff::in_background();
    loop {
        let now = clock::now();
        let pending = possession.holds.lock().pending(now, config.watchdog_timeout).is_some();
        if !pending && !release.unanswered {
            possession.holds.lock().nothing_is_pending();
            return jobs;
        }
        if now >= lease_ends && !standstill.may_last(now) {
            if pending {
                tracing::debug!(name = %possession.names.key(), owner = %possession.id(),
                    "a release could not be confirmed within its lease");
            }
            let gap = possession.holds.lock().take_gap();
            possession.announce_end(gap);
            // Nothing goes behind the last try, which may be under way.
            if let Some(connection) = release.connection.take() {
                router.drop_connection(&connection);
            }
            return jobs;
        }
        let mut call = Call::new(router, now + config.command_timeout);
        call.connection = release.connection.take();
        let answer = if pending {
            let released = release_once(&mut call, possession, handoffs, now).await;
            released.map(|answered| jobs.extend(answered.jobs(possession)))
        } else {
            // Whatever the reply says, it comes behind the commands.
            let inspected = call.inspect(&possession.names, &possession.id()).await.map(drop);
            inspected.or_else(|error| if error.is_reply() { Ok(()) } else { Err(error) })
        };
        let Err(error) = answer else {
            release.unanswered = false;
            continue;
        };
        standstill.is_silent = !error.is_reply();
        // The next try goes behind this one, which may be under way.
        release.connection = call.connection.take();
        if clock::now() >= lease_ends {
            // The next call of the handle may send the release.
            permit = None;
        }
        clock::sleep(backoff.next()).await;
        if permit.is_none() {
            permit = Some(possession.permit().await);
        }
    }
}

/// Tries once to release in the background, and logs what came of it.
async fn release_once(
    call: &mut Call<'_>,
    possession: &Arc<Possession>,
    handoffs: &Handoffs,
    now: Instant,
) -> Result<Answered, Error> {
    let released = send_release(call, possession, handoffs, now).await;
    match &released {
        Ok(_) => tracing::debug!(name = %possession.names.key(), owner = %possession.id(),
            "released in the background"),
        Err(error) => {
            handoffs.events.release_failed(
                error,
                (possession.names.key(), &possession.id()),
                clock::now(),
            );
        }
    }
    released
}
