//! H17: several locks that are acquired together are held all or not at all.
//!
//! Whoever looks at the server while a guard of several locks is believed sees all of them there, under its
//! owners. While its call waits, they see all of them there or none: a call that waits holds nothing. Only
//! one that has waited for so long that it takes its locks one by one has some of them, one that gives them
//! back, and, in a cluster, for a moment one that asks for them. That nothing is left of a call that ended without them
//! is for H11, and that nobody else has one of them for H1.
//!
//! In a calm time its call does not go on waiting while all of them are free (H6).

use std::collections::{BTreeMap, BTreeSet};

use crate::check::count::Possible;
use crate::check::liveness::takes_one_by_one;
use crate::prelude::*;
use crate::shared::COMMAND_TIMEOUT;

/// For so long a call has empty hands while it waits.
pub(crate) const STEP: u64 = COMMAND_TIMEOUT.as_millis() as u64 * MS / 3;

/// What was seen of the names of which some are locked together.
struct Looks<'a> {
    history: &'a History,
    possible: Possible,
    times: Vec<(u64, u64)>,
    seen: HashMap<(u64, u16), Vec<&'a Sample>>,
}

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut calls: BTreeMap<Id, Vec<&Acquire>> = BTreeMap::new();
    for call in history.acquires.iter().filter(|call| call.set != 0) {
        calls.entry(call.id).or_default().push(call);
    }
    if calls.is_empty() {
        return Vec::new();
    }
    let looks = Looks::of(history);
    let calm = Calm::of_each(history);
    let wrong = |members: &Vec<&Acquire>| {
        let calm = &calm[usize::from(members[0].id.0)];
        [looks.parted(members), looks.waits_with_a_part(members, calm)]
    };
    calls.values().flat_map(wrong).flatten().collect()
}

impl<'a> Looks<'a> {
    fn of(history: &'a History) -> Self {
        let mut times = BTreeSet::new();
        let mut seen: HashMap<_, Vec<&Sample>> = HashMap::new();
        for sample in &history.samples {
            times.insert((sample.t0, sample.t1));
            if Names::is_of_several(sample.key) {
                seen.entry((sample.t0, sample.key)).or_default().push(sample);
            }
        }
        let (times, possible) = (times.into_iter().collect(), Possible::new(history));
        Self { history, possible, times, seen }
    }

