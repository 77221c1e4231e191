//! H6 and H7: a lock that is free does not stay free while somebody waits for it.
//!
//! A name is taken from each grant's return until its release, or, for an explicit lease, until
//! that is over. What is left is free. A waiter that waited through a calm stretch of that, longer
//! than [`prompt`](crate::check::Bounds), and for a plain or fenced lock `room` beside that, has missed its
//! wake-up. After a crash (H7) the name is taken until the lease of the dead has ended. A read-write lock is
//! free for a reader if nobody writes or waits to write. Who waits for several locks together waits while they
//! all are free.

use crate::check::orphans::{clock_jumped, surely_over};
use crate::check::several::STEP;
use crate::history::{Forced, LONGEST_LEASE};
use crate::prelude::*;

/// The default of `fair_grace`.
const GRACE: u64 = 1_000 * MS;

/// So long a client counts as alive that has not been heard of.
pub(crate) const TERM: u64 = 10_000 * MS;

/// One stretch in which a name is taken, and by whom.
pub(crate) struct Taken<'a> {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) by: Option<&'a Acquire>,
}

impl Taken<'_> {
    fn reads(&self) -> bool {
        self.by.is_some_and(|call| call.reads)
    }
}

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let calm = &Calm::of(history);
    let mut found = Vec::new();
    let mut of_several: HashMap<u16, Vec<Taken<'_>>> = HashMap::new();
    for calls in history.acquires.chunk_by(|a, b| a.key == b.key) {
        let key = calls[0].key;
        let prompt = prompt(key, history);
        let mut taken: Vec<Taken<'_>> =
            calls.iter().filter_map(|call| taken(call, history, calm)).collect();
        // Who deletes a key tells nobody: the old lease has to end first.
        let deleted = history.faults.iter().filter(|fault| fault.keys.contains(&key));
        taken.extend(deleted.map(|f| Taken { from: f.t0, to: f.t1 + LONGEST_LEASE, by: None }));
        taken.sort_by_key(|taken| taken.from);
        for (before, to) in free(&taken, prompt) {
            found.extend(waited(calls, false, history, calm, before, to));
        }
        if Names::kind(key) == Kind::ReadWrite {
            let (readers, mut taken): (Vec<_>, Vec<_>) = taken.into_iter().partition(Taken::reads);
            keep_beside_readers(&mut taken, readers, history, calm);
            taken.extend(calls.iter().filter_map(|call| waits_to_write(call, history, calm)));
            taken.sort_by_key(|taken| taken.from);
            for (before, to) in free(&taken, prompt) {
                found.extend(waited(calls, true, history, calm, before, to));
            }
        } else if Names::is_of_several(key) {
            of_several.insert(key, taken);
        }
    }
    found.extend(waited_for_several(history, calm, &of_several));
    found
}

/// Who waited too long for several locks, while all of them were free.
fn waited_for_several(
    history: &History,
    calm: &Calm,
    taken: &HashMap<u16, Vec<Taken<'_>>>,
) -> Option<Violation> {
    let prompt = history.bounds.prompt + history.bounds.room;
    let first = |call: &&Acquire| Names::several(call.set).next() == Some(call.key);
    for call in history.acquires.iter().filter(first) {
        let killed = history.processes[usize::from(call.id.0)].killed.unwrap_or(NEVER);
        let until = call.ret.min(killed);
        if call.wait <= prompt || until == NEVER || until - call.inv <= prompt {
            continue;
        }
        let all = Names::several(call.set).filter_map(|key| taken.get(&key)).flatten();
        // What it takes one by one itself does not keep it waiting.
        let others = all.filter(|taken| taken.by.is_none_or(|by| by.id != call.id));
        let calm = calm.and(others.map(|taken| (taken.from, taken.to)));
        let window = calm.longest(call.inv, until);
        if window.1 - window.0 > prompt {
            let what = format!(
                "all locks of a set were free for {} ms in a calm time, and somebody waited for them",
                (window.1 - window.0) / MS
            );
            return Some(Violation::new("H6", what, window).of(&[call]));
        }
    }
    None
}

