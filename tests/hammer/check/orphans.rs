//! H11: nothing stays at the server that nobody holds, and nothing has no end.

use std::collections::HashMap;

use crate::calm::Calm;
use crate::check::count::Possible;
use crate::check::{PROMPT, Violation};
use crate::history::{Acquire, History, NEVER, Sample};
use crate::record::Outcome;

/// From when on the server can have nothing more of a call: at once if its release was confirmed,
/// after a calm stretch if that is done in the background, at the end of the lease if its process
/// was killed.
pub(crate) fn surely_over(acquire: &Acquire, history: &History, calm: &Calm) -> u64 {
    let (end, confirmed) = match (acquire.outcome, acquire.release) {
        (Outcome::Granted, Some(release)) => {
            (release.ret, matches!(release.outcome, Outcome::Done | Outcome::Lost))
        }
        (Outcome::Granted | Outcome::Open, _) => (NEVER, false),
        _ => (acquire.ret, acquire.outcome == Outcome::NotExecuted),
    };
    let over = match end {
        NEVER => NEVER,
        _ if confirmed => end,
        _ => calm.after(end, PROMPT),
    };
    match history.processes[usize::from(acquire.id.0)].killed {
        // What it had under way went on without it.
        Some(killed) if over > killed => calm.after(killed + acquire.lease, PROMPT),
        _ => over,
    }
}

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let possible = Possible::new(history);
    let mut found = Vec::new();
    let mut wrong = |what: &str, sample: &Sample| {
        let what = format!("name {} at the server, TTL {} ms: {what}", sample.key, sample.pttl);
        let mut violation = Violation::new("H11", what, (sample.t0, sample.t1));
        let of_owner = history.acquires.iter().filter(|acquire| acquire.owner == sample.owner);
        let last = of_owner.filter(|acquire| acquire.inv <= sample.t1).max_by_key(|a| a.inv);
        violation.calls.extend(last.map(|acquire| acquire.id));
        found.push(violation);
    };
    let closed = closed(history);
    for sample in &history.samples {
        if sample.pttl == -1 {
            wrong("a lock without an end", sample);
        }
        if closed.get(&sample.owner.0).is_some_and(|closed| *closed < sample.t0) {
            wrong("the client of its owner was closed before", sample);
        } else if possible.holds(sample.owner, sample.t0, sample.t1) == 0 {
            wrong("its owner holds nothing", sample);
        }
    }
    for sample in &history.left_over {
        wrong("left after everybody had gone and every lease had ended", sample);
    }
    found
}

/// When `close()` had returned, for each client.
fn closed(history: &History) -> HashMap<u128, u64> {
    let of = |process: &crate::history::Process| {
        let returned: Vec<u64> = process.closed.iter().map(|(_, returned)| *returned).collect();
        process.clients.clone().into_iter().zip(returned)
    };
    history.processes.iter().flat_map(of).collect()
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, asked, held, history};
    use crate::record::MS;

    fn seen(of: &Acquire, t: u64, pttl: i64) -> Sample {
        Sample { t0: t * MS, t1: t * MS + 1, key: KEY, owner: of.owner, count: 1, pttl }
    }

    fn found(acquire: &Acquire, t: u64) -> Vec<Violation> {
        let mut history = history(vec![acquire.clone()]);
        history.samples = vec![seen(acquire, t, 100)];
        check(&history)
    }

    pub(crate) fn a_lock_that_is_held_is_no_orphan() {
        assert_eq!(found(&held(0, 10).until(20, 30), 25), []);
    }

    pub(crate) fn a_lock_after_its_release_is_an_orphan() {
        assert_eq!(found(&held(0, 10).until(20, 30), 31)[0].rule, "H11");
    }

    pub(crate) fn a_dropped_call_is_undone_promptly() {
        let dropped = asked(0, 10).ended(Outcome::Cancelled, 20);
        assert_eq!(found(&dropped, 600), []);
        assert_eq!(found(&dropped, 1100).len(), 1);
    }

    pub(crate) fn a_killed_process_blocks_for_its_lease() {
        let hold = held(0, 10);
        let mut history = history(vec![hold.clone()]);
        history.processes[0].killed = Some(500 * MS);
        for (t, orphans) in [(1400, 0), (2600, 1)] {
            history.samples = vec![seen(&hold, t, 100)];
            assert_eq!(check(&history).len(), orphans);
        }
    }

    pub(crate) fn nothing_is_left_and_nothing_is_eternal() {
        let hold = held(0, 10);
        let mut history = history(vec![hold.clone()]);
        history.left_over = vec![seen(&hold, 9000, 100)];
        assert_eq!(check(&history).len(), 1);
        history.left_over.clear();
        history.samples = vec![seen(&hold, 20, -1)];
        assert_eq!(check(&history).len(), 1);
    }

    pub(crate) fn a_closed_client_has_nothing() {
        let hold = held(0, 10);
        let mut history = history(vec![hold.clone()]);
        history.processes[0].closed = vec![(40 * MS, 50 * MS)];
        history.samples = vec![seen(&hold, 45, 100)];
        assert_eq!(check(&history), []);
        history.samples = vec![seen(&hold, 51, 100)];
        assert_eq!(check(&history).len(), 1);
    }
}
