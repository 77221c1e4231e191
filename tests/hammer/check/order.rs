//! H15: who waits for a fair lock has it in the order of the calls.
//!
//! In a calm time nobody has it before one that called more than [`apart`](crate::check::Bounds) earlier
//! and waits still: within a round trip the order is not promised, and a busy machine runs somebody late.
//! One whose process lost a connection meanwhile may have to take its place again: it counts as one that
//! called then. So does one that waited for an earlier call of its handle, from when that gave up: a
//! handle waits once.

use crate::check::liveness::{Taken, taken};
use crate::prelude::*;

pub(crate) fn check(history: &History, calm: &Calm) -> Vec<Violation> {
    let resets: Vec<Vec<u64>> =
        (0..history.processes.len()).map(|n| history.resets_of(n)).collect();
    let keys = history.acquires.chunk_by(|a, b| a.key == b.key);
    let fair = keys.filter(|calls| Names::kind(calls[0].key) == Kind::Fair);
    fair.filter_map(|calls| of_key(calls, history, calm, &resets)).collect()
}

fn of_key(
    calls: &[Acquire],
    history: &History,
    calm: &Calm,
    resets: &[Vec<u64>],
) -> Option<Violation> {
    let waits = |call: &&Acquire| match call.how {
        How::Lock | How::WithLease => true,
        How::Try => call.wait > 0,
        _ => false,
    };
    let mut gave_up: HashMap<_, Vec<&Acquire>> = HashMap::new();
    for call in calls.iter().filter(waits).filter(|call| !call.is_granted()) {
        gave_up.entry(call.handle).or_default().push(call);
    }
    // Since when a call has to have its place.
    let since = |call: &Acquire| {
        let resets = &resets[usize::from(call.id.0)];
        let last = resets[..resets.partition_point(|t| *t <= call.ret)].last();
        let before = gave_up.get(&call.handle).into_iter().flatten();
        let before = before.filter(|one| one.inv < call.inv && one.ret <= call.ret);
        let last = last.copied().into_iter().chain(before.map(|one| one.ret)).max();
        last.unwrap_or(0).max(call.inv)
    };
    let mut holds: HashMap<_, Vec<(&Acquire, Taken<'_>)>> = HashMap::new();
    for call in calls {
        let hold = taken(call, history, calm).map(|taken| (call, taken));
        holds.entry(call.handle).or_default().extend(hold);
    }
    // A handle that has the lock has it once more without waiting.
    let nests = |call: &Acquire| {
        let mut others = holds[&call.handle].iter().filter(|(by, _)| by.id != call.id);
        others.any(|(_, hold)| hold.from <= call.ret && hold.to >= call.inv)
    };
    let granted = calls.iter().filter(|call| call.is_granted()).filter(waits);
    let mut granted: Vec<&Acquire> = granted.filter(|call| !nests(call)).collect();
    granted.sort_by_key(|call| std::cmp::Reverse(call.ret));
    let mut first: Option<(u64, &Acquire)> = None;
    for call in granted {
        if let Some((since, earlier)) = first
            && call.ret < earlier.ret
            && since + history.bounds.apart < call.inv
            && calm.disturbed(earlier.inv, earlier.ret) == 0
        {
            let what = format!(
                "name {}: a call of a fair lock had it {} ms before one that was made {} ms earlier",
                call.key,
                (earlier.ret - call.ret) / MS,
                (call.inv - earlier.inv) / MS
            );
            return Some(
                Violation::new("H15", what, (earlier.inv, earlier.ret)).of(&[earlier, call]),
            );
        }
        let since = since(call);
        let is_first = first.is_none_or(|(first, _)| since < first);
        if is_first && calm.disturbed(call.inv, call.ret) == 0 {
            first = Some((since, call));
        }
    }
    None
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{asked, held, history};
    use crate::history::{Fault, Reach};
    use crate::nemesis::RESET;
    use crate::record::Outcome;

    const FAIR: u16 = 1;

    fn found(called: u64, had: u64) -> Vec<Violation> {
        found_after(None, called, had)
    }

    /// Process 0 calls at zero and has the lock from 1000 on, and loses a connection; process 1 calls and
    /// has the lock then.
    fn found_after(reset: Option<u64>, called: u64, had: u64) -> Vec<Violation> {
        let of = |who: u16, inv: u64, from: u64| {
            let mut call = held(who, from).until(from + 10, from + 11);
            (call.key, call.inv) = (FAIR, inv * MS);
            call
        };
        let mut history = history(vec![of(0, 0, 1_000), of(1, called, had)]);
        let (kind, reach) = (RESET, Reach::Process(0));
        let broke = |t| Fault { kind, reach, t0: t * MS, t1: t * MS, ..Fault::default() };
        history.faults.extend(reset.map(broke));
        check(&history, &Calm::default())
    }

    pub(crate) fn who_lost_a_connection_has_its_place_again_a_while_after_that() {
        assert_eq!(found_after(Some(400), 500, 900), []);
        assert_eq!(found_after(Some(400), 700, 900).len(), 1);
        assert_eq!(found_after(Some(1_001), 500, 900).len(), 1, "it had the lock by then");
    }

    pub(crate) fn who_waited_for_its_own_handle_came_when_that_gave_up() {
        let found = |gave_up: u64, called: u64| {
            let mut calls = [held(0, 1_000), held(1, 900), asked(0, 0)];
            calls[2] = calls[2].clone().ended(Outcome::Cancelled, gave_up);
            for (call, inv) in calls.iter_mut().zip([1, called, 0]) {
                (call.key, call.inv) = (FAIR, inv * MS);
            }
            check(&history(calls.into()), &Calm::default())
        };
        assert_eq!(found(400, 500), []);
        assert_eq!(found(400, 700).len(), 1);
    }

    pub(crate) fn who_came_first_has_it_first() {
        assert_eq!(found(500, 1_100), []);
        assert_eq!(found(100, 900), [], "they came at the same time, for all that is promised");
    }

    pub(crate) fn who_passes_one_that_waits_is_found() {
        let found = found(500, 900);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].rule, "H15");
    }
}
