//! H8 and H9: loss is told in time, for good, and only when it happened.

use crate::check::liveness::takes_one_by_one;
use crate::history::LONGEST_LEASE;
use crate::prelude::*;

fn late(history: &History, hold: &Acquire) -> u64 {
    history.bounds.late + hold.lease * history.bounds.permille / 1000
}

/// H8: at the deadline, whatever the network does, and never taken back.
pub(crate) fn in_time(history: &History) -> Vec<Violation> {
    let pauses = Calm::of_pauses(history);
    let mut found = Vec::new();
    for hold in history.grants() {
        let mut wrong = |what: &str, t: u64| {
            found.push(Violation::of_hold("H8", hold, what, (hold.deadline_high.min(t), t)));
        };
        if let Some(t) = hold.healed {
            wrong("was believed again after it had been lost", t);
        }
        if let Some(t) = hold.overdue {
            wrong("was believed after its own deadline", t);
        }
        let Some(loss) = hold.loss.filter(|loss| loss.noticed) else { continue };
        let pauses = pauses[usize::from(hold.id.0)].disturbed(hold.last_true, loss.t);
        // Then it may have been renewed since anybody looked, and the loss is that of its key.
        let taken_away = hold.watched
            && history
                .tampering()
                .any(|(key, _, t1)| hold.has(key) && (hold.last_true..=loss.t).contains(&t1));
        if loss.t > hold.deadline_high + late(history, hold) + pauses && !taken_away {
            let late = (loss.t - hold.deadline_high) / MS;
            wrong(&format!("was told of its loss {late} ms after the deadline"), loss.t);
        }
    }
    found
}

/// H8 again: whose key was deleted is told at the next renewal.
pub(crate) fn of_deletion(history: &History) -> Vec<Violation> {
    let calm = Calm::of_each(history);
    let closed = history.closed();
    // A closed client renews nothing.
    let renews = |hold: &Acquire| {
        closed.get(&hold.owner.0).is_none_or(|client| hold.last_true < client.closing)
    };
    let mut found = Vec::new();
    for (key, t0, t1) in history.deletions() {
        let deleted = |hold: &&Acquire| {
            hold.key == key && hold.watched && hold.ret < t0 && t1 < hold.last_true && renews(hold)
        };
        for hold in history.grants().filter(deleted) {
            // A try that was not answered is given up after a third, the next comes a twelfth later.
            let renewed = hold.lease / 3 + hold.lease / 12 + late(history, hold);
            let due = calm[usize::from(hold.id.0)].after(t1 + hold.lease / 3, renewed);
            if due < hold.last_true {
                let late = (hold.last_true - t1) / MS;
                let what = format!("still believed {late} ms after its key was deleted");
                found.push(Violation::of_hold("H8", hold, &what, (t0, hold.last_true)));
            }
        }
    }
    found
}

/// H9: nobody is told of a loss that did not happen. Before the deadline, only somebody who takes
/// the key away can be the reason; a lease that is renewed ends only if it could not be. (Of a lock
/// that was handed off, and of which nobody knows that Redis heard, the reason may be older: see
/// [`came_from_a_deleted_key`].)
pub(crate) fn not_false(history: &History) -> Vec<Violation> {
    let reasons_of = |number: usize| {
        let outages =
            history.outages_of(number).map(|(from, to)| (from, to + history.bounds.aftermath));
        let gaps = history.processes[number].gaps.iter().chain(&history.gaps);
        Calm::without(outages.chain(gaps.copied()))
    };
    let reasons: Vec<Calm> = (0..history.processes.len()).map(reasons_of).collect();
    let closed = history.closed();
    let mut found = Vec::new();
    for hold in history.grants() {
        let Some(lost) = told(hold) else { continue };
        let jumps = &history.processes[usize::from(hold.id.0)].jumps;
        if jumps.iter().any(|t| (hold.inv..=lost).contains(t)) {
            continue;
        }
        if tampered(history, hold, lost)
            || hold.in_the_air()
            || came_from_a_deleted_key(history, hold)
            || outlived_what_is_left(history, hold)
        {
            continue;
        }
        let window = (hold.ret, lost);
        let wrong_clock = hold.lease * history.bounds.permille / 1000;
        if lost + wrong_clock < hold.deadline {
            let left = (hold.deadline - lost) as f64 / MS as f64;
            let what = format!(
                "was told of a loss {left:.1} ms before its deadline, and nobody had touched the key"
            );
            found.push(Violation::of_hold("H9", hold, &what, window));
        } else if hold.watched
            && closed.get(&hold.owner.0).is_none_or(|client| lost < client.closing)
        {
            let from = hold.deadline.saturating_sub(hold.lease);
            // It may have been renewed since somebody has looked, and lost long before it was told so.
            let over = lost.min(hold.deadline_high + late(history, hold));
            let later = (0..=lost - over).step_by((hold.lease / 50).max(MS) as usize);
            let reasons = &reasons[usize::from(hold.id.0)];
            let disturbed = later.map(|later| reasons.disturbed(from + later, over + later));
            let disturbed = disturbed.max().unwrap_or_default();
            if disturbed * 10 < hold.lease * 4 {
                let (disturbed, lease) = (disturbed / MS, hold.lease / MS);
                let what = format!(
                    "was not renewed in time, although only {disturbed} of its {lease} ms were disturbed"
                );
                found.push(Violation::of_hold("H9", hold, &what, window));
            }
        }
    }
    found
}

