//! The turns between clients: when this client defers to others, and for how long.
//!
//! 1. A client that has kept a lock from others for a while *defers* when it frees it: it asks
//!    again when each of the others has had the lock, or when none comes.
//! 2. How long others take to come depends on how far away and how busy they are. So this client
//!    learns how much time, called *room*, they need. The room starts from twice what this client
//!    takes itself, is at least what its own message took, and doubles while one does not come.
//! 3. After room was given in vain, this client keeps the lock for longer before it gives room
//!    again, up to five times the room if it was in vain repeatedly. Until then it counts on as
//!    many as came the last time: a client that listens need not want the lock.
//!
//! Others are counted by their subscriptions, and those who came by the messages of their releases.
//! The first message after a release of this client is its own, if it listens itself.

use std::time::{Duration, Instant};

use crate::host::HashMap;

/// The least room for others: the time that a process may take to be scheduled.
const LEAST: Duration = Duration::from_millis(2);

/// After so many deferrals in vain in a row, others count as farther away than before.
const VAIN: u32 = 3;

/// After room in vain, this client keeps the lock for at most so many times the room.
const KEPT: u32 = 5;

/// The same while more room may help, because others wait meanwhile.
const LEARNING: u32 = 3;

/// After so long without a request for a lock, this client forgets what it knows of it.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// How long this client may keep a lock from others, and the most room that it gives them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) run: Duration,
    pub(crate) room: Duration,
    /// How long a call that has its turn at a fair lock may take to come.
    pub(crate) grace: Duration,
}

/// The locks of this client for which others have been seen to wait.
pub(super) struct Turns {
    locks: HashMap<Box<str>, Turn>,
    /// The room that others have needed, for any lock.
    needed: Duration,
    /// What a request of this client takes.
    round_trip: Duration,
    purge_at: usize,
}

/// What this client knows of one lock.
struct Turn {
    /// Since when this client has kept the lock from others.
    since: Instant,
    /// Another client has had it since.
    lost: bool,
    deferral: Option<Deferral>,
    /// How many others listen, and the most there have been.
    others: u32,
    most: u32,
    /// How many of them came the last time.
    came: u32,
    /// How much time they are given to come.
    room: Duration,
    /// They have come within that time.
    known: bool,
    /// How often in a row one of them did not come.
    vain: u32,
    /// Before that instant, only as many get a turn as came the last time.
    all_from: Instant,
    used: Instant,
}

/// This client leaves the lock to `give` others.
struct Deferral {
    give: u32,
    /// Whether that is all of them.
    all: bool,
    came: u32,
    /// The message of this client's own release has not come yet.
    own_to_come: bool,
    /// It has not been subscribed all the time, so it cannot say whose messages come, or how many came:
    /// it ends at its time.
    is_deaf: bool,
    /// Since when the client whose turn it is could come, and until when it can.
    from: Instant,
    until: Instant,
    /// The longest that one of them took, as far as is known: its hold included.
    took: Duration,
}

impl Default for Turns {
    fn default() -> Self {
        let round_trip = Duration::ZERO;
        Self { locks: HashMap::default(), needed: LEAST, round_trip, purge_at: 64 }
    }
}

impl Turns {
    /// Redis answered a request of this client after `took`. One that waited for a connection, say,
    /// took longer than a request does, so one answer changes the average only so far.
    pub(super) fn answered(&mut self, took: Duration) {
        let before = self.round_trip;
        self.round_trip = match before {
            Duration::ZERO => took,
            _ => (3 * before + took.min(8 * before.max(LEAST))) / 4,
        };
    }

    pub(super) fn deferred_until(&self, key: &str, now: Instant) -> Option<Instant> {
        let deferral = self.locks.get(key)?.deferral.as_ref()?;
        (deferral.until > now).then_some(deferral.until)
    }

    /// This client is about to free the lock. `others` is how many clients a hand-off saw waiting;
    /// without it, the last release counts. Returns until when this client defers.
    pub(super) fn ends(
        &mut self,
        key: &str,
        others: Option<u32>,
        hears_itself: bool,
        limits: Limits,
        now: Instant,
    ) -> Option<Instant> {
        if let Some(others) = others.filter(|others| *others > 0) {
            self.note(key, others, now);
        }
        // Others are hardly closer to Redis. In whole milliseconds, as timers count them.
        let reach = (2 * self.round_trip).as_micros().div_ceil(1_000);
        let reach = Duration::from_millis(reach as u64);
        let turn = self.locks.get_mut(key)?;
        // A hand-off has measured its own streak.
        let over = others.is_some() || now.saturating_duration_since(turn.since) >= limits.run;
        let give = if now >= turn.all_from { turn.others } else { turn.others.min(turn.came) };
        if !over || give == 0 {
            return None;
        }
        turn.room = turn.room.max(reach).min(limits.room);
        let until = now + turn.room;
        turn.deferral = Some(Deferral {
            give,
            all: give == turn.others,
            came: 0,
            own_to_come: hears_itself,
            is_deaf: false,
            from: now,
            until,
            took: Duration::ZERO,
        });
        Some(until)
    }

