//! H11: nothing stays at the server that nobody holds, and nothing has no end.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::check::count::Possible;
use crate::check::liveness::TERM;
use crate::history::LONGEST_LEASE;
use crate::prelude::*;
use crate::witness::GRANTED;

/// From when on the server can have nothing more of a call: at once if its release was confirmed,
/// after a calm stretch if that is done in the background, at the end of the lease if its process
/// was killed.
pub(crate) fn surely_over(acquire: &Acquire, history: &History, calm: &Calm) -> u64 {
    let (end, confirmed) = match (acquire.outcome, acquire.release) {
        (Outcome::Granted, Some(release)) => {
            // A reader says what its client knows: Redis may hear later that its lease was the longest.
            let confirmed = matches!(release.outcome, Outcome::Done | Outcome::Lost);
            (release.ret, confirmed && !acquire.reads)
        }
        (Outcome::Granted | Outcome::Open, _) => (NEVER, false),
        _ => (acquire.ret, acquire.outcome == Outcome::NotExecuted),
    };
    let over = match end {
        NEVER => NEVER,
        _ if confirmed => end,
        _ => calm.after(end, history.bounds.prompt),
    };
    let over = undone(acquire, (end, over), history, calm);
    let process = usize::from(acquire.id.0);
    let over = match clock_jumped(history, process, acquire.inv, over) {
        // By that clock its lease had ended, and there was nothing left to release.
        true if over < NEVER => over.max(calm.after(end + acquire.lease, history.bounds.prompt)),
        _ => over,
    };
    match (history.processes[process].killed, history.dead(process)) {
        // What it had under way went on without it.
        (Some(killed), Some(dead)) if over > killed => {
            calm.after(dead + acquire.lease, history.bounds.prompt)
        }
        _ => over,
    }
}

/// If a server forgets a release that was done between those times, the client makes it again; if that is
/// closed by then, nobody does.
fn undone(acquire: &Acquire, between: (u64, u64), history: &History, calm: &Calm) -> u64 {
    let (from, mut over) = between;
    for (t0, t1) in history.reversions() {
        if over == NEVER || over < t0 || t1 < from {
            continue;
        }
        let again = calm.after(t1, history.bounds.prompt);
        let closed = history.closed();
        let is_there = closed.get(&acquire.owner.0).is_none_or(|client| client.closing > again);
        // A hold nested in it may have had a longer lease.
        let ends = calm.after(t1 + LONGEST_LEASE, history.bounds.prompt);
        over = over.max(if is_there { again } else { ends });
    }
    over
}

pub(crate) fn clock_jumped(history: &History, process: usize, from: u64, to: u64) -> bool {
    history.processes[process].jumps.iter().any(|jump| (from..=to).contains(jump))
}

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let possible = Possible::new(history);
    let mut found = Vec::new();
    let mut wrong = |what: &str, sample: &Sample| {
        let Sample { key, pttl, owner, .. } = sample;
        let by = if owner.1 >= GRANTED { ", granted by a release" } else { "" };
        let what = format!("name {key} at the server, TTL {pttl} ms{by}: {what}");
        let mut violation = Violation::new("H11", what, (sample.t0, sample.t1));
        let of = (sample.owner.0, sample.key);
        let of_client =
            history.acquires.iter().filter(|acquire| (acquire.owner.0, acquire.key) == of);
        let mut last: Vec<_> = of_client.filter(|acquire| acquire.inv <= sample.t1).collect();
        last.sort_by_key(|acquire| Reverse(acquire.inv));
        violation.calls.extend(last.iter().take(4).map(|acquire| acquire.id));
        found.push(violation);
    };
    let closed = nothing_after_close(history);
    for sample in &history.samples {
        if sample.pttl == -1 {
            wrong("a lock without an end", sample);
        }
        if closed.get(&(sample.owner.0, sample.key)).is_some_and(|closed| *closed < sample.t0) {
            wrong("the client of its owner was closed before", sample);
        } else if possible.holds(sample) == 0
            && !is_granted_to_the_dead(sample, history)
            && !is_granted_to_who_gave_up(sample, history)
        {
            wrong("its client holds nothing", sample);
        }
    }
    for sample in &history.left_over {
        wrong("left after everybody had gone and every lease had ended", sample);
    }
    found
}

