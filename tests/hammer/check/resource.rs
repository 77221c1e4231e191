//! H4: what the protected resource saw. It does not know of locks, and so is a witness of its own.
//!
//! A holder that is paused after its last look writes late: no lease can prevent that, and it is
//! what tokens are for. So a write counts only if its hold was believed before and after it.

use crate::history::StoreWrite;
use crate::prelude::*;

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let holds: HashMap<(Id, u16), &Acquire> =
        history.grants().map(|hold| ((hold.id, hold.key), hold)).collect();
    let covered = |write: &StoreWrite| {
        holds.get(&(write.hold, write.key)).copied().filter(|hold| write.ret <= hold.believed)
    };
    let by_writer: HashMap<u64, &StoreWrite> =
        history.writes.iter().map(|write| (write.me, write)).collect();
    let mut found = Vec::new();
    for write in &history.writes {
        let Some(hold) = covered(write) else { continue };
        if write.accepted {
            continue;
        }
        let window = (write.inv, write.ret);
        if let Some(token) = write.token {
            let what = format!(
                "the store refused token {token} of name {}, whose hold was believed all the time: \
                 it had seen {}",
                write.key, write.before
            );
            found.push(Violation::new("H4", what, window).of(&[hold]));
            continue;
        }
        let other = by_writer.get(&write.before).and_then(|other| covered(other));
        // Two tasks may share a handle, and its hold.
        if let Some(other) = other.filter(|other| other.handle != hold.handle) {
            let what = if hold.reads { "one read and another" } else { "two holders" };
            let what = format!("name {}: {what} wrote at the same time", write.key);
            found.push(Violation::new("H4", what, window).of(&[hold, other]));
        }
    }
    found.extend(monotone(history));
    found
}

/// In the order in which the store served them, no accepted token is lower than one before.
fn monotone(history: &History) -> Vec<Violation> {
    let mut fenced: Vec<_> =
        history.writes.iter().filter_map(|write| Some((write.token?, write))).collect();
    fenced.sort_by_key(|(_, write)| (write.key, write.number));
    let mut found = Vec::new();
    let mut highest = (u16::MAX, 0);
    for (token, write) in fenced {
        if highest.0 != write.key {
            highest = (write.key, 0);
        }
        if write.accepted && token < highest.1 {
            let what = format!(
                "the store of name {} accepted token {token} after {}",
                write.key, highest.1
            );
            found.push(Violation::new("H4", what, (write.inv, write.ret)));
        }
        highest.1 = highest.1.max(if write.accepted { token } else { 0 });
    }
    found
}

/// Writes that came after their hold was over: refused where tokens are compared, else accepted.
pub(crate) fn late_writes(history: &History) -> (usize, usize) {
    let refused = history.writes.iter().filter(|write| !write.accepted);
    let (fenced, plain): (Vec<&StoreWrite>, Vec<_>) =
        refused.partition(|write| write.token.is_some());
    (fenced.len(), plain.len())
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, held, history};
    use crate::trials::Trials;

    fn write(hold: &Acquire, me: u64, (inv, ret): (u64, u64), before: u64) -> StoreWrite {
        let (hold, key, inv, ret) = (hold.id, KEY, inv * MS, ret * MS);
        StoreWrite { hold, key, inv, ret, me, token: None, before, number: 0, accepted: false }
    }

    fn wrote<const N: usize>(holds: [Acquire; N], writes: [StoreWrite; 2]) -> History {
        history(holds).with(|history| history.writes = writes.into())
    }

    pub(crate) const TRIALS: Trials = &[
        ("a write between two of a believed holder is seen", || {
            let (a, b) = (held(0, 10), held(1, 20));
            let writes = [write(&a, 7, (12, 30), 0), write(&b, 8, (21, 40), 7)];
            assert_eq!(check(&wrote([a, b], writes)).len(), 1);
        }),
        ("a write that came late is nobodys fault", || {
            let (a, b) = (held(0, 10), held(1, 1020));
            let writes = [write(&a, 7, (12, 1030), 0), write(&b, 8, (1021, 1040), 7)];
            let history = wrote([a, b], writes);
            assert_eq!(check(&history), []);
            assert_eq!(late_writes(&history), (0, 2));
        }),
        ("a token refused in mid hold is seen", || {
            let a = held(0, 10).with_token(5);
            let fenced = StoreWrite { token: Some(5), ..write(&a, 7, (12, 30), 6) };
            let history = history([a]).with(|history| history.writes.push(fenced));
            assert_eq!(check(&history)[0].rule, "H4");
        }),
        ("a store that accepts a lower token is seen", || {
            let found = |tokens: [u64; 2]| {
                let late = |number: u64| StoreWrite {
                    token: Some(tokens[number as usize - 1]),
                    number,
                    accepted: true,
                    ..write(&held(0, 10), number, (5000, 5001), 0)
                };
                check(&wrote([], [1, 2].map(late))).len()
            };
            assert_eq!([found([5, 4]), found([4, 5])], [1, 0]);
        }),
    ];
}
