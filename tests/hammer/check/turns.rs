//! H14: everybody who waits has a turn (W4).
//!
//! A process that waits for a lock goes without it, in a calm stretch, for no longer than three
//! times what everybody needs for a turn: for each client a run, the longest hold that was seen, and two
//! round trips. Who tries without waiting gives nobody a turn: each time that it comes in between costs
//! the others as much once more. So does who frees a lock by force: the client that had it does not know that
//! its turn has ended, and takes it again. Who deletes a key tells nobody: the lease that Redis had is waited for.

use std::collections::{BTreeMap, HashSet};

use crate::check::liveness::{Taken, taken};
use crate::prelude::*;

/// How long a client may keep a lock from others: the default of `max_handoff_time`.
const RUN: u64 = 10 * MS;

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let calm = Calm::of(history);
    let keys = history.acquires.chunk_by(|a, b| a.key == b.key);
    keys.filter_map(|calls| of_key(calls, history, &calm)).collect()
}

fn of_key(calls: &[Acquire], history: &History, calm: &Calm) -> Option<Violation> {
    let Bounds { prompt, room, round_trip, .. } = history.bounds;
    // Nobody may have it meanwhile.
    let prompt = prompt + room;
    let taken: Vec<Taken<'_>> =
        calls.iter().filter_map(|call| taken(call, history, calm)).collect();
    let deleted = history.faults.iter().filter(|fault| fault.keys.contains(&calls[0].key));
    let calm = &calm.and(deleted.map(|fault| (fault.t0, known_by(fault, &taken, round_trip))));
    // A call for several locks waits for all of them.
    let alone = |call: &&Acquire| call.set == 0;
    let waits = |call: &&Acquire| matches!(call.how, How::Lock | How::WithLease) && alone(call);
    for waiter in calls.iter().filter(|call| call.is_granted()).filter(waits) {
        let enough = |window: (u64, u64)| window.1 - window.0 > prompt;
        if !enough(calm.longest(waiter.inv, waiter.ret)) {
            continue;
        }
        let process = waiter.id.0;
        let by = |taken: &Taken<'_>| taken.by.map(|call| call.id.0);
        // From the end of what its own process had before.
        let own = taken.iter().filter(|one| by(one) == Some(process) && one.from < waiter.ret);
        let from = own.map(|one| one.to.min(waiter.ret)).fold(waiter.inv, u64::max);
        let window = calm.longest(from, waiter.ret);
        if !enough(window) {
            continue;
        }
        let needs = |held: &u64| held.saturating_add(RUN + 2 * round_trip);
        // The longest hold of each of the others.
        let mut longest: BTreeMap<u128, u64> = BTreeMap::new();
        let (mut last, mut in_between) = (None, 0u64);
        let others = taken.iter().filter(|one| one.from < window.1 && one.to > window.0);
        for other in others.filter(|one| by(one) != Some(process)) {
            let held = if other.to == NEVER { NEVER } else { other.to - other.from };
            let client = other.by.map(|call| call.owner.0);
            let most = longest.entry(client.unwrap_or_default()).or_default();
            *most = held.max(*most);
            if last.replace(client) != Some(client) && other.by.is_some_and(tries_once) {
                in_between = in_between.saturating_add(needs(&held));
            }
        }
        let forced = history.forced.iter().filter(|forced| {
            forced.freed
                && forced.key == waiter.key
                && forced.inv < window.1
                && forced.ret > window.0
        });
        let once_more = longest.values().map(needs).max().unwrap_or(0);
        in_between = in_between.saturating_add(once_more.saturating_mul(forced.count() as u64));
        let all = longest.values().map(needs).fold(needs(&0), u64::saturating_add);
        let bound = all.saturating_mul(3).saturating_add(in_between).saturating_add(prompt);
        if window.1 - window.0 > bound {
            let what = format!(
                "name {}: a process that waited had no turn for {} ms of a calm time, not {}",
                waiter.key,
                (window.1 - window.0) / MS,
                bound / MS
            );
            return Some(Violation::new("H14", what, window).of(&[waiter]));
        }
    }
    None
}