/// Whether a release has granted the lock to a client whose process was killed. It may do that for as long as the
/// client has its entry in the queue, if a connection of it lives on.
fn is_granted_to_the_dead(sample: &Sample, history: &History) -> bool {
    let dead = history.process_of(sample.owner.0).and_then(|process| history.dead(process));
    sample.owner.1 >= GRANTED && dead.is_some_and(|dead| sample.t1 < dead + TERM + 1_000 * MS)
}

/// Whether a release has granted the lock to a client whose call gave up just then. The call is right to say that
/// nothing of it was executed, and the client gives the lock to another waiter, or back.
fn is_granted_to_who_gave_up(sample: &Sample, history: &History) -> bool {
    if sample.owner.1 < GRANTED {
        return false;
    }
    let calm = Calm::of_each(history);
    history.acquires.iter().any(|acquire| {
        let calm = &calm[usize::from(acquire.id.0)];
        (acquire.owner.0, acquire.key) == (sample.owner.0, sample.key)
            && acquire.inv <= sample.t1
            && acquire.outcome == Outcome::NotExecuted
            && sample.t0 < calm.after(acquire.ret, history.bounds.prompt)
    })
}

/// For each name of a client that was closed in a calm time, when `close()` had returned: unless a
/// guard or a call outlived that. `close()` waits for the releases that the background has to make
/// by then, at most for the command timeout. A call that is cut off later is undone later.
fn nothing_after_close(history: &History) -> HashMap<(u128, u16), u64> {
    let closed = history.closed();
    let calm = Calm::of_each(history);
    let mut names: HashMap<(u128, u16), u64> = HashMap::new();
    let mut outlived = HashSet::new();
    for acquire in &history.acquires {
        let Some(client) = closed.get(&acquire.owner.0) else { continue };
        let calm = &calm[usize::from(acquire.id.0)];
        let until = match acquire.outcome {
            Outcome::Granted => acquire.release.map_or(NEVER, |release| release.ret),
            _ => acquire.ret,
        };
        let is_confirmed = acquire.release.is_some_and(|it| it.outcome == Outcome::Done);
        let mut reversions = history.reversions();
        let done = if is_confirmed { until } else { client.closed };
        let undone = reversions.any(|(t0, t1)| until <= t1 && t0 <= done);
        if undone
            || until.saturating_add(history.bounds.before_close) > client.closing
            || calm.disturbed(client.closing, client.closed) > 0
            // What was asked for in an outage may be executed when nobody is left to undo it.
            || !is_confirmed && calm.disturbed(acquire.inv, until) > 0
            || clock_jumped(history, usize::from(acquire.id.0), acquire.inv, client.closed)
        {
            outlived.insert((acquire.owner.0, acquire.key));
        }
        names.insert((acquire.owner.0, acquire.key), client.closed);
    }
    names.retain(|name, _| !outlived.contains(name));
    names
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{asked, fault, held, history, seen};
    use crate::history::Reach;

    /// How much is found if the server has that call's hold then.
    fn found_in(history: History, of: &Acquire, t: u64) -> usize {
        let found = check(&history.sampled([seen(of, t, 1)]));
        assert!(found.iter().all(|violation| violation.rule == "H11"), "{found:?}");
        found.len()
    }

    fn found<const N: usize>(of: &Acquire, times: [u64; N]) -> [usize; N] {
        times.map(|t| found_in(history([of.clone()]), of, t))
    }

    fn dropped() -> Acquire {
        asked(0, 10).ended(Outcome::Cancelled, 20)
    }

    fn reverts(t0: u64, t1: u64) -> [Fault; 1] {
        [Fault { reverts: true, ..fault(t0, t1) }]
    }

    pub(crate) const TRIALS: Trials = &[
        ("a lock after its release is an orphan", || {
            assert_eq!(found(&held(0, 10).until(20, 30), [25, 31]), [0, 1]);
        }),
        ("a dropped call is undone promptly", || {
            assert_eq!(found(&dropped(), [600, 1100]), [0, 1]);
        }),
        ("who has a clock that jumped leaves it to the lease", || {
            let found = |t| found_in(history([dropped()]).jumped(30), &dropped(), t);
            assert_eq!([found(1100), found(1630)], [0, 1]);
        }),
        ("who gave up just as a release granted it the lock gives it back promptly", || {
            let gave_up = asked(0, 10).ended(Outcome::NotExecuted, 20);
            let found = |number, t| {
                found_in(history([gave_up.clone()]), &gave_up.clone().by_owner(number), t)
            };
            assert_eq!(
                [found(GRANTED + 1, 600), found(GRANTED + 1, 1100), found(1, 600)],
                [0, 1, 1]
            );
        }),
        ("a loss whose release is unknown is undone promptly", || {
            let lost = |outcome| held(0, 10).until(20, 30).told(outcome);
            assert_eq!(found(&lost(Outcome::LostUnknown), [600, 1100]), [0, 1]);
            assert_eq!(found(&lost(Outcome::Lost), [600]), [1]);
        }),
        ("what a server forgot of a release is released again promptly", || {
            let hold = held(0, 10).until(90, 100);
            let found = |from, t, closed| {
                let history = history([hold.clone()]).fault(reverts(from, 110));
                let history = if closed { history.closed_at(105, 106) } else { history };
                Possible::new(&history).holds(&seen(&hold, t, 1))
            };
            assert_eq!([found(95, 700, false), found(95, 720, false)], [1, 0]);
            assert_eq!(found(101, 700, false), 0, "it had been written");
            assert_eq!([found(95, 5700, true), found(95, 5720, true)], [1, 0], "nobody is there");
        }),
        ("a killed process blocks for its lease", || {
            let found = |t| found_in(history([held(0, 10)]).killed(500), &held(0, 10), t);
            assert_eq!([found(1400), found(2600)], [0, 1]);
        }),
        ("a release grants to the dead while they have an entry", || {
            let found = |number, t| {
                found_in(history([held(0, 10)]).killed(500), &held(0, 10).by_owner(number), t)
            };
            let granted = GRANTED + 7;
            assert_eq!([found(granted, 9_000), found(granted, 11_600), found(1, 9_000)], [0, 1, 1]);
        }),
        ("nothing is left and nothing is eternal", || {
            let hold = held(0, 10);
            let left_over = vec![seen(&hold, 9000, 1)];
            let left = history([hold.clone()]).with(|history| history.left_over = left_over);
            assert_eq!(check(&left).len(), 1);
            let eternal = Sample { pttl: -1, ..seen(&hold, 20, 1) };
            assert_eq!(check(&history([hold]).sampled([eternal])).len(), 1);
        }),
        ("a closed client has nothing", || {
            let closed = |call: &Acquire| history([call.clone()]).closed_at(100, 120);
            let found =
                |call: &Acquire, times: [u64; 2]| times.map(|t| found_in(closed(call), call, t));
            assert_eq!(found(&dropped(), [119, 121]), [0, 1]);
            // A server forgot of its release, and nobody was left to say it again.
            let forgot =
                |t0, t1| found_in(closed(&dropped()).fault(reverts(t0, t1)), &dropped(), 121);
            assert_eq!([forgot(110, 115), forgot(121, 125)], [0, 1]);
            // It was under way when the client was closed.
            assert_eq!(found(&asked(0, 10).ended(Outcome::Cancelled, 90), [121, 1200]), [0, 1]);
            // A guard outlives it.
            let outlives = found_in(closed(&held(0, 10)), &held(0, 10), 121);
            assert_eq!((outlives, found(&held(0, 10).until(300, 310), [309, 311])), (0, [0, 1]));
        }),
        ("what arrives after its process died blocks for its lease", || {
            let found = |late: Option<u64>| {
                let (settle, reach, late) = (Some(0), Reach::Process(0), late.map(|t| t * MS));
                let held_up = late.map(|_| Fault { settle, reach, late, ..fault(400, 410) });
                found_in(history([asked(0, 10)]).killed(500).fault(held_up), &asked(0, 10), 4400)
            };
            assert_eq!([found(None), found(Some(3500))], [1, 0]);
        }),
    ];
}
