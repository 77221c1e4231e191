//! The turns that clients take at a plain lock: when this client defers to others, and for how long. (The turn at a fair
//! lock is given by `give_turn` in `lua/fair.lua`.)
//!
//! 1. A client that has kept a lock from others for a while *defers* when it frees it: it asks
//!    again when each of the others has had the lock, or when none comes.
//! 2. How long others take to come depends on how far away and how busy they are. So this client
//!    learns which *yield time* they need. It starts from twice what a request of this client takes,
//!    is at least what its own message took, and doubles while one of them misses its turn.
//! 3. After a missed turn, this client keeps the lock for longer before it defers again, up to five
//!    times the yield time after several. Until then it counts on as many as came the last time: a
//!    client that listens need not want the lock.
//!
//! This client counts others by their subscriptions, and those that came by the messages of their releases.
//! The first message after a release of this client is its own, if it listens itself.

use std::time::{Duration, Instant};

/// The shortest yield time: the time that a process may take to be scheduled.
const MIN_YIELD_TIME: Duration = Duration::from_millis(2);

/// After this many deferrals in a row with a missed turn, others count as farther away than before.
const MISSES_BEFORE_DOUBLING: u32 = 3;

/// After missed turns, this client keeps the lock for at most this many yield times.
const MAX_YIELD_TIMES_KEPT: u32 = 5;

/// After missed turns, this client keeps the lock for at most this many yield times while a longer yield time may help,
/// because others wait meanwhile.
const MAX_YIELD_TIMES_KEPT_WHILE_LEARNING: u32 = 3;

/// After this time without a request for a lock, the client forgets what it knows of its turns.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// How long this client may keep a lock from others, and the longest yield time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnLimits {
    pub(crate) keep: Duration,
    pub(crate) yield_time: Duration,
}

/// What the turns at one lock tell about those at another.
#[derive(Debug)]
pub(super) struct TurnTimes {
    /// The yield time that others have needed, for any lock.
    needed: Duration,
    /// What a request of this client takes.
    round_trip: Duration,
}

/// What this client knows of the turns at one lock. There is one for each lock for which others have
/// been seen to wait.
#[derive(Debug)]
pub(super) struct Turn {
    /// Since when this client has kept the lock from others.
    since: Instant,
    /// Another client has had the lock since then.
    was_elsewhere: bool,
    deferral: Option<Deferral>,
    /// How many other clients listen, and the most that have listened.
    others: u32,
    most: u32,
    /// How many of the others came to take the lock the last time.
    came: u32,
    yield_time: Duration,
    /// The others have come within the yield time.
    is_known: bool,
    /// In how many deferrals in a row one of the others did not come.
    missed: u32,
    /// Before that instant, this client gives a turn only to as many others as came the last time.
    all_from: Instant,
    used: Instant,
}

/// This client leaves the lock to `give` others.
#[derive(Debug)]
struct Deferral {
    give: u32,
    /// Whether `give` is all of the others.
    all: bool,
    came: u32,
    /// The message of this client's own release has not come yet.
    awaits_own_message: bool,
    /// This client has not been subscribed all the time, so it cannot say whose messages come, or how many others came:
    /// the deferral ends at its time.
    is_deaf: bool,
    /// Since when the client whose turn it is could come, and until when it can.
    from: Instant,
    until: Instant,
    /// The longest time that one of the others took, as far as is known: its hold included.
    took: Duration,
}

impl Default for TurnTimes {
    fn default() -> Self {
        Self { needed: MIN_YIELD_TIME, round_trip: Duration::ZERO }
    }
}

impl TurnTimes {
    /// Redis answered a request of this client after `took`. One that waited for a connection, say,
    /// took longer than a request does, so one answer changes the average only so far.
    pub(super) fn record_answer(&mut self, took: Duration) {
        let before = self.round_trip;
        self.round_trip = match before {
            Duration::ZERO => took,
            _ => (3 * before + took.min(8 * before.max(MIN_YIELD_TIME))) / 4,
        };
    }
}

