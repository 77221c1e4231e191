//! H15 and H16: who waits for a fair lock, or for a read-write lock, has it in the order of the calls.
//!
//! In a calm time nobody has it before one that called more than [`apart`](crate::check::Bounds) earlier
//! and waits still: within a round trip the order is not promised, and a busy machine runs somebody late. The time for which
//! the process of the earlier one is seen not to be run meanwhile comes on top.
//! One that Redis granted the lock, whose key was taken away before the call heard of that, has had it then.
//! One whose process lost a connection meanwhile may have to take its entry again: it counts as one that
//! called then. If the connection was young, its client pauses before it dials (W28): the call counts as one
//! that was made after the pause, even if the connection broke before the call. One that waited for an
//! earlier call of its handle counts from when that gave up: a handle waits once. Where the key of a hold is taken
//! away, those that wait in its client count from when that hold was over for the client: it had the lock, and brings
//! their entry with its next request. A client that closes gives its entry up, whatever comes of the request that a call
//! of it has under way.
//!
//! Of a read-write lock (H16) readers pass readers, and one that joins those of its client may pass a
//! writer that came within the time for which their share is open. One that gave up was passed, too, if
//! that was before its end. A writer that waits behind readers of its own client has its entry when the
//! client's next request brings it: that share and a few round trips after the last of them has the lock.

use crate::check::liveness::{Taken, taken};
use crate::nemesis::ANSWERS_LOST;
use crate::prelude::*;

/// How long a share is open, where an answer takes no longer: the default of `max_handoff_time`.
const SHARE: u64 = 10 * MS;

pub(crate) fn check(history: &History) -> Vec<Violation> {
    // Each connection that breaks counts for itself.
    let calm = &Calm::with(history, |fault| fault.kind != ANSWERS_LOST);
    let resets: Vec<Vec<(u64, u64)>> =
        (0..history.processes.len()).map(|n| history.resets_of(n)).collect();
    let pauses = Calm::of_pauses(history);
    let keys = history.acquires.chunk_by(|a, b| a.key == b.key);
    let in_order = keys.filter(|calls| Names::is_in_order(calls[0].key));
    in_order.filter_map(|calls| of_key(calls, history, calm, &resets, &pauses)).collect()
}