/// When the holder was told, whichever way.
fn told(hold: &Acquire) -> Option<u64> {
    let released = hold.release.filter(|release| release.outcome.is_lost());
    hold.loss.map(|loss| loss.t).into_iter().chain(released.map(|release| release.ret)).min()
}

/// Whether a release may have come to the server twice: once it left the lease of an outer hold of that
/// handle, which had ended when it came again.
fn outlived_what_is_left(history: &History, hold: &Acquire) -> bool {
    let released = hold.release.filter(|release| release.outcome.is_lost() && hold.loss.is_none());
    released.is_some_and(|release| {
        let outer = |other: &Acquire| {
            other.handle == hold.handle
                && other.id != hold.id
                && other.ret <= hold.ret
                && (hold.ret..=release.ret).contains(&other.deadline)
        };
        history.grants().any(outer)
    })
}

fn tampered(history: &History, hold: &Acquire, until: u64) -> bool {
    let touches = |t0: u64, t1: u64| t0 <= until && (t1 >= hold.inv || hold.came_from(t1));
    history.tampering().any(|(key, t0, t1)| hold.has(key) && touches(t0, t1))
}

/// Whether the lock may have been handed off to that call inside its client, directly or through
/// others, by a hold whose key was taken away. Neither knew of it until Redis was told of the
/// hand-off.
fn came_from_a_deleted_key(history: &History, hold: &Acquire) -> bool {
    // A lock is handed off to a call that waits, when a hold ends or another call is dropped.
    let ends = |call: &Acquire| match call.outcome {
        Outcome::Granted => call.release.map(|release| release.inv),
        _ => Some(call.ret),
    };
    let hands_off_to = |from: &Acquire, to: &Acquire| {
        let waits = to.inv..=to.ret;
        let fresh = |t: u64| t.saturating_add(LONGEST_LEASE) > hold.ret;
        // One that takes its locks one by one gives back what it has when it cannot have all.
        let on_its_way = || {
            let since = takes_one_by_one(from, history);
            since.is_some_and(|since| since <= to.ret && to.inv <= from.ret && fresh(from.ret))
        };
        let at_its_end = ends(from).is_some_and(|t| waits.contains(&t) && fresh(t));
        from.owner.0 == to.owner.0 && (at_its_end || on_its_way())
    };
    let of_key = |call: &&Acquire| call.key == hold.key && call.id != hold.id;
    let mut others: Vec<&Acquire> = history.acquires.iter().filter(of_key).collect();
    let mut chain = vec![hold];
    while let Some(to) = chain.pop() {
        let (from, rest) = others.into_iter().partition(|from| hands_off_to(from, to));
        others = rest;
        chain.extend::<Vec<&Acquire>>(from);
        if chain.iter().any(|call| tampered(history, call, to.ret)) {
            return true;
        }
    }
    false
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, asked, deleted, fault, held, history};

    fn watched() -> Acquire {
        held(0, 10).renewed_by_a_watchdog()
    }

    pub(crate) const TRIALS: Trials = &[
        ("a late notice is found unless the process stood still", || {
            let lost_at = |t| history([held(0, 10).lost_at(t)]);
            assert_eq!(in_time(&lost_at(1011)), []);
            assert_eq!(not_false(&lost_at(1011)), []);
            assert_eq!(in_time(&lost_at(1100))[0].rule, "H8");
            assert_eq!(in_time(&lost_at(1100).paused([(900, 1050)])), []);
        }),
        ("whose key is taken away after a renewal is told when that is known", || {
            let found = |watched, until| {
                let hold = Acquire { watched, ..held(0, 10).lost_at(1100) };
                in_time(&history([hold]).freed(KEY, [(1050, until)]))
            };
            assert_eq!(found(true, 1060), []);
            assert_eq!(found(true, 1150)[0].rule, "H8");
            assert_eq!(found(false, 1060)[0].rule, "H8");
        }),
        ("what held up less than one lease is no reason for its end", || {
            let found = |pauses: Vec<(u64, u64)>| {
                not_false(&history([watched().lost_at(9000)]).paused(pauses))
            };
            // Half a second in all, and never much of a lease at once.
            let short = (1..9).map(|second| (second * 1000, second * 1000 + 60));
            assert_eq!(found(short.collect())[0].rule, "H9");
            // Nobody has looked since, so it may have been renewed until then.
            assert_eq!(found(vec![(3000, 3500)]), []);
        }),
        ("belief after the deadline or a loss is found", || {
            let late = Acquire { overdue: Some(1200 * MS), ..held(0, 10) };
            let healed = Acquire { healed: Some(3600 * MS), ..held(1, 3000).lost_at(3500) };
            assert_eq!(in_time(&history([late, healed])).len(), 2);
        }),
        ("a loss before the deadline needs a reason", || {
            let lost = || history([held(0, 10).lost_at(500)]);
            assert_eq!(not_false(&lost())[0].rule, "H9");
            // Handed off, and never confirmed: what took it away may have come before the call.
            assert_eq!(not_false(&history([held(0, 10).lost_at(100).valid_until(300)])), []);
            assert_eq!(not_false(&lost().fault([deleted(KEY, 400)])), []);
        }),
        ("who joined after the key was deleted is told of a loss", || {
            let found = |t| {
                let joined = held(0, 400).lost_at(500).by_handle(2);
                let calls = [held(0, 10).believed_until(300), joined];
                not_false(&history(calls).freed(KEY, [(t, t + 1)])).len()
            };
            assert_eq!([found(5), found(350)], [1, 0]);
        }),
        ("a release of a nested hold may come when the outer one has ended", || {
            let found = |outer_ends| {
                let outer = Acquire { deadline: outer_ends * MS, ..held(0, 10).with_lease(40) };
                not_false(&history([outer, held(0, 20).until(45, 90).told(Outcome::Lost)])).len()
            };
            assert_eq!([found(50), found(95)], [0, 1]);
        }),
        ("a lock handed off by one whose key was deleted is lost for a reason", || {
            // The key of the first is deleted at 400. At 505 it hands the lock off to the second, and
            // at 510 the second to the third, which learns at 520 that there is nothing.
            let found = |first: u16, asked: [u64; 2], deleted: Option<(u64, u64)>| {
                let first = Acquire { deadline: 9_000 * MS, ..held(first, 10).until(505, 520) };
                let second = held(0, 506).until(510, 520).asked_at(asked[0]).by_owner(2);
                let third = held(0, 511).until(512, 520).asked_at(asked[1]).by_owner(3);
                let calls = [first, second, third.told(Outcome::Lost)];
                not_false(&history(calls).freed(KEY, deleted)).len()
            };
            let deleted = Some((400, 401));
            assert_eq!(found(0, [450, 460], deleted), 0);
            // Inside one client only, and only one after the other.
            assert_eq!([found(1, [450, 460], deleted), found(0, [506, 506], deleted)], [1, 1]);
            assert_eq!(found(0, [450, 460], None), 1);
        }),
        ("a lock handed off by one who waits for more is lost for a reason", || {
            // The first waits for several locks, takes this one, whose key is deleted at 400, and gives it back at 505.
            let found = |waits_for, until| {
                let several = asked(0, 10).ended(Outcome::Busy, until);
                let second = held(0, 506).until(510, 520).told(Outcome::Lost).asked_at(450);
                let calls = [Acquire { set: waits_for, ..several }, second];
                not_false(&history(calls).freed(KEY, [(400, 401)])).len()
            };
            assert_eq!([found(0b101, 900), found(0b101, 440), found(0, 900)], [0, 1, 1]);
        }),
        ("who goes on believing in a deleted key is found", || {
            let history = || history([watched().believed_until(1900)]);
            let found = |t| of_deletion(&history().freed(KEY, [(t, t + 1)])).len();
            assert_eq!([found(1050), found(1100)], [1, 0]);
            // Another server of a cluster has lost its keys: this one is there.
            let found = |spared: &[u16]| {
                let fault = Fault { spared: spared.to_vec(), ..deleted(KEY, 1050) };
                of_deletion(&history().fault([fault])).len()
            };
            assert_eq!([found(&[]), found(&[KEY])], [1, 0]);
        }),
        ("a closed client renews nothing", || {
            let lost = || history([watched().lost_at(1010)]);
            let found = |closing| not_false(&lost().closed_at(closing, closing)).len();
            assert_eq!([found(1011), found(500)], [1, 0]);
            let deleted = || history([watched().believed_until(1900)]).freed(KEY, [(1050, 1051)]);
            let found = |closing| of_deletion(&deleted().closed_at(closing, closing)).len();
            assert_eq!([found(1901), found(1000)], [1, 0]);
        }),
        ("a watchdog that gives up early is found", || {
            let lost = || history([watched().lost_at(1010)]);
            assert_eq!(not_false(&lost())[0].rule, "H9");
            assert_eq!(not_false(&lost().paused([(100, 600)])), []);
            // Of a request that is held up, and of one that was for too short a time.
            let found = |arrives| {
                let (settle, late) = (Some(1_700 * MS), Some(arrives * MS));
                not_false(&lost().fault([Fault { settle, late, ..fault(150, 200) }])).len()
            };
            assert_eq!([found(900), found(300)], [0, 1]);
        }),
    ];
}
