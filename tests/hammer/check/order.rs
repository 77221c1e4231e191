//! H15: who waits for a fair lock has it in the order of the calls.
//!
//! In a calm time nobody has it before one that called more than [`apart`](crate::check::Bounds) earlier
//! and waits still: within a round trip the order is not promised, and a busy machine runs somebody late.

use crate::calm::Calm;
use crate::check::Violation;
use crate::check::liveness::{Taken, taken};
use crate::history::{Acquire, History};
use crate::names::{Kind, Names};
use crate::record::{How, MS};

pub(crate) fn check(history: &History, calm: &Calm) -> Vec<Violation> {
    let keys = history.acquires.chunk_by(|a, b| a.key == b.key);
    let fair = keys.filter(|calls| Names::kind(calls[0].key) == Kind::Fair);
    fair.filter_map(|calls| of_key(calls, history, calm)).collect()
}

fn of_key(calls: &[Acquire], history: &History, calm: &Calm) -> Option<Violation> {
    let taken: Vec<Taken<'_>> =
        calls.iter().filter_map(|call| taken(call, history, calm)).collect();
    // A handle that has the lock has it once more without waiting.
    let nests = |call: &Acquire| {
        taken.iter().filter_map(|one| Some((one, one.by?))).any(|(one, by)| {
            by.id != call.id
                && by.handle == call.handle
                && one.from <= call.ret
                && one.to >= call.inv
        })
    };
    let waits = |call: &&Acquire| match call.how {
        How::Lock | How::WithLease => true,
        How::Try => call.wait > 0,
        _ => false,
    };
    let granted = calls.iter().filter(|call| call.is_granted()).filter(waits);
    let mut granted: Vec<&Acquire> = granted.filter(|call| !nests(call)).collect();
    granted.sort_by_key(|call| std::cmp::Reverse(call.ret));
    let mut first: Option<&Acquire> = None;
    for call in granted {
        if let Some(earlier) = first
            && call.ret < earlier.ret
            && earlier.inv + history.bounds.apart < call.inv
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
        let is_first = first.is_none_or(|first| call.inv < first.inv);
        if is_first && calm.disturbed(call.inv, call.ret) == 0 {
            first = Some(call);
        }
    }
    None
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{held, history};

    const FAIR: u16 = 1;

    /// Process 0 calls at zero and has the lock from 1000 on; process 1 calls and has it then.
    fn found(called: u64, had: u64) -> Vec<Violation> {
        let of = |who: u16, inv: u64, from: u64| {
            let mut call = held(who, from).until(from + 10, from + 11);
            (call.key, call.inv) = (FAIR, inv * MS);
            call
        };
        check(&history(vec![of(0, 0, 1_000), of(1, called, had)]), &Calm::default())
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
