//! Releases in the background, until Redis has answered or the lease has ended: see [`Standstill`] for the exception.

use std::sync::Arc;
use std::time::Instant;

use crate::backoff::Backoff;
use crate::clock;
use crate::config::Config;
use crate::error::Error;
use crate::handoff::Handoffs;
use crate::possession::Possession;
use crate::protocol::Call;
use crate::transport::{Connection, Router};

use super::send::{Answered, send_release};
use super::standstill::Standstill;
use super::{BackgroundRelease, Job, hand_off_until_taken};

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
        let Some(pending) = what_is_left(&release, config, now) else { return jobs };
        let is_over = now >= lease_ends && !stands_beside_readers(possession, handoffs, now);
        if is_over && !standstill.may_last(now) {
            give_up(possession, release.connection.take(), router, pending);
            return jobs;
        }
        let mut call = Call::new(router, now + config.command_timeout);
        call.connection = release.connection.take();
        let answer = if pending {
            let released = release_once(&mut call, possession, handoffs, now).await;
            released.map(|answered| jobs.extend(answered.jobs(possession)))
        } else {
            answers_behind(&mut call, possession).await
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

/// Whether a release is pending, or only an answer is awaited; `None` if nothing is left to do.
fn what_is_left(release: &BackgroundRelease, config: &Config, now: Instant) -> Option<bool> {
    // All under one mutex: the last reader may be given back meanwhile.
    let mut holds = release.possession.holds.lock();
    let pending = holds.pending(now, config.watchdog_timeout).is_some();
    if !pending && !release.unanswered {
        holds.nothing_is_pending();
        return None;
    }
    Some(pending)
}

/// Waits for an answer that comes behind commands of which none came: whatever it says.
async fn answers_behind(call: &mut Call<'_>, possession: &Possession) -> Result<(), Error> {
    let inspected = call.inspect(&possession.names, &possession.id()).await.map(drop);
    inspected.or_else(|error| if error.is_reply() { Ok(()) } else { Err(error) })
}

/// Whether Redis may still have that writer though its own lease has ended: it has it for as long as the readers of the same
/// handle keep the lock.
fn stands_beside_readers(possession: &Possession, handoffs: &Handoffs, now: Instant) -> bool {
    let readers = possession.holds.lock().readers();
    let kept_until = readers.and_then(|readers| handoffs.possessions.kept_until(&readers));
    kept_until.is_some_and(|until| now < until + handoffs.config.command_timeout)
}

/// Nothing goes behind the last try, which may be under way on that connection.
fn give_up(
    possession: &Possession,
    connection: Option<Connection>,
    router: &Router,
    pending: bool,
) {
    if pending {
        tracing::debug!(name = %possession.names.key(), owner = %possession.id(),
            "a release could not be confirmed within its lease");
    }
    possession.gives_up(pending);
    if let Some(connection) = connection {
        router.drop_connection(&connection);
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