/// The stretches that are longer than that in which a name is not taken: behind which that was, and their
/// ends.
fn free<'a>(taken: &'a [Taken<'a>], prompt: u64) -> Vec<(&'a Taken<'a>, u64)> {
    let mut found = Vec::new();
    let mut before: Option<&Taken<'_>> = None;
    for next in taken.iter().map(Some).chain([None]) {
        let to = next.map_or(NEVER, |next| next.from);
        if let Some(before) = before
            && before.to.saturating_add(prompt) < to
        {
            found.push((before, to));
        }
        before = match (before, next) {
            (Some(before), Some(next)) if before.to > next.to => Some(before),
            (_, next) => next,
        };
    }
    found
}

/// Beside a reader of its handle, the lock is one to write until the write is given back: a server knows one lease of
/// a lock, which is the longer one of the two.
fn keep_beside_readers(
    writers: &mut [Taken<'_>],
    readers: Vec<Taken<'_>>,
    history: &History,
    calm: &Calm,
) {
    let mut own: HashMap<_, Vec<Taken<'_>>> = HashMap::new();
    for reader in readers {
        own.entry(reader.by.map(|call| call.handle)).or_default().push(reader);
    }
    for writer in writers {
        let Some(call) = writer.by.filter(|call| call.is_granted()) else { continue };
        let given_back = given_back(call, history, calm);
        for reader in own.get(&Some(call.handle)).into_iter().flatten() {
            // They are in order.
            if (reader.from..reader.to).contains(&writer.to) {
                writer.to = reader.to.min(given_back);
            }
        }
    }
}

/// From when to when a writer keeps new readers out because it waits.
fn waits_to_write<'a>(call: &Acquire, history: &History, calm: &Calm) -> Option<Taken<'a>> {
    if call.reads || call.how == How::Now || call.wait == 0 {
        return None;
    }
    let process = usize::from(call.id.0);
    let to = match (history.processes[process].killed, history.dead(process)) {
        // Behind readers it counts as alive for its term.
        (Some(killed), Some(dead)) if call.ret > killed => dead + TERM,
        _ if call.is_granted() => call.ret,
        _ => surely_over(call, history, calm),
    };
    Some(Taken { from: call.inv, to, by: None })
}

pub(crate) fn taken<'a>(call: &'a Acquire, history: &History, calm: &Calm) -> Option<Taken<'a>> {
    let by = Some(call);
    let process = usize::from(call.id.0);
    if let (Some(killed), Some(dead)) = (history.processes[process].killed, history.dead(process))
        && surely_over(call, history, calm) > killed
    {
        // What was under way when its process died may have been granted to it.
        let from = if call.is_granted() { call.ret } else { killed };
        let from = takes_one_by_one(call, history).map_or(from, |since| from.min(since));
        // A server that has not heard of its end may grant it a fair lock, for the grace.
        let time = match Names::kind(call.key) {
            Kind::Fair | Kind::FencedFair | Kind::ReadWrite => {
                call.lease.max(GRACE + history.bounds.round_trip)
            }
            _ => call.lease,
        };
        return Some(Taken { from, to: dead + time, by });
    }
    let mut to = given_back(call, history, calm);
    if !call.watched {
        to = to.min(call.ret.saturating_add(call.lease));
    }
    if let Some(from) = takes_one_by_one(call, history) {
        // Until it has all, or until what it has had is given back.
        let to = if call.is_granted() { to } else { surely_over(call, history, calm) };
        return Some(Taken { from, to, by });
    }
    call.is_granted().then_some(Taken { from: call.ret, to, by })
}