/// When all who wait for a lock whose key was deleted know that it is free: when the lease has ended that Redis had,
/// or when somebody has the lock by a later request.
fn known_by(deleted: &Fault, taken: &[Taken<'_>], round_trip: u64) -> u64 {
    let of_calls = || taken.iter().filter_map(|one| Some((one.by?, one.to)));
    let before = || of_calls().filter(|(call, _)| call.inv <= deleted.t1);
    // The answer of a grant may have been on its way.
    let granted = |call: &Acquire| call.ret <= deleted.t1 + round_trip;
    let had = before().filter(|(call, to)| granted(call) && deleted.t0 <= *to);
    let owners: HashSet<_> = had.map(|(call, _)| call.owner).collect();
    // A hold that was handed on may have left a longer one.
    let leases = before().filter(|(call, _)| owners.contains(&call.owner));
    let ends = leases.map(|(call, to)| to.min(deleted.t1) + call.lease);
    let later = of_calls().filter(|(call, _)| call.is_granted() && deleted.t1 < call.began);
    // A reader says nothing of another one whose release was forgotten.
    let later = later.filter(|(call, _)| !(deleted.reverts && call.reads));
    let next = later.map(|(call, _)| call.ret).min().unwrap_or(NEVER);
    ends.max().unwrap_or(0).clamp(deleted.t1, next.max(deleted.t1))
}

fn tries_once(call: &Acquire) -> bool {
    matches!(call.how, How::Now) || call.how == How::Try && call.wait == 0
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, deleted, held, history};

    /// Another process has the lock for 40 ms every 50 ms, until somebody who waits from the
    /// beginning has it. It is one client after the other where they try once. And somebody frees it by force so often.
    fn found(how: How, until: u64, times: u64) -> Vec<Violation> {
        let holds = (0..until / 50).map(|turn| {
            let from = 10 + 50 * turn;
            let who = if how == How::Now { 2 * (turn % 2) as u16 } else { 0 };
            Acquire { how, ..held(who, from).until(from + 40, from + 41) }
        });
        let waiter = held(1, until + 10).asked_at(0).until(until + 15, until + 16);
        let freed = (0..times).map(|n| (100 + 10 * n, 101 + 10 * n));
        check(&history(holds.chain([waiter]).collect::<Vec<_>>()).freed(KEY, freed))
    }

    pub(crate) const TRIALS: Trials = &[
        ("who frees a lock by force gives the client that had it a turn once more", || {
            let found = |until, times| found(How::Lock, until, times).len();
            let most = (1_000..).step_by(50).find(|until| found(*until, 0) == 1).expect("too long");
            assert_eq!([found(most, 1), found(most + 200, 1), found(most + 200, 4)], [0, 1, 0]);
        }),
        ("who waits for a few turns of others has its own", || {
            assert_eq!(found(How::Lock, 1_000, 0), []);
            assert_eq!(found(How::Now, 3_000, 0), [], "who does not wait comes in between");
            let found = found(How::Lock, 3_000, 0);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].rule, "H14");
        }),
        ("who waits for a deleted key waits for the end of its lease", || {
            // The lock is free from the 20th millisecond on, and somebody waits from the beginning.
            let found = |holds: &[Acquire], granted, is_deleted: bool| {
                let waiter = held(1, granted).asked_at(0).with_lease(5_000);
                let calls = [holds, &[waiter.until(granted + 5, granted + 6)]].concat();
                check(&history(calls).fault(is_deleted.then(|| deleted(KEY, 15)))).len()
            };
            let hold = held(0, 10).until(20, 20);
            let long = [hold.clone().with_lease(3_000)];
            assert_eq!([found(&long, 2_900, true), found(&long, 2_900, false)], [0, 1]);
            assert_eq!(found(&long, 4_100, true), 1, "that lease has ended");
            let handed_on = |number| {
                let before = held(0, 5).with_lease(3_000).until(10, 10).by_owner(number);
                found(&[before, hold.clone().with_lease(100)], 2_900, true)
            };
            assert_eq!([handed_on(1), handed_on(2)], [0, 1]);
            let next = [long[0].clone(), held(2, 100).until(110, 110)];
            assert_eq!(found(&next, 2_900, true), 1, "somebody had it, and released it");
        }),
        ("who waits to write waits for a reader whose release was forgotten", || {
            let found = |reads| {
                let released = held(0, 10).until(20, 20).with_lease(3_000);
                let next = Acquire { reads, ..held(2, 100).until(110, 110) };
                let waiter = held(1, 2_900).asked_at(0).until(2_905, 2_906);
                let forgotten = Fault { reverts: true, ..deleted(KEY, 15) };
                check(&history([released, next, waiter]).fault([forgotten])).len()
            };
            assert_eq!([found(true), found(false)], [0, 1]);
        }),
    ];
}