    /// The lock was freed, and `others` other clients received the message. True if that ends a
    /// deferral.
    pub(super) fn freed(&mut self, key: &str, others: u32, now: Instant) -> bool {
        if others == 0 {
            return self.locks.remove(key).is_some_and(|turn| turn.deferral.is_some());
        }
        self.note(key, others, now);
        false
    }

    fn note(&mut self, key: &str, others: u32, now: Instant) {
        if !self.locks.contains_key(key) {
            if self.locks.len() >= self.purge_at {
                self.locks.retain(|_, turn| now < turn.used + FORGOTTEN);
                self.purge_at = (2 * self.locks.len()).max(64);
            }
            self.locks.insert(key.into(), Turn::new(self.needed, now));
        }
        let turn = self.locks.get_mut(key).expect("BUG: it was just there");
        turn.used = now;
        turn.others = others;
        if others > turn.most {
            // A new client may be farther away than the others.
            (turn.most, turn.known, turn.all_from) = (others, false, now);
        }
    }

    /// A message came. Returns until when this client defers, if it does.
    pub(super) fn message(&mut self, key: &str, limits: Limits, now: Instant) -> Option<Instant> {
        let turn = self.locks.get_mut(key)?;
        let deferral = turn.deferral.as_mut()?;
        if deferral.is_deaf {
            return (deferral.until > now).then_some(deferral.until);
        }
        let took = now.saturating_duration_since(deferral.from);
        if std::mem::take(&mut deferral.own_to_come) {
            // Others hear of it no sooner: with less room this client would ask before they can.
            turn.room = turn.room.max(took).min(limits.room);
        } else {
            deferral.came += 1;
            deferral.took = deferral.took.max(took);
        }
        deferral.from = now;
        deferral.until = if deferral.came < deferral.give { now + turn.room } else { now };
        (deferral.until > now).then_some(deferral.until)
    }

    pub(super) fn refused(&mut self, key: &str) {
        if let Some(turn) = self.locks.get_mut(key) {
            turn.lost = true;
        }
    }

    pub(super) fn granted(&mut self, key: &str, limits: Limits, now: Instant) {
        let Some(turn) = self.locks.get_mut(key) else { return };
        turn.used = now;
        let lost = std::mem::take(&mut turn.lost);
        match turn.deferral.take() {
            Some(deferral) => {
                turn.since = now;
                // One that has not heard everything has nothing to teach.
                if !deferral.is_deaf
                    && let Some(needed) = turn.learn(&deferral, lost, limits, now)
                {
                    self.needed = needed;
                }
            }
            None if lost => turn.since = now,
            None => {}
        }
    }

    /// This client is subscribed no more, and messages of before may still be on their way.
    pub(super) fn hears_no_more(&mut self, key: &str) {
        if let Some(deferral) = self.locks.get_mut(key).and_then(|turn| turn.deferral.as_mut()) {
            deferral.is_deaf = true;
        }
    }

    /// Ends a deferral: what it counts on is outdated.
    pub(super) fn forget(&mut self, key: &str) {
        if let Some(turn) = self.locks.get_mut(key) {
            turn.deferral = None;
        }
    }
}

impl Turn {
    fn new(room: Duration, now: Instant) -> Self {
        Self {
            since: now,
            lost: false,
            deferral: None,
            others: 0,
            most: 0,
            came: 0,
            room,
            known: false,
            vain: 0,
            all_from: now,
            used: now,
        }
    }

    /// Returns the room in which all others came, if they did.
    fn learn(
        &mut self,
        deferral: &Deferral,
        lost: bool,
        limits: Limits,
        now: Instant,
    ) -> Option<Duration> {
        // A refusal shows that another client came, even if its release was not published.
        let came = deferral.came.max(u32::from(lost));
        if came < deferral.give {
            if now < deferral.until {
                // A caller of this client did not wait for its turn.
                return None;
            }
            self.came = came;
            self.vain += 1;
            let vain = self.vain - u32::from(self.known);
            let most = if self.room < limits.room { LEARNING } else { KEPT };
            self.all_from = now + vain.min(most) * self.room;
            if !self.known || self.vain >= VAIN {
                self.known = false;
                self.room = (2 * self.room).min(limits.room);
            }
            return None;
        }
        self.came = came;
        if !deferral.all {
            return None;
        }
        (self.known, self.vain) = (true, 0);
        if deferral.came > 0 && 2 * deferral.took < self.room {
            self.room = (2 * deferral.took).max(LEAST);
        }
        Some(self.room)
    }
}

#[cfg(test)]
mod tests;