impl Turn {
    pub(super) fn new(times: &TurnTimes, now: Instant) -> Self {
        Self {
            since: now,
            was_elsewhere: false,
            deferral: None,
            others: 0,
            most: 0,
            came: 0,
            yield_time: times.needed,
            is_known: false,
            missed: 0,
            all_from: now,
            used: now,
        }
    }

    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now >= self.used + FORGET_AFTER
    }

    pub(super) fn defers(&self) -> bool {
        self.deferral.is_some()
    }

    pub(super) fn deferred_until(&self, now: Instant) -> Option<Instant> {
        self.deferral.as_ref()?.lasts_until(now)
    }

    /// This client is about to free the lock. `counted` says that a hand-off has just counted those who
    /// wait, at the end of its streak. Returns until when this client defers.
    pub(super) fn begin_deferral(
        &mut self,
        counted: bool,
        hears_itself: bool,
        times: &TurnTimes,
        limits: TurnLimits,
        now: Instant,
    ) -> Option<Instant> {
        let over = counted || now.saturating_duration_since(self.since) >= limits.keep;
        let give = if now >= self.all_from { self.others } else { self.others.min(self.came) };
        if !over || give == 0 {
            return None;
        }
        // Others are hardly closer to Redis. In whole milliseconds, as timers count them.
        let reach = (2 * times.round_trip).as_micros().div_ceil(1_000);
        let reach = Duration::from_millis(reach as u64);
        self.yield_time = self.yield_time.max(reach).min(limits.yield_time);
        let until = now + self.yield_time;
        self.deferral = Some(Deferral {
            give,
            all: give == self.others,
            came: 0,
            awaits_own_message: hears_itself,
            is_deaf: false,
            from: now,
            until,
            took: Duration::ZERO,
        });
        Some(until)
    }

    /// That many other clients listen now: a release or a hand-off has counted them.
    pub(super) fn record_others(&mut self, others: u32, now: Instant) {
        self.used = now;
        self.others = others;
        if others > self.most {
            // A new client may be farther away than the others.
            (self.most, self.is_known, self.all_from) = (others, false, now);
        }
    }

    /// A message came. Returns until when this client defers, if it does.
    pub(super) fn record_message(&mut self, limits: TurnLimits, now: Instant) -> Option<Instant> {
        let deferral = self.deferral.as_mut()?;
        if !deferral.is_deaf {
            let took = now.saturating_duration_since(deferral.from);
            if std::mem::take(&mut deferral.awaits_own_message) {
                // Others hear of it no sooner: with a shorter time this client would ask before they can.
                self.yield_time = self.yield_time.max(took).min(limits.yield_time);
            } else {
                deferral.came += 1;
                deferral.took = deferral.took.max(took);
            }
            deferral.from = now;
            let gives = deferral.came < deferral.give;
            deferral.until = if gives { now + self.yield_time } else { now };
        }
        deferral.lasts_until(now)
    }

    /// Redis refused this client, so another one has the lock.
    pub(super) fn record_refusal(&mut self) {
        self.was_elsewhere = true;
    }

    pub(super) fn record_grant(&mut self, times: &mut TurnTimes, limits: TurnLimits, now: Instant) {
        self.used = now;
        let was_elsewhere = std::mem::take(&mut self.was_elsewhere);
        match self.deferral.take() {
            Some(deferral) => {
                self.since = now;
                // One that has not heard everything has nothing to teach.
                if !deferral.is_deaf
                    && let Some(needed) = self.learn(&deferral, was_elsewhere, limits, now)
                {
                    times.needed = needed;
                }
            }
            None if was_elsewhere => self.since = now,
            None => {}
        }
    }

    /// This client is subscribed no more, and messages of before may still be on their way.
    pub(super) fn record_unsubscribed(&mut self) {
        if let Some(deferral) = &mut self.deferral {
            deferral.is_deaf = true;
        }
    }

    /// Ends a deferral: what it counts on is outdated.
    pub(super) fn end_deferral(&mut self) {
        self.deferral = None;
    }

    /// Returns the yield time in which all others came, if they did.
    fn learn(
        &mut self,
        deferral: &Deferral,
        was_elsewhere: bool,
        limits: TurnLimits,
        now: Instant,
    ) -> Option<Duration> {
        // A refusal shows that another client came, even if its release was not published.
        let came = deferral.came.max(u32::from(was_elsewhere));
        if came < deferral.give {
            if now < deferral.until {
                // A caller of this client did not wait for its turn.
                return None;
            }
            self.came = came;
            self.missed += 1;
            let missed = self.missed - u32::from(self.is_known);
            let longer_may_help = self.yield_time < limits.yield_time;
            let most = if longer_may_help {
                MAX_YIELD_TIMES_KEPT_WHILE_LEARNING
            } else {
                MAX_YIELD_TIMES_KEPT
            };
            self.all_from = now + missed.min(most) * self.yield_time;
            if !self.is_known || self.missed >= MISSES_BEFORE_DOUBLING {
                self.is_known = false;
                self.yield_time = (2 * self.yield_time).min(limits.yield_time);
            }
            return None;
        }
        self.came = came;
        if !deferral.all {
            return None;
        }
        (self.is_known, self.missed) = (true, 0);
        if deferral.came > 0 && 2 * deferral.took < self.yield_time {
            self.yield_time = (2 * deferral.took).max(MIN_YIELD_TIME);
        }
        Some(self.yield_time)
    }
}

impl Deferral {
    fn lasts_until(&self, now: Instant) -> Option<Instant> {
        (self.until > now).then_some(self.until)
    }
}

#[cfg(test)]
mod tests;
