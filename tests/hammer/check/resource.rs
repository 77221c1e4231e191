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
    let wrong = |write: &StoreWrite| {
        let (hold, window) = (covered(write)?, (write.inv, write.ret));
        if let Some(token) = write.token {
            let what = format!(
                "the store refused token {token} of name {}, whose hold was believed all the time: \
                 it had seen {}",
                write.key, write.before
            );
            return Some(Violation::new("H4", what, window).of(&[hold]));
        }
        let other = by_writer.get(&write.before).and_then(|other| covered(other));
        // Two tasks may share a handle, and its hold.
        let other = other.filter(|other| other.handle != hold.handle)?;
        let what = if hold.reads { "one read and another" } else { "two holders" };
        let what = format!("name {}: {what} wrote at the same time", write.key);
        Some(Violation::new("H4", what, window).of(&[hold, other]))
    };
    refused(history).filter_map(wrong).chain(monotone(history)).collect()
}

fn refused(history: &History) -> impl Iterator<Item = &StoreWrite> {
    history.writes.iter().filter(|write| !write.accepted)
}

/// In the order in which the store served them, no accepted token is lower than one before.
fn monotone(history: &History) -> Vec<Violation> {
    let accepted = history.writes.iter().filter(|write| write.accepted);
    let mut fenced: Vec<_> = accepted.filter_map(|write| Some((write.token?, write))).collect();
    fenced.sort_by_key(|(_, write)| (write.key, write.number));
    let mut highest: HashMap<u16, u64> = HashMap::new();
    let lower = |(token, write): (u64, &StoreWrite)| {
        let highest = highest.entry(write.key).or_default();
        let before = std::mem::replace(highest, token.max(*highest));
        (token < before).then(|| {
            let what = format!("accepted token {token} after {before}");
            let what = format!("the store of name {} {what}", write.key);
            Violation::new("H4", what, (write.inv, write.ret))
        })
    };
    fenced.into_iter().filter_map(lower).collect()
}

/// Writes that came after their hold was over: refused where tokens are compared, else accepted.
pub(crate) fn late_writes(history: &History) -> (usize, usize) {
    let fenced = refused(history).filter(|write| write.token.is_some()).count();
    (fenced, refused(history).count() - fenced)
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, held, history};

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
