//! H2 and H3: tokens of a fenced name are in the order of the holds, and one for each. Those of readers are for H18.

use crate::check::who;
use crate::history::LONGEST_LEASE;
use crate::prelude::*;

/// H2: a hold that was asked for after another had been granted has a higher token, unless both
/// are of one handle, which may nest.
///
/// A client hands a lock on inside a possession with the tokens that it drew with that. If somebody took the
/// key away meanwhile, and the client has not heard of it, others had the lock since: such a hold counts
/// as one that was asked for when the possession was.
pub(crate) fn order(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for grants in by_key(history) {
        let asked = asked(&grants, history);
        let mut returned = grants.into_iter().peekable();
        let mut highest: Option<&Acquire> = None;
        for (since, hold) in asked {
            while let Some(before) = returned.next_if(|before| before.ret < since) {
                if highest.is_none_or(|highest| highest.token < before.token) {
                    highest = Some(before);
                }
            }
            let Some(before) = highest else { continue };
            let nested = before.handle == hold.handle && before.token == hold.token;
            if before.token >= hold.token && !nested {
                let of =
                    |one: &Acquire| format!("token {} of {}", one.token.unwrap_or(0), who(one));
                let (first, second) = (of(before), of(hold));
                let what = format!("{first} was granted before {second} was asked for");
                let what = format!("name {}: {what}", hold.key);
                let window = (before.ret, hold.ret);
                found.push(Violation::new("H2", what, window).of(&[before, hold]));
            }
        }
    }
    found
}

/// The grants of one name, with the times from which their tokens have to be higher; in that order.
fn asked<'a>(grants: &[&'a Acquire], history: &History) -> Vec<(u64, &'a Acquire)> {
    let mut began: HashMap<Owner, u64> = HashMap::new();
    for hold in grants {
        let first = began.entry(hold.owner).or_insert(NEVER);
        *first = hold.inv.min(*first);
    }
    let key = grants.first().map(|hold| hold.key);
    let taken_away: Vec<_> = history.tampering().filter(|(of, ..)| Some(*of) == key).collect();
    let since = |hold: &Acquire| {
        let began = began[&hold.owner];
        let unheard_of = |t0: u64, t1: u64| {
            began <= t1 && t0 < hold.ret && hold.inv < t1.saturating_add(LONGEST_LEASE)
        };
        if taken_away.iter().any(|(_, t0, t1)| unheard_of(*t0, *t1)) { began } else { hold.inv }
    };
    let mut asked: Vec<_> = grants.iter().map(|hold| (since(hold), *hold)).collect();
    asked.sort_by_key(|(since, _)| *since);
    asked
}

/// H3: a token belongs to one hold of one handle: it is not used again once that was confirmed to
/// be over. Of two primaries, the one does not know what the other draws.
pub(crate) fn unique(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let reversions: Vec<_> = history.reversions().collect();
    let meanwhile = |all: [&Acquire; 2]| {
        let between = |(t0, t1): &(u64, u64)| all.iter().all(|one| (*t0..=*t1).contains(&one.ret));
        reversions.iter().any(between)
    };
    for mut grants in by_key(history) {
        // A lock that was handed to a call is its handle's before the call returns, and others nest in it.
        grants.sort_by_key(|hold| hold.inv);
        // For each token the hold that had it, and when all of them are known to have ended.
        let mut seen: HashMap<u64, (&Acquire, u64)> = HashMap::new();
        for hold in grants {
            let Some(token) = hold.token else { continue };
            let over = match hold.release {
                Some(release) if release.outcome == Outcome::Done => release.ret,
                _ => NEVER,
            };
            let Some((before, until)) = seen.insert(token, (hold, over)) else { continue };
            if (before.handle != hold.handle || until < hold.inv) && !meanwhile([before, hold]) {
                let (first, second) = (who(before), who(hold));
                let what = format!("token {token} was given to {first} and to {second}");
                let what = format!("name {}: {what}", hold.key);
                let window = (before.ret, hold.ret);
                found.push(Violation::new("H3", what, window).of(&[before, hold]));
            }
            seen.insert(token, (hold, until.max(over)));
        }
    }
    found
}

/// Grants with a token, of each name, in the order of their return.
fn by_key(history: &History) -> Vec<Vec<&Acquire>> {
    let mut keys: HashMap<u16, Vec<&Acquire>> = HashMap::new();
    for hold in history.grants().filter(|hold| hold.token.is_some() && !hold.reads) {
        keys.entry(hold.key).or_default().push(hold);
    }
    keys.into_values().collect()
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, fault, held, history};

    fn drew(who: u16, from: u64, token: u64) -> Acquire {
        held(who, from).with_token(token)
    }

    pub(crate) const TRIALS: Trials = &[
        ("tokens that grow are in order", || {
            let nested = [drew(0, 10, 5).until(20, 21), drew(0, 12, 5).until(18, 19)];
            let history = history([&nested[..], &[drew(1, 30, 6).until(40, 41)]].concat());
            assert_eq!(order(&history), []);
            assert_eq!(unique(&history), []);
        }),
        ("tokens of calls at the same time may cross", || {
            assert_eq!(order(&history([drew(0, 50, 6), drew(1, 60, 5).asked_at(5)])), []);
        }),
        ("a token that went back is out of order", || {
            let found = order(&history([drew(0, 10, 5), drew(1, 30, 4)]));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].rule, "H2");
        }),
        ("a token that was drawn before the key was taken away may come late", || {
            let found = |taken_away: Option<u64>, token| {
                let handed = drew(0, 40, token).by_handle(2);
                let calls = [drew(2, 5, 4), drew(0, 10, 5), drew(1, 30, 9), handed];
                order(&history(calls).freed(KEY, taken_away.map(|t| (t, t)))).len()
            };
            assert_eq!([found(Some(20), 6), found(None, 6), found(Some(8), 6)], [0, 1, 1]);
            assert_eq!(
                found(Some(20), 3),
                1,
                "lower than one that was there before its possession"
            );
        }),
        ("a token of two handles is not unique", || {
            assert_eq!(unique(&history([drew(0, 10, 5), drew(1, 30, 5)]))[0].rule, "H3");
        }),
        ("a token that two primaries draw is theirs", || {
            let found = |t1| {
                let reverts = Fault { reverts: true, ..fault(9, t1) };
                unique(&history([drew(0, 10, 5), drew(1, 30, 5)]).fault([reverts])).len()
            };
            assert_eq!([found(40), found(29)], [0, 1]);
        }),
        ("a token that comes again is not unique", || {
            let holds = vec![drew(0, 10, 5).until(20, 21), drew(0, 30, 5).until(40, 41)];
            assert_eq!(unique(&history(holds.clone())).len(), 1);
            // Another call of the handle had it meanwhile, and returned later.
            let handed = |asked| drew(0, 35, 5).until(38, 39).asked_at(asked);
            let with =
                |asked| unique(&history([holds.clone(), vec![handed(asked)]].concat())).len();
            assert_eq!([with(5), with(29)], [0, 1]);
        }),
    ];
}