    /// The looks that began and ended between two times.
    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.times.partition_point(|(t0, _)| *t0 <= from);
        self.times[first..].iter().copied().take_while(move |(_, t1)| *t1 < to)
    }

    fn at(&self, t: u64, key: u16) -> &[&'a Sample] {
        self.seen.get(&(t, key)).map_or(&[], Vec::as_slice)
    }

    /// A guard that is believed, and of whose locks not all are there.
    fn parted(&self, members: &[&Acquire]) -> Option<Violation> {
        let believed = members.iter().map(|member| member.believed).min()?;
        let granted = members.iter().all(|member| member.is_granted());
        for (t0, t1) in self.between(members[0].ret, believed).filter(|_| granted) {
            let is_there = |member: &&&Acquire| {
                self.at(t0, member.key).iter().any(|sample| sample.owner == member.owner)
            };
            if let Some(gone) = members.iter().find(|member| !is_there(member)) {
                let what = format!("name {}: a guard of several locks has not got it", gone.key);
                return Some(Violation::new("H17", what, (t0, t1)).of(&[gone]));
            }
        }
        None
    }

    /// A call that has some of its locks while it waits for the others.
    fn waits_with_a_part(&self, members: &[&Acquire], calm: &Calm) -> Option<Violation> {
        let Self { history, possible, .. } = self;
        let call = members[0];
        // Since when an owner of its client has a part. In a cluster it has what the first requests brought until
        // the last one is answered.
        let mut since: Option<(Owner, u64)> = None;
        let to = takes_one_by_one(call, history).unwrap_or(call.ret);
        for (t0, t1) in self.between(call.inv, to) {
            let client = call.owner.0;
            let of_client =
                |member: &Acquire| self.at(t0, member.key).iter().find(|s| s.owner.0 == client);
            let taken_away = |member: &&Acquire| {
                let mut all = history.tampering().filter(|(key, ..)| *key == member.key);
                all.any(|(_, from, to)| from <= t1 && call.inv <= to)
            };
            // Nothing but this call explains that one.
            let its = members
                .iter()
                .find(|member| of_client(member).is_some_and(|sample| possible.holds(sample) == 1));
            let misses = members.iter().find(|member| of_client(member).is_none());
            let (Some(its), Some(misses)) = (its, misses) else {
                since = None;
                continue;
            };
            let part = of_client(its).map(|sample| sample.owner);
            if since.map(|(owner, _)| owner) != part {
                since = part.map(|owner| (owner, t0));
            }
            let prompt = history.bounds.prompt;
            let is_asking =
                history.bounds.is_cluster && since.is_some_and(|(_, since)| t1 - since <= prompt);
            if !is_asking && calm.disturbed(call.inv, t1) == 0 && !members.iter().any(taken_away) {
                let what = format!(
                    "a call that waits for several locks has name {}, and has not got name {}",
                    its.key, misses.key
                );
                return Some(Violation::new("H17", what, (t0, t1)).of(&[call]));
            }
        }
        None
    }
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{asked, held, history, seen};

    /// For names 0 and 2.
    fn both(call: &Acquire) -> [Acquire; 2] {
        [0, 2].map(|key| {
            let number = call.owner.1 + u32::from(key);
            Acquire { set: 0b11, ..call.clone().of(key).by_owner(number) }
        })
    }

    /// Whoever looks at those times sees these.
    fn looking(calls: &[Acquire], seen_of: &[Acquire], times: &[u64]) -> History {
        let look = |t: &u64| seen_of.iter().map(|of| seen(of, *t, 1)).collect::<Vec<_>>();
        history(calls).sampled(times.iter().flat_map(look).collect::<Vec<_>>())
    }

    fn found(calls: &[Acquire], seen_of: &[Acquire], t: u64) -> usize {
        check(&looking(calls, seen_of, &[t])).len()
    }

    pub(crate) const TRIALS: Trials = &[
        ("a guard has all of its locks", || {
            let calls = both(&held(0, 10).until(100, 101));
            assert_eq!([found(&calls, &calls, 50), found(&calls, &calls[..1], 50)], [0, 1]);
            assert_eq!(found(&calls, &calls[..1], 100), 0, "it gives them back");
        }),
        ("a call that waits has all or none", || {
            let calls = both(&asked(0, 10).ended(Outcome::Busy, 900));
            let one = &calls[..1];
            assert_eq!([found(&calls, &calls, 50), found(&calls, one, 50)], [0, 1]);
            assert_eq!(found(&calls, one, 500), 0, "it takes them one by one");
            let forward = looking(&calls, one, &[50]).jumped(40);
            assert_eq!(check(&forward), [], "by its clock it has waited for long");
            let mut fast = looking(&calls, one, &[10 + STEP / MS - 1]);
            assert_eq!(check(&fast).len(), 1);
            fast.bounds.permille = 8;
            assert_eq!(check(&fast), [], "by its clock it has waited for a step");
            let apart = |times: &[u64]| {
                let mut history = looking(&calls, one, times);
                (history.bounds.is_cluster, history.bounds.prompt) = (true, 100 * MS);
                check(&history).len()
            };
            assert_eq!(apart(&[50, 140]), 0, "the other one has a request of its own");
            assert_eq!(apart(&[50, 140, 160]), 1, "which was answered by then");
            let single = [held(0, 5).of(0).by_owner(9)];
            let beside = [&calls[..], &single].concat();
            assert_eq!(found(&beside, one, 50), 0, "another call of its client may have it");
        }),
    ];
}
