//! What the client says of itself: each method is one event, and logs it. All that the client logs above debug is
//! here.
//!
//! A module that has something to say calls [`Events`], which knows no other part of the client. [`limit`] and
//! [`outage`] decide which events are worth a warning. The others come here, too: so this is the place for
//! whatever counts events, or passes them on to the user.

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Loss};
use crate::kind::Kind;
use crate::metrics::{Metrics, Series, Warning};

mod counters;
mod limit;
mod outage;
pub(crate) use counters::Acquires;
use counters::{Attempt, Counters};
use limit::{Repeats, WarningLimit};
use outage::{Line, Outages, Summary};

/// The key of a lock, and an owner.
type Of<'a> = (&'a str, &'a str);

/// The events of one client.
#[derive(Default)]
pub(crate) struct Events {
    losses: WarningLimit,
    long_waits: WarningLimit,
    long_holds: WarningLimit,
    shared_handles: WarningLimit,
    missed_releases: WarningLimit,
    refusals: Repeats,
    unknown_slots: Repeats,
    outages: Outages,
    held: Option<CountHeld>,
    pub(crate) counters: Counters,
    pub(crate) metrics: Metrics,
}

/// How many locks the client holds, of those whose keys the argument accepts.
pub(crate) type CountHeld = Box<dyn Fn(&dyn Fn(&str) -> bool) -> usize + Send + Sync>;

/// The holder of a lock for which a call waits long, as far as the client knows.
#[derive(Default)]
pub(crate) struct Holder {
    pub(crate) owner: Option<Box<str>>,
    pub(crate) remaining_lease: Option<Duration>,
    /// Where its client is, if that is another one.
    pub(crate) label: Option<Box<str>>,
    pub(crate) host: Option<Box<str>>,
    pub(crate) pid: Option<u32>,
    /// [`NESTED_IN_TASK`], [`NESTED_IN_CLIENT`] or nothing.
    pub(crate) advice: &'static str,
}

pub(crate) const NESTED_IN_TASK: &str =
    "; this task holds it by another handle: a nested call needs the same handle";

pub(crate) const NESTED_IN_CLIENT: &str = "; this client holds it by another handle: a call that is nested \
    in that hold needs the same handle";

/// Logs a warning if the event is worth one, else the same at debug.
macro_rules! log {
    ($is_worth_one:expr => $($said:tt)*) => {
        if $is_worth_one { tracing::warn!($($said)*) } else { tracing::debug!($($said)*) }
    };
}

/// A request failed, and the client sends it again. An outage has warnings of its own; a refusal is worth one,
/// unless another one had a warning shortly before.
macro_rules! log_failure {
    ($events:expr, $error:expr, $now:expr => $($said:tt)*) => {
        let refused = $error.kind() != ErrorKind::Unavailable;
        let failed_attempts = refused.then(|| $events.refusals.admit($now)).flatten();
        let error = format_args!("{:#}", $error);
        log!(failed_attempts.is_some() => error, failed_attempts, $($said)*);
    };
}

impl Events {
    pub(crate) fn new(held: CountHeld, metrics: Metrics) -> Self {
        Self { held: Some(held), metrics, ..Self::default() }
    }

    /// Where a lock of that name and kind counts.
    pub(crate) fn series_of(&self, name: &str, kind: Kind) -> Series {
        let (series, trouble) = self.metrics.series_of(name, kind);
        if let Some(trouble) = trouble {
            tracing::warn!("{trouble}: the names in question count in the group `other`");
        }
        series
    }

    /// A call that acquires begins, of such a lock; `None` is several at once. It does not hand its future in here: a
    /// parked call would have that twice.
    pub(crate) fn attempt<'a>(&'a self, series: &'a Series, kind: Option<Kind>) -> Attempt<'a> {
        Attempt::new(&self.counters, series.attempt(kind))
    }

    /// A lock is lost. If many are, their warnings would hide the reason.
    pub(crate) fn lost(&self, (name, owner): Of<'_>, loss: Loss, how: &str, now: Instant) {
        self.counters.losses.add(1);
        let (is_worth_one, end) = self.losses.admit(now);
        log!(is_worth_one => name, owner, ?loss, "lost a lock: {loss}, {how}{end}");
    }