/// When a hold was given back, or freed by force: who does that tells those who wait for it.
fn given_back(call: &Acquire, history: &History, calm: &Calm) -> u64 {
    let to = call.release.map_or(NEVER, |release| {
        let confirmed = matches!(release.outcome, Outcome::Done | Outcome::Lost);
        let over = calm.after(release.ret, history.bounds.prompt);
        // By a clock that was set forward the lease had ended, and there was nothing to release.
        let waits = !confirmed && clock_jumped(history, usize::from(call.id.0), call.inv, over);
        release.ret + if waits { call.lease } else { 0 }
    });
    let freed = |forced: &&Forced| {
        forced.key == call.key && forced.freed && call.ret < forced.inv && forced.ret < to
    };
    history.forced.iter().filter(freed).map(|forced| forced.ret).min().unwrap_or(to)
}

/// Since when a call for several locks may have some of them in its hand: by its own clock, which may be fast, or set
/// forward.
pub(crate) fn takes_one_by_one(call: &Acquire, history: &History) -> Option<u64> {
    let jumps = history.processes[usize::from(call.id.0)].jumps.iter().copied();
    let step = STEP - STEP * history.bounds.permille / 1000;
    let since = jumps.filter(|jump| *jump >= call.inv).fold(call.inv + step, u64::min);
    (call.set != 0 && call.ret > since).then_some(since)
}

/// Waiters of a fair lock leave it to nobody.
fn prompt(key: u16, history: &History) -> u64 {
    let Bounds { prompt, room, .. } = history.bounds;
    if Names::is_in_order(key) { prompt } else { prompt + room }
}

