//! H14: everybody who waits has a turn (W4).
//!
//! A process that waits for a lock goes without it, in a calm stretch, for no longer than three
//! times what everybody needs for a turn: for each client a run, the longest hold that was seen, and two
//! round trips. Who tries without waiting gives nobody a turn: each time that it comes in between costs
//! the others as much once more.

use std::collections::BTreeMap;

use crate::check::liveness::{Taken, taken};
use crate::prelude::*;

/// How long a client may keep a lock from others: the default of `max_handoff_time`.
const RUN: u64 = 10 * MS;

pub(crate) fn check(history: &History, calm: &Calm) -> Vec<Violation> {
    let keys = history.acquires.chunk_by(|a, b| a.key == b.key);
    keys.filter_map(|calls| of_key(calls, history, calm)).collect()
}

fn of_key(calls: &[Acquire], history: &History, calm: &Calm) -> Option<Violation> {
    let Bounds { prompt, room, round_trip, .. } = history.bounds;
    // Nobody may have it meanwhile.
    let prompt = prompt + room;
    let taken: Vec<Taken<'_>> =
        calls.iter().filter_map(|call| taken(call, history, calm)).collect();
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

fn tries_once(call: &Acquire) -> bool {
    matches!(call.how, How::Now) || call.how == How::Try && call.wait == 0
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{held, history};

    /// Another process has the lock for 40 ms every 50 ms, until somebody who waits from the
    /// beginning has it.
    fn found(until: u64) -> Vec<Violation> {
        found_by(How::Lock, until)
    }

    /// The same by calls of that kind, one client after the other.
    fn found_by(how: How, until: u64) -> Vec<Violation> {
        let holds = (0..until / 50).map(|turn| {
            let from = 10 + 50 * turn;
            let who = if how == How::Now { 2 * (turn % 2) as u16 } else { 0 };
            let mut hold = held(who, from).until(from + 40, from + 41);
            hold.how = how;
            hold
        });
        let mut waiter = held(1, until + 10);
        waiter.inv = 0;
        let waiter = waiter.until(until + 15, until + 16);
        check(&history(holds.chain([waiter]).collect()), &Calm::default())
    }

    pub(crate) fn who_waits_for_a_few_turns_of_others_has_its_own() {
        assert_eq!(found(1_000), []);
    }

    pub(crate) fn who_never_has_a_turn_is_found() {
        let found = found(3_000);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].rule, "H14");
        assert_eq!(found_by(How::Now, 3_000), [], "who does not wait comes in between");
    }
}