    /// A lock is held for longer than `max_hold`.
    pub(crate) fn held_long(&self, (name, owner): Of<'_>, remaining_lease: Duration, now: Instant) {
        self.metrics.warns(Warning::LongHold);
        let (is_worth_one, end) = self.long_holds.admit(now);
        log!(is_worth_one => name, owner, ?remaining_lease,
            "a lock is held for longer than max_hold: its lease is renewed no more{end}");
    }

    /// A call waits long for a lock. If that is worth a warning, returns the end of it, for
    /// [`warn_of_long_wait`](Self::warn_of_long_wait) when the holder is known.
    pub(crate) fn waits_long(
        &self,
        (name, owner): Of<'_>,
        waited: Duration,
        now: Instant,
    ) -> Option<&'static str> {
        self.metrics.warns(Warning::LongWait);
        let (is_worth_one, end) = self.long_waits.admit(now);
        if !is_worth_one {
            tracing::debug!(name, owner, ?waited, "a call waits long for a lock");
        }
        is_worth_one.then_some(end)
    }

    pub(crate) fn warn_of_long_wait(
        &self,
        (name, owner): Of<'_>,
        waited: Duration,
        holder: &Holder,
        end: &'static str,
    ) {
        let Holder { owner: holder, remaining_lease, label, host, pid, advice } = holder;
        if *advice == NESTED_IN_TASK {
            self.metrics.warns(Warning::WaitsForItself);
        }
        let (holder, holder_label) = (holder.as_deref(), label.as_deref());
        let (holder_host, holder_pid) = (host.as_deref(), *pid);
        let remaining_lease = remaining_lease.map(tracing::field::debug);
        tracing::warn!(
            name,
            owner,
            ?waited,
            holder,
            remaining_lease,
            holder_label,
            holder_host,
            holder_pid,
            "a call waits long for a lock{advice}{end}"
        );
    }

    /// Two tasks are inside by one handle.
    pub(crate) fn handle_shared(&self, (name, owner): Of<'_>, now: Instant) {
        self.metrics.warns(Warning::SharedHandle);
        let (is_worth_one, end) = self.shared_handles.admit(now);
        log!(is_worth_one => name, owner,
            "two tasks hold a lock at the same time, unless its guard was moved to this one: \
            a handle re-enters, and they share one; a task that has to wait for the others \
            needs a clone of it{end}");
    }

    pub(crate) fn renewal_failed(&self, error: &Error, locks: usize, now: Instant) {
        self.counters.renewals_failed.add(locks as u64);
        log_failure!(self, error, now => locks, "a renewal failed; trying again");
    }

    pub(crate) fn hand_off_failed(&self, error: &Error, name: &str, now: Instant) {
        log_failure!(self, error, now => name, "a hand-off failed; trying again");
    }

    pub(crate) fn release_failed(&self, error: &Error, (name, owner): Of<'_>, now: Instant) {
        log_failure!(self, error, now => name, owner,
            "a release in the background failed; trying again");
    }

    /// The work of a `with` is done, and the background goes on with the release.
    pub(crate) fn release_unconfirmed(&self, error: &Error, (name, owner): Of<'_>, now: Instant) {
        log_failure!(self, error, now => name, owner,
            "the release of a lock around a call is unconfirmed");
    }

    /// A server did not answer, or could not be reached. `has` says whether a key is there.
    pub(crate) fn server_failed(
        &self,
        (number, server): (usize, &str),
        error: &str,
        has: &dyn Fn(&str) -> bool,
        now: Instant,
    ) {
        tracing::debug!(server, %error, "a request or a connection failed");
        let held = || self.held.as_ref().map(|held| held(has));
        match self.outages.change(|servers| servers.record_failure(number, now)) {
            Some(Line::Begins) => tracing::warn!(server, %error, held_locks = held(),
                "Redis is unavailable: a lock that is held is lost when its lease ends, unless it \
                can be renewed before"),
            Some(Line::Lasts(Summary { lasted, failures, servers })) => {
                tracing::warn!(server, %error,
                ?lasted, failed_attempts = failures, servers, held_locks = held(),
                "Redis is still unavailable")
            }
            None => {}
        }
    }

    /// Whether some server does not answer.
    pub(crate) fn is_in_outage(&self) -> bool {
        self.outages.any.load(Ordering::Relaxed)
    }

    /// Whether that server does not answer, as far as is known.
    pub(crate) fn is_silent(&self, number: usize) -> bool {
        self.outages.change(|servers| servers.is_silent(number))
    }

    /// A server has answered a request that was sent at `sent`.
    pub(crate) fn server_answered(&self, number: usize, server: &str, sent: Instant, now: Instant) {
        let over = self.outages.change(|servers| servers.record_answer(number, sent, now));
        if let Some(Summary { lasted, failures, .. }) = over {
            tracing::warn!(server, ?lasted, failed_attempts = failures, "Redis is available again");
        }
    }

    /// A server went out of use, whether it answers or not: others serve its keys.
    pub(crate) fn server_replaced(&self, number: usize, server: &str, now: Instant) {
        let over = self.outages.change(|servers| servers.forget(number, now));
        if let Some(Summary { lasted, failures, .. }) = over {
            tracing::warn!(
                server,
                ?lasted,
                failed_attempts = failures,
                "a server that did not answer is out of use: others serve its keys"
            );
        }
    }

    /// The Sentinels named another primary.
    pub(crate) fn primary_changed(&self, primary: &str, is_first: bool) {
        if is_first {
            tracing::debug!(%primary, "the sentinels name the primary");
        } else {
            tracing::info!(%primary, "the sentinels name another primary");
        }
    }

    pub(crate) fn primary_unknown(&self, error: &dyn Display) {
        tracing::warn!(%error, "a sentinel does not name the primary");
    }

    /// No Sentinel is there, or none knows the name.
    pub(crate) fn sentinels_silent(&self, error: &dyn Display) {
        tracing::warn!(%error, "no sentinel names the primary: the client follows no failover until one does");
    }

    pub(crate) fn sentinels_heard(&self) {
        tracing::warn!("a sentinel names the primary again");
    }

    /// A Sentinel does not let this user subscribe. `is_first` if none has done so before.
    pub(crate) fn sentinel_refuses(&self, error: &dyn Display, is_first: bool) {
        log!(is_first => %error,
            "a sentinel refuses the subscription to its events: the client hears late of a failover");
    }

    /// Returns whether the log has it: not if it has said so a moment ago.
    pub(crate) fn slots_unknown(&self, error: &dyn Display, now: Instant) -> bool {
        let is_said = self.unknown_slots.admit(now).is_some();
        if is_said {
            tracing::warn!(%error, "no node of the cluster reports the slots");
        } else {
            tracing::debug!(%error, "no node of the cluster reports the slots");
        }
        is_said
    }

    pub(crate) fn cluster_replaced(&self) {
        tracing::warn!(
            "no node of the cluster serves requests any more, and another cluster has the addresses that were \
            given to the client: from now on it takes locks there"
        );
    }

    /// By this policy Redis may delete a lock that is held.
    pub(crate) fn may_evict(&self, policy: &str) {
        tracing::warn!(%policy, "Redis may evict locks when its memory is full: \
            set maxmemory-policy to noeviction");
    }

    pub(crate) fn freed_by_force(&self, name: &str) {
        tracing::warn!(%name, "a lock was freed by force");
    }

    /// A new primary counts a hold that this client has released. It may have missed all of the last moments.
    pub(crate) fn release_missed(&self, (name, owner): Of<'_>, now: Instant) {
        let (is_worth_one, end) = self.missed_releases.admit(now);
        if is_worth_one {
            tracing::info!(name, owner, "the server has missed a release: releasing again{end}");
        } else {
            tracing::debug!(name, owner, "the server has missed a release: releasing again");
        }
    }

    /// The server of the locks is in this process.
    #[cfg(feature = "test-util")]
    pub(crate) fn are_in_memory() {
        tracing::warn!("the locks of memory:// are in this process: no other process sees them");
    }

    /// `is_first` if the client has not said so of that server before.
    pub(crate) fn subscription_failed(&self, error: &Error, is_first: bool) {
        log!(is_first => error = format_args!("{error:#}"),
            "waiters rely on timers alone until a subscription works");
    }
}
