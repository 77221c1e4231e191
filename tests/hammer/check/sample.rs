//! Hand-written histories for the trials of the rules. Times are in milliseconds.

use crate::history::{Client, Forced, Loss, Process, Release};
use crate::prelude::*;

pub(crate) const KEY: u16 = 4;
const UUID: u128 = 0xabc;

/// A process whose clients' UUIDs follow from its number.
pub(crate) fn history(acquires: Vec<Acquire>) -> History {
    let processes = (0..4)
        .map(|number| Process { clients: vec![Client::new(UUID + number)], ..Process::default() });
    let mut history = History { processes: processes.collect(), acquires, ..History::default() };
    history.finish();
    history
}

/// A granted call: process `who`, held from `from` on; asked for one millisecond before.
pub(crate) fn held(who: u16, from: u64) -> Acquire {
    let mut acquire = asked(who, from - 1);
    acquire.outcome = Outcome::Granted;
    acquire.ret = from * MS;
    acquire.last_true = from * MS;
    acquire.deadline = from * MS + acquire.lease;
    acquire.deadline_high = acquire.deadline;
    acquire
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

/// Somebody deletes the key.
pub(crate) fn deleted(key: u16, t: u64) -> Fault {
    let (t0, t1, keys) = (t * MS, t * MS, key..key + 1);
    Fault { t0, t1, keys, took_effect: true, ..Fault::default() }
}

/// Somebody frees the lock.
pub(crate) fn freed(key: u16, inv: u64, ret: u64) -> Forced {
    Forced { key, inv: inv * MS, ret: ret * MS, freed: true }
}

impl Acquire {
    /// Unlocked, from then till then.
    pub(crate) fn until(mut self, inv: u64, ret: u64) -> Self {
        let outcome = Outcome::Done;
        self.release = Some(Release { how: How::Unlock, inv: inv * MS, ret: ret * MS, outcome });
        self
    }

    /// Its release was told that.
    pub(crate) fn told(mut self, outcome: Outcome) -> Self {
        self.release.as_mut().expect("a release").outcome = outcome;
        self
    }

    pub(crate) fn with_token(mut self, token: u64) -> Self {
        self.token = Some(token);
        self
    }

    pub(crate) fn lost_at(mut self, t: u64) -> Self {
        self.loss = Some(Loss { t: t * MS, noticed: true });
        self
    }

    pub(crate) fn ended(mut self, outcome: Outcome, ret: u64) -> Self {
        self.outcome = outcome;
        self.ret = ret * MS;
        self
    }

    pub(crate) fn renewed_by_a_watchdog(mut self) -> Self {
        self.watched = true;
        self
    }
}