fn of_key(
    calls: &[Acquire],
    history: &History,
    calm: &Calm,
    resets: &[Vec<(u64, u64)>],
    pauses: &[Calm],
) -> Option<Violation> {
    let is_shared = Names::kind(calls[0].key) == Kind::ReadWrite;
    let waits = |call: &&Acquire| call.wait > 0;
    let mut gave_up: HashMap<_, Vec<&Acquire>> = HashMap::new();
    for call in calls.iter().filter(waits).filter(|call| !call.is_granted()) {
        gave_up.entry((call.handle, call.reads)).or_default().push(call);
    }
    // Until when a client may not have heard that the key of its hold was taken away.
    let mut unheard_of: Vec<(&Acquire, u64, u64)> = Vec::new();
    let taken_away: Vec<_> = history.tampering().filter(|(key, ..)| *key == calls[0].key).collect();
    for hold in calls.iter().filter(|call| call.is_granted()) {
        let released = hold.release.map_or(NEVER, |release| release.ret);
        let over = hold.loss.map_or(released, |loss| released.min(loss.t));
        let meanwhile = taken_away.iter().filter(|(_, t0, t1)| hold.inv <= *t1 && *t0 <= over);
        unheard_of.extend(meanwhile.map(|(_, t0, _)| (hold, *t0, over)));
    }
    // Since when a call has to have its entry.
    let since = |call: &Acquire| {
        let resets = &resets[usize::from(call.id.0)];
        let last = resets[..resets.partition_point(|(broke, _)| *broke <= call.ret)].last();
        let before = gave_up.get(&(call.handle, call.reads)).into_iter().flatten();
        let before = before.filter(|one| one.inv < call.inv && one.ret <= call.ret);
        let unheard_of = unheard_of.iter().filter(|(hold, t0, over)| {
            let is_before = hold.owner.0 == call.owner.0 && hold.ret < call.ret;
            is_before && *t0 <= call.ret && call.inv <= *over
        });
        let last = last.map(|(_, until)| *until).into_iter();
        let last = last.chain(before.map(|one| one.ret)).chain(unheard_of.map(|one| one.2)).max();
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
    // Redis may have granted it to a call first, and lost it before the call heard of that.
    let was_taken_away = |call: &Acquire| {
        // A drop does not say what it found.
        let may_be_lost = call
            .release
            .as_ref()
            .is_some_and(|release| release.how == How::Drop || release.outcome == Outcome::Lost);
        let meanwhile = |from: u64, to: u64| from <= call.ret && call.inv <= to;
        may_be_lost
            && history.tampering().any(|(key, from, to)| key == call.key && meanwhile(from, to))
    };
    let closed = history.closed();
    let closes =
        |call: &Acquire| closed.get(&call.owner.0).is_some_and(|of| of.closing <= call.ret);
    // Until when a call was certainly waiting.
    let until = |call: &Acquire| match call.outcome {
        Outcome::Granted if was_taken_away(call) || closes(call) => None,
        Outcome::Granted => Some(call.ret),
        Outcome::Busy | Outcome::Cancelled if is_shared => {
            Some(call.ret.saturating_sub(history.bounds.apart))
        }
        _ => None,
    };
    let waited = calls.iter().filter(waits).filter_map(|call| Some((until(call)?, call)));
    let mut waited: Vec<(u64, &Acquire)> = waited.filter(|(_, call)| !nests(call)).collect();
    waited.sort_by_key(|(until, _)| std::cmp::Reverse(*until));
    // Those that came first of all who waited for longer: of those that exclude all others, and of readers.
    let mut first: [Option<(u64, u64, &Acquire)>; 2] = [None; 2];
    for (until, call) in waited {
        let passes = first.iter().take(if call.reads { 1 } else { 2 }).flatten();
        let apart = history.bounds.apart + if call.reads { SHARE } else { 0 };
        let passed = passes.filter(|(since, waited, earlier)| {
            // For so long it could not ask.
            let late = pauses[usize::from(earlier.id.0)].disturbed(*since, call.inv);
            call.is_granted() && until < *waited && since.saturating_add(apart + late) < call.inv
        });
        // Behind readers of its own client, and not in the queue yet.
        let comes = |earlier: &Acquire| {
            let since = until.saturating_sub(SHARE + 3 * history.bounds.round_trip);
            let ours = calls.iter().filter(|one| one.reads && one.owner.0 == earlier.owner.0);
            let mut ours = ours.filter(|one| one.is_granted() && one.inv < earlier.inv);
            ours.any(|one| (since..=until + history.bounds.round_trip).contains(&one.ret))
        };
        let passed = passed.min_by_key(|(since, ..)| since);
        if let Some((_, waited, earlier)) = passed.filter(|(.., earlier)| !comes(earlier)) {
            let what = match is_shared {
                true => "a call of a read-write lock",
                false => "a call of a fair lock",
            };
            let what = format!(
                "name {}: {what} had it {} ms before one that was made {} ms earlier",
                call.key,
                (waited - until) / MS,
                (call.inv - earlier.inv) / MS
            );
            let rule = if is_shared { "H16" } else { "H15" };
            return Some(
                Violation::new(rule, what, (earlier.inv, earlier.ret)).of(&[earlier, call]),
            );
        }
        let since = since(call);
        let first = &mut first[usize::from(call.reads)];
        let is_first = first.is_none_or(|(first, ..)| since < first);
        if is_first && calm.disturbed(call.inv, call.ret) == 0 {
            *first = Some((since, until, call));
        }
    }
    None
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{asked, deleted, fault, held, history};
    use crate::history::{Reach, Release};
    use crate::nemesis::RESET;

    const FAIR: u16 = 1;
    const SHARED: u16 = 3;

    fn waited(who: u16, asked: u64, granted: u64) -> Acquire {
        held(who, granted).asked_at(asked).of(FAIR)
    }

    /// Process 0 calls at zero and has the lock from 1000 on, and loses connections, which are not made again for so
    /// long; process 1 calls and has the lock then.
    fn found(resets: &[(u64, u64)], called: u64, had: u64) -> Vec<Violation> {
        let calls = [(0, 0, 1_000), (1, called, had)];
        let calls = calls.map(|(who, asked, t)| waited(who, asked, t).until(t + 10, t + 11));
        let (kind, reach) = (RESET, Reach::Process(0));
        let broke =
            |(t, pause): &(u64, u64)| Fault { kind, reach, pause: pause * MS, ..fault(*t, *t) };
        check(&history(calls).fault(resets.iter().map(broke)))
    }

    pub(crate) const TRIALS: Trials = &[
        ("who lost a connection has its entry again a while after that", || {
            assert_eq!(found(&[(400, 0)], 500, 900), []);
            assert_eq!(found(&[(400, 0)], 700, 900).len(), 1);
            assert_eq!(found(&[(1_001, 0)], 500, 900).len(), 1, "it had the lock by then");
        }),
        ("who lost a young connection has its entry a while after the pause", || {
            assert_eq!(found(&[(0, 300)], 500, 900), [], "it broke before the call");
            assert_eq!(found(&[(0, 300)], 700, 900).len(), 1);
            assert_eq!(found(&[(0, 0)], 500, 900).len(), 1, "it was made again at once");
            assert_eq!(found(&[(0, 300), (10, 0)], 500, 900), [], "another one broke, too");
            assert_eq!(found(&[(1_001, 300)], 500, 900).len(), 1, "it had the lock by then");
        }),
        ("who lost it before it heard of it was not passed", || {
            let found = |(how, outcome), deleted_at: Option<u64>| {
                let release = Release { how, inv: 1_010 * MS, ret: 1_011 * MS, outcome };
                let earlier = Acquire { release: Some(release), ..waited(0, 0, 1_000) };
                let calls = [earlier, waited(1, 500, 900).until(910, 911)];
                check(&history(calls).fault(deleted_at.map(|t| deleted(FAIR, t)))).len()
            };
            let [lost, done] = [Outcome::Lost, Outcome::Done].map(|outcome| (How::Unlock, outcome));
            for release in [lost, (How::Drop, Outcome::Open)] {
                assert_eq!(found(release, Some(800)), 0);
                assert_eq!(found(release, None), 1, "its key was there");
            }
            assert_eq!(found(done, Some(800)), 1, "it had the lock");
        }),
        ("who closes gives its entry up", || {
            let found = |closing| {
                let calls = [waited(0, 0, 1_000), waited(1, 500, 900).until(910, 911)];
                check(&history(calls).closed_at(closing, closing)).len()
            };
            assert_eq!([found(800), found(1_200)], [0, 1]);
        }),
        ("who waits behind a hold that was taken away comes when its client hears", || {
            // A hold of that process until then, and when its key was taken away.
            let found = |who, until, taken_away: Option<u64>| {
                let hold = waited(who, 0, 200).until(until, until).by_handle(2);
                let history = history([waited(0, 10, 1_000), waited(1, 700, 900), hold]);
                check(&history.fault(taken_away.map(|t| deleted(FAIR, t)))).len()
            };
            assert_eq!([found(0, 550, None), found(0, 550, Some(300))], [1, 0]);
            assert_eq!(found(0, 550, Some(600)), 1, "it was over by then");
            assert_eq!(found(0, 450, Some(300)), 1, "it was over long before the other one came");
            assert_eq!(found(2, 550, Some(300)), 1, "another client had it");
        }),
        ("who waited for its own handle came when that gave up", || {
            let found = |called| {
                let gave_up = asked(0, 0).ended(Outcome::Cancelled, 400).of(FAIR);
                check(&history([waited(0, 1, 1_000), waited(1, called, 900), gave_up])).len()
            };
            assert_eq!([found(500), found(700)], [0, 1]);
        }),
        ("who was not run for a while came so much later", || {
            // The other one comes so much later, and process 0 is not run twice for 15 ms meanwhile.
            let found = |later: u64, paused: bool| {
                let calls = [waited(0, 0, 1_000), waited(1, later, 900).until(910, 911)];
                let pauses = [(50, 65), (100, 115), (500, 515)];
                check(&history(calls).paused(pauses.into_iter().filter(|_| paused))).len()
            };
            assert_eq!([found(240, false), found(240, true), found(260, true)], [1, 0, 1]);
        }),
        ("nobody passes a writer and readers pass each other", || {
            // Process 0 waits from zero on until it has it at 1000 or gives up; process 1 calls at 500 and has it at 700.
            let earlier = [held(0, 1_000).asked_at(0), asked(0, 0).ended(Outcome::Busy, 1_000)];
            let later = held(1, 700).asked_at(500).until(710, 711);
            for earlier in earlier {
                for (first, second) in [(true, true), (true, false), (false, true), (false, false)]
                {
                    let calls = [(first, earlier.clone()), (second, later.clone())];
                    let calls = calls.map(|(reads, call)| Acquire { reads, ..call.of(SHARED) });
                    let found = check(&history(calls));
                    assert_eq!(found.len(), usize::from(!(first && second)), "{found:?}");
                    assert!(found.iter().all(|violation| violation.rule == "H16"), "{found:?}");
                }
            }
        }),
        ("a writer behind its own readers has its entry a while after them", || {
            let found = |reader_had_it| {
                let reader = held(0, reader_had_it).asked_at(0).reading();
                let reader = reader.until(reader_had_it + 5, reader_had_it + 6).by_handle(2);
                let later = held(1, 700).asked_at(500).until(710, 711).reading();
                let calls = [held(0, 1_000).asked_at(1), reader, later];
                check(&history(calls.map(|call| call.of(SHARED)))).len()
            };
            assert_eq!([found(680), found(600)], [0, 1]);
        }),
        ("who came first has it first", || {
            assert_eq!(found(&[], 500, 1_100), []);
            let apart = "they came at the same time, for all that is promised";
            assert_eq!(found(&[], 100, 900), [], "{apart}");
            let found = found(&[], 500, 900);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].rule, "H15");
        }),
    ];
}