/// Who waited too long while the name was free, for a reader if that is meant.
fn waited(
    calls: &[Acquire],
    to_read: bool,
    history: &History,
    calm: &Calm,
    before: &Taken<'_>,
    to: u64,
) -> Option<Violation> {
    let prompt = prompt(calls[0].key, history);
    let alone = calls.iter().filter(|call| call.set == 0 && (call.reads || !to_read));
    for waiter in alone.filter(|call| call.wait > prompt) {
        let killed = history.processes[usize::from(waiter.id.0)].killed.unwrap_or(NEVER);
        let from = waiter.inv.max(before.to);
        let to = waiter.ret.min(to).min(killed);
        if to == NEVER || to.saturating_sub(from) <= prompt {
            continue;
        }
        let window = calm.longest(from, to);
        if window.1 - window.0 > prompt {
            let crashed = before.by.is_some_and(|hold| {
                hold.release.is_none() && history.processes[usize::from(hold.id.0)].killed.is_some()
            });
            let what = format!(
                "name {} was free for {} ms in a calm time, and somebody waited for it",
                waiter.key,
                (window.1 - window.0) / MS
            );
            let rule = if crashed { "H7" } else { "H6" };
            let mut violation = Violation::new(rule, what, window).of(&[waiter]);
            violation.calls.extend(before.by.map(|hold| hold.id));
            return Some(violation);
        }
    }
    None
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, asked, fault, held, history};

    fn waiting(inv: u64, granted: u64) -> Acquire {
        held(1, granted).asked_at(inv).until(granted + 1, granted + 2)
    }

    /// Of a read-write lock, and whether each reads.
    fn shared(calls: [(bool, Acquire); 3]) -> History {
        history(calls.map(|(reads, call)| Acquire { reads, ..call.of(KEY - 1) }))
    }

    pub(crate) const TRIALS: Trials = &[
        ("a name does not stay free while somebody waits", || {
            let gave_up = asked(1, 20).ended(Outcome::Cancelled, 4000);
            for (case, waiter, wrong) in [
                ("a prompt hand-off", waiting(20, 510), 0),
                ("a lost wake-up", waiting(20, 1200), 1),
                ("who gave up waiting had waited, too", gave_up, 1),
                ("a name that nobody wanted", waiting(2990, 3000), 0),
            ] {
                let found = check(&history([held(0, 10).until(500, 501), waiter]));
                assert_eq!(found.len(), wrong, "{case}: {found:?}");
                assert!(
                    found.iter().all(|one| (one.rule, one.from) == ("H6", 501 * MS)),
                    "{found:?}"
                );
            }
        }),
        ("who waits for several waits while all are free", || {
            let several = Acquire { set: 0b11, ..asked(1, 20).ended(Outcome::Cancelled, 2_000) };
            let found = |second_until| {
                let until = |t| held(2, 10).renewed_by_a_watchdog().until(t, t);
                let [first, second] = [until(500).of(0), until(second_until).of(2)];
                let calls = [first, several.clone().of(0), second, several.clone().of(2)];
                check(&history(calls)).iter().filter(|one| one.rule == "H6").count()
            };
            assert_eq!([found(1_500), found(1_000)], [0, 1]);
        }),
        ("readers keep no reader out", || {
            let found = |writes_until, killed: Option<u64>| {
                let reader = held(0, 10).renewed_by_a_watchdog();
                let writer = asked(2, 15).ended(Outcome::Cancelled, writes_until);
                let history = shared([(true, reader), (true, waiting(20, 1500)), (false, writer)]);
                check(&history.with(|history| history.processes[2].killed = killed)).len()
            };
            assert_eq!([found(16, None), found(990, None)], [1, 0]);
            let dead = Some(15 * MS);
            assert_eq!(found(16, dead), 0, "one that has died behind readers does for its term");
        }),
        ("a write whose lease has ended keeps readers out beside a reader of its handle", || {
            let found = |read_until, given_back: Option<u64>, handle| {
                let reader = held(0, 10).renewed_by_a_watchdog().until(read_until, read_until);
                let writer = held(0, 20).with_lease(40);
                let writer = given_back.into_iter().fold(writer, |writer, t| writer.until(t, t));
                let waiter = (true, waiting(15, 2_000));
                check(&shared([(true, reader.by_handle(handle)), (false, writer), waiter])).len()
            };
            assert_eq!([found(1_900, None, 1), found(1_900, Some(1_900), 1)], [0, 0]);
            // Both sides are over, the write was given back, or another handle reads.
            assert_eq!([found(1_300, None, 1), found(1_900, Some(1_300), 1)], [2, 1]);
            assert_eq!(found(1_900, None, 2), 1);
        }),
        ("what is dropped before its clock is set forward ends with its lease", || {
            let found = |outcome, jump| {
                let hold = held(0, 10).renewed_by_a_watchdog().until(500, 501).told(outcome);
                check(&history([hold, waiting(20, 1_400)]).jumped(jump)).len()
            };
            assert_eq!([found(Outcome::Open, 502), found(Outcome::Done, 502)], [0, 1]);
            assert_eq!(found(Outcome::Open, 1_300), 1, "the release had been made by then");
        }),
        ("an outage is no time to judge", || {
            let found = |outage| {
                let calls = [held(0, 10).until(500, 501), waiting(20, 2000)];
                check(&history(calls).fault([Fault { settle: Some(0), ..outage }])).len()
            };
            assert_eq!([found(fault(600, 1500)), found(fault(600, 1000))], [0, 1]);
        }),
        ("a request of the dead may have been granted", || {
            let found = |granted| {
                let calls = [held(2, 10).until(480, 481), asked(0, 20), waiting(30, granted)];
                check(&history(calls).killed(490)).len()
            };
            assert_eq!([found(1500), found(2600)], [0, 1]);
        }),
        ("a crash blocks for its lease and no longer", || {
            let calls = |granted| [held(0, 10).renewed_by_a_watchdog(), waiting(20, granted)];
            let found = |calls: [Acquire; 2]| check(&history(calls).killed(500));
            assert_eq!(found(calls(1550)), []);
            assert_eq!(found(calls(2600))[0].rule, "H7");
            // A fair lock may have been granted to the dead.
            let fair =
                |granted| found(calls(granted).map(|call| call.of(KEY + 1).with_lease(100))).len();
            assert_eq!([fair(2_100), fair(2_200)], [0, 1]);
        }),
    ];
}
