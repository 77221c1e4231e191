//! Hand-written histories for the trials of the rules. Times are in milliseconds.

use crate::history::{Client, Forced, Loss, Process, Release};
use crate::prelude::*;

pub(crate) const KEY: u16 = 4;
const UUID: u128 = 0xabc;

/// Of processes whose clients' UUIDs follow from their numbers.
pub(crate) fn history(acquires: impl Into<Vec<Acquire>>) -> History {
    let processes = (0..4)
        .map(|number| Process { clients: vec![Client::new(UUID + number)], ..Process::default() });
    let (processes, acquires) = (processes.collect(), acquires.into());
    History { processes, acquires, ..History::default() }.with(|_| {})
}

/// A granted call: process `who`, held from `from` on; asked for one millisecond before.
pub(crate) fn held(who: u16, from: u64) -> Acquire {
    let granted = asked(who, from - 1).ended(Outcome::Granted, from).believed_until(from);
    granted.valid_until(from + 1000)
}

/// A call that has not returned, for a lease of a second.
pub(crate) fn asked(who: u16, inv: u64) -> Acquire {
    Acquire {
        id: (who, u32::try_from(inv).expect("small times")),
        key: KEY,
        handle: (who, 1),
        owner: (UUID + u128::from(who), 1),
        inv: inv * MS,
        began: inv * MS,
        ret: NEVER,
        wait: NEVER,
        lease: 1000 * MS,
        ..Acquire::default()
    }
}

/// What the server has of that call then.
pub(crate) fn seen(of: &Acquire, t: u64, count: u64) -> Sample {
    let Acquire { key, owner, .. } = *of;
    Sample { t0: t * MS, t1: t * MS + 1, key, owner, count, pttl: 500 }
}

/// Nothing but its times.
pub(crate) fn fault(t0: u64, t1: u64) -> Fault {
    Fault { t0: t0 * MS, t1: t1 * MS, ..Fault::default() }
}

/// Somebody deletes the key.
pub(crate) fn deleted(key: u16, t: u64) -> Fault {
    Fault { keys: key..key + 1, took_effect: true, ..fault(t, t) }
}

impl History {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.finish();
        self
    }

    pub(crate) fn fault(self, faults: impl IntoIterator<Item = Fault>) -> Self {
        self.with(|history| history.faults.extend(faults))
    }

    /// Somebody frees the lock, from then till then.
    pub(crate) fn freed(self, key: u16, times: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let forced = |(inv, ret)| Forced { key, inv: inv * MS, ret: ret * MS, freed: true };
        self.with(|history| history.forced.extend(times.into_iter().map(forced)))
    }

    pub(crate) fn sampled(self, samples: impl Into<Vec<Sample>>) -> Self {
        self.with(|history| history.samples = samples.into())
    }

    /// Process 0 was killed.
    pub(crate) fn killed(self, t: u64) -> Self {
        self.with(|history| history.processes[0].killed = Some(t * MS))
    }

    /// Its clock was set forward.
    pub(crate) fn jumped(self, t: u64) -> Self {
        self.with(|history| history.processes[0].jumps.push(t * MS))
    }

    /// It was not run.
    pub(crate) fn paused(self, times: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let gaps = times.into_iter().map(|(from, to)| (from * MS, to * MS));
        self.with(|history| history.processes[0].gaps.extend(gaps))
    }

    /// Its client was closed.
    pub(crate) fn closed_at(self, closing: u64, closed: u64) -> Self {
        self.with(|history| {
            let client = &mut history.processes[0].clients[0];
            (client.closing, client.closed) = (closing * MS, closed * MS);
        })
    }
}

impl Acquire {
    pub(crate) fn asked_at(self, t: u64) -> Self {
        Self { inv: t * MS, ..self }
    }

    pub(crate) fn of(self, key: u16) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn by_handle(self, handle: u32) -> Self {
        Self { handle: (self.handle.0, handle), ..self }
    }

    pub(crate) fn by_owner(self, number: u32) -> Self {
        Self { owner: (self.owner.0, number), ..self }
    }

    pub(crate) fn with_lease(self, lease: u64) -> Self {
        Self { lease: lease * MS, ..self }
    }

    pub(crate) fn with_token(self, token: u64) -> Self {
        Self { token: Some(token), ..self }
    }

    pub(crate) fn renewed_by_a_watchdog(self) -> Self {
        Self { watched: true, ..self }
    }

    pub(crate) fn reading(self) -> Self {
        Self { reads: true, ..self }
    }

    pub(crate) fn valid_until(self, t: u64) -> Self {
        Self { deadline: t * MS, deadline_high: t * MS, ..self }
    }

    pub(crate) fn believed_until(self, t: u64) -> Self {
        Self { last_true: t * MS, ..self }
    }

    pub(crate) fn lost_at(self, t: u64) -> Self {
        Self { loss: Some(Loss { t: t * MS, noticed: true }), ..self }
    }

    pub(crate) fn ended(self, outcome: Outcome, ret: u64) -> Self {
        Self { outcome, ret: ret * MS, ..self }
    }

    /// Unlocked, from then till then.
    pub(crate) fn until(self, inv: u64, ret: u64) -> Self {
        let (how, outcome) = (How::Unlock, Outcome::Done);
        let release = Release { how, inv: inv * MS, ret: ret * MS, outcome };
        Self { release: Some(release), ..self }
    }

    /// Its release was told that.
    pub(crate) fn told(self, outcome: Outcome) -> Self {
        Self { release: self.release.map(|release| Release { outcome, ..release }), ..self }
    }
}
