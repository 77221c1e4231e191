//! H18: the token of a reader is that of the last writer.
//!
//! - It is not lower than that of a writer that had the lock before the reader called.
//! - It is lower than those of all that called to write after the reader had the lock. What a client draws ahead for its
//!   writers counts from the first of them.
//! - It is the token of a writer. Where a writer left without a word to the server, or may have, the last one that its
//!   client had drawn stays, which no writer has. A call that was not granted has drawn some if the server wrote what
//!   it asked for, or was asked to undo that, as far as somebody listened; or it has one of its client's, which handed
//!   it the lock.
//!
//! Where the server lost the counter, a reader has none, or an old one, until the next writer.

use std::collections::HashSet;

use crate::check::orphans::surely_over;
use crate::check::who;
use crate::prelude::*;

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let calm = Calm::of(history);
    let keys = history.acquires.chunk_by(|a, b| a.key == b.key);
    let fenced = keys.filter(|calls| Names::has_tokens(calls[0].key));
    fenced.flat_map(|calls| of_key(calls, history, &calm)).collect()
}

/// The calls of one name.
struct Calls<'a> {
    all: &'a [Acquire],
    history: &'a History,
    calm: &'a Calm,
    /// When the server lost its counter, or its lock.
    lost: Vec<(u64, u64)>,
    taken_away: Vec<(u64, u64)>,
    /// When the server wrote an owner that no call was granted, or was asked to release it, and the owner's client.
    strange: Vec<(u64, u128)>,
}

fn of_key<'a>(all: &'a [Acquire], history: &'a History, calm: &'a Calm) -> Vec<Violation> {
    let key = all[0].key;
    let lost = history.faults.iter().filter(|fault| fault.tokens.contains(&key));
    let taken_away = history.tampering().filter(|(of, ..)| *of == key);
    let known: HashSet<Owner> =
        all.iter().filter(|call| call.is_granted()).map(|call| call.owner).collect();
    let commands = history.heard.iter().flat_map(|heard| &heard.commands);
    let strange = commands.filter(|command| {
        command.key == key
            && matches!(command.what, What::Wrote | What::GivenBack)
            && !known.contains(&command.owner)
    });
    let calls = Calls {
        strange: strange.map(|command| (command.t, command.owner.0)).collect(),
        all,
        history,
        calm,
        lost: lost.map(|fault| (fault.t0, fault.t1)).collect(),
        taken_away: taken_away.map(|(_, t0, t1)| (t0, t1)).collect(),
    };
    let (readers, writers): (Vec<_>, Vec<_>) = all
        .iter()
        .filter(|call| call.is_granted())
        .filter_map(|call| Some((call.token?, call)))
        .partition(|(_, call)| call.reads);
    let before = highest(writers.clone());
    let after = lowest(writers.clone());
    let tokens: HashMap<u64, &Acquire> = writers.iter().copied().collect();
    let mut found = Vec::new();
    for (token, reader) in readers {
        let mut wrong = |what: String, other: &Acquire| {
            let what = format!("name {key}: {} reads with token {token}, {what}", who(reader));
            let window = (reader.inv.min(other.ret), reader.ret.max(other.inv));
            found.push(Violation::new("H18", what, window).of(&[reader, other]));
        };
        let first = before.partition_point(|(at, ..)| *at < reader.inv);
        if let Some((_, highest, writer)) = first.checked_sub(1).map(|at| before[at])
            && token < highest
            && calls.is_known(writer, reader)
        {
            wrong(format!("and {} had written with {highest}", who(writer)), writer);
        }
        let next = after.partition_point(|(at, ..)| *at <= reader.ret);
        if let Some((_, lowest, writer)) = after.get(next).copied()
            && lowest <= token
        {
            wrong(format!("and {} wrote later, with {lowest}", who(writer)), writer);
        }
        if token > 0 && !tokens.contains_key(&token) {
            let earlier = writers.iter().filter(|(of, _)| *of < token);
            let last = earlier.max_by_key(|(of, _)| *of).map(|(_, writer)| *writer);
            if !calls.may_be_of_nobody(token, last, reader) {
                wrong("which no writer has".into(), last.unwrap_or(reader));
            }
        }
    }
    found
}

/// For each time at which one had the lock, the highest token until then.
fn highest(mut writers: Vec<(u64, &Acquire)>) -> Vec<(u64, u64, &Acquire)> {
    writers.sort_by_key(|(_, writer)| writer.ret);
    let mut highest: Option<(u64, &Acquire)> = None;
    let upto = writers.into_iter().map(|(token, writer)| {
        let one = highest.filter(|(before, _)| *before > token).unwrap_or((token, writer));
        highest = Some(one);
        (writer.ret, one.0, one.1)
    });
    upto.collect()
}

/// For each time at which a possession began to write, the lowest token from then on.
fn lowest(mut writers: Vec<(u64, &Acquire)>) -> Vec<(u64, u64, &Acquire)> {
    writers.sort_by_key(|(_, writer)| std::cmp::Reverse(writer.began));
    let mut lowest: Option<(u64, &Acquire)> = None;
    let from = writers.into_iter().map(|(token, writer)| {
        let one = lowest.filter(|(before, _)| *before < token).unwrap_or((token, writer));
        lowest = Some(one);
        (writer.began, one.0, one.1)
    });
    let mut from: Vec<_> = from.collect();
    from.reverse();
    from
}

impl Calls<'_> {
    /// Whether the server has what that writer has drawn when the reader has the lock from it.
    fn is_known(&self, writer: &Acquire, reader: &Acquire) -> bool {
        let until = |from: u64| move |(t0, t1): &(u64, u64)| from <= *t1 && *t0 <= reader.ret;
        // One that joins readers of its client that have lost the lock, and have not heard of it, is as old as they are.
        !self.lost.iter().any(until(writer.began))
            && !self.taken_away.iter().any(until(reader.began))
    }

    /// Whether a client may have drawn that token for a writer that never had the lock, and not have given it back.
    fn may_be_of_nobody(&self, token: u64, last: Option<&Acquire>, reader: &Acquire) -> bool {
        let Self { history, calm, .. } = *self;
        let from = last.map_or(0, |last| last.began);
        let mut disturbed = self.lost.iter().chain(&self.taken_away);
        let mut others = self.all.iter().filter(|call| !call.reads && call.inv <= reader.ret);
        disturbed.any(|(t0, t1)| from <= *t1 && *t0 <= reader.ret)
            || others.any(|call| match (call.outcome, call.release) {
                (Outcome::Granted, release) => {
                    let unsaid = release.is_none_or(|release| match release.outcome {
                        Outcome::Done => false,
                        // The background releases it.
                        Outcome::Cancelled => calm.disturbed(release.inv, reader.ret) > 0,
                        _ => true,
                    });
                    // Its lease may have ended before the release came to the server.
                    let over = release.is_some_and(|release| match release.outcome {
                        Outcome::Cancelled => !call.watched && call.deadline < reader.ret,
                        _ => call.deadline < release.ret,
                    });
                    // The answer to an earlier request of it may have been lost.
                    let asked = from <= call.ret && calm.disturbed(call.inv, call.ret) > 0;
                    let is_last = last.is_some_and(|last| last.owner == call.owner);
                    asked || is_last && (unsaid || over || call.loss.is_some())
                }
                (Outcome::Busy, _) if call.wait == 0 => false,
                // Also of one that was not executed: it may have been undone, as H12 has it.
                _ => {
                    surely_over(call, history, calm) >= from
                        && (self.was_handed_it(token, call, last, reader)
                            || self.has_drawn(call, last, reader))
                }
            })
    }

    /// Whether the client of the last writer may have handed that call the lock, with a token of its own, when it gave
    /// up. Each of those has one.
    fn was_handed_it(
        &self,
        token: u64,
        call: &Acquire,
        last: Option<&Acquire>,
        reader: &Acquire,
    ) -> bool {
        let Some(last) = last.filter(|last| last.owner.0 == call.owner.0) else { return false };
        let of_client = self.all.iter().filter(|one| !one.reads && one.owner.0 == call.owner.0);
        let gave_up = of_client
            .filter(|one| !one.is_granted() && one.inv <= reader.ret && last.began <= one.ret);
        token - last.token.unwrap_or(0) <= gave_up.count() as u64
    }

    /// Whether the server may have given the client of that call the lock after the last writer, and drawn tokens.
    fn has_drawn(&self, call: &Acquire, last: Option<&Acquire>, reader: &Acquire) -> bool {
        let (from, to) = (last.map_or(0, |last| last.ret), reader.ret);
        let off = self.history.bounds.off;
        let mut heard = self.history.heard.iter();
        let all = heard.any(|heard| heard.from <= from.saturating_sub(off) && to + off <= heard.to);
        let during = from.saturating_sub(off)..=to + off;
        let mut strange = self.strange.iter();
        !all || strange.any(|(t, client)| *client == call.owner.0 && during.contains(t))
    }
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{asked, fault, held, history};

    const NAME: u16 = 7;

    /// A call of that process, with that token.
    fn of(call: Acquire, reads: bool, token: u64) -> Acquire {
        let number = call.id.1 + 1;
        Acquire { reads, ..call.of(NAME).by_owner(number).with_token(token) }
    }

    fn wrote(who: u16, from: u64, token: u64) -> Acquire {
        of(held(who, from).until(from + 5, from + 6), false, token)
    }

    fn read(who: u16, from: u64, token: u64) -> Acquire {
        Acquire { reads: true, ..wrote(who, from, token) }
    }

    fn found<const N: usize>(calls: [Acquire; N]) -> usize {
        check(&history(calls)).len()
    }

    pub(crate) const TRIALS: Trials = &[
        ("a reader has the token of the last writer", || {
            let with = |token| {
                found([wrote(0, 10, 5), wrote(1, 30, 9), read(2, 50, token), wrote(0, 70, 12)])
            };
            assert_eq!([9, 5, 0, 10, 12].map(with), [0, 1, 1, 1, 1]);
            // Both came at the same time.
            assert_eq!([0, 5].map(|token| found([wrote(0, 10, 5), read(1, 10, token)])), [0, 0]);
        }),
        ("without a writer there is no token", || {
            let with = |token| found([read(0, 10, token), wrote(1, 30, 5)]);
            assert_eq!([0, 4, 6].map(with), [0, 1, 2]);
        }),
        ("what a client has drawn in vain stays where it could not say so", || {
            let after = |writer| found([writer, read(1, 50, 8)]);
            let told = |outcome| wrote(0, 10, 5).told(outcome);
            for outcome in [Outcome::Done, Outcome::Cancelled] {
                assert_eq!(after(told(outcome)), 1, "{outcome:?}: the server hears of it");
            }
            for outcome in [Outcome::Lost, Outcome::Unknown] {
                assert_eq!(after(told(outcome)), 0, "{outcome:?}");
            }
            assert_eq!(after(Acquire { release: None, ..wrote(0, 10, 5) }), 0);
            for (watched, wrong) in [(false, 0), (true, 1)] {
                let writer = Acquire { watched, ..told(Outcome::Cancelled).valid_until(30) };
                assert_eq!(after(writer), wrong, "its lease has ended");
            }
            let dropped = |ended, inv| of(asked(2, inv).ended(ended, inv + 3), false, 0);
            let with = |call| found([wrote(0, 10, 5), call, read(1, 50, 8)]);
            assert_eq!(with(dropped(Outcome::Cancelled, 30)), 0);
            // It may have been undone.
            assert_eq!(with(dropped(Outcome::NotExecuted, 30)), 0);
            assert_eq!(with(dropped(Outcome::NotExecuted, 2)), 1, "the other one wrote after it");
            assert_eq!(with(dropped(Outcome::Cancelled, 60)), 1, "it came later");
        }),
        ("who gave up has drawn nothing if the server wrote nothing", || {
            let with = |who, token, written: Option<(u64, What)>| {
                let gave_up = of(asked(who, 8).ended(Outcome::Cancelled, 33), false, 0);
                let owner = (gave_up.owner.0, 77);
                let command = |(t, what)| Command { t: t * MS, key: NAME, owner, what };
                let commands = written.map(command).into_iter().collect();
                let history = history([wrote(0, 10, 5), gave_up, read(1, 50, token)]);
                let heard = vec![Heard { from: 0, to: NEVER, commands }];
                check(&history.with(|history| history.heard = heard)).len()
            };
            assert_eq!([with(2, 8, None), with(2, 8, Some((5, What::Wrote)))], [1, 1]);
            assert_eq!(with(2, 8, Some((30, What::Asked))), 1, "it was refused");
            for what in [What::Wrote, What::GivenBack] {
                assert_eq!(with(2, 8, Some((30, what))), 0, "{what:?}");
            }
            // Handed to it, with the next token.
            assert_eq!([with(0, 6, None), with(0, 8, None), with(2, 6, None)], [0, 1, 1]);
        }),
        ("a grant whose answer was lost leaves what was drawn with it", || {
            let after = |lost, granted| {
                let waits = wrote(2, granted, 20).asked_at(20);
                let (settle, t1) = (Some(0), lost * MS + 1);
                let lost = Fault { settle, t1, ..fault(lost, lost) };
                check(&history([wrote(0, 10, 5), read(1, 50, 8), waits]).fault([lost])).len()
            };
            assert_eq!([after(30, 90), after(15, 90), after(95, 90)], [0, 1, 1]);
        }),
        ("a counter that the server has lost is unknown until the next writer", || {
            let after = |lost, calls: &[Acquire]| {
                let lost = Fault { tokens: NAME..NAME + 1, ..fault(lost, lost) };
                check(&history(calls).fault([lost])).len()
            };
            let calls = [wrote(0, 10, 5), read(1, 50, 0)];
            assert_eq!([after(5, &calls), after(30, &calls), after(60, &calls)], [1, 0, 1]);
            let calls = [wrote(0, 10, 5), wrote(2, 40, 9), read(1, 50, 0)];
            assert_eq!([after(30, &calls), after(45, &calls)], [1, 0]);
        }),
        ("who joins readers that have lost the lock has their token", || {
            let after = |t| {
                let first = read(0, 10, 0);
                let joined = read(0, 60, 0).by_owner(first.owner.1);
                check(&history([first, wrote(1, 30, 5), joined]).freed(NAME, [(t, t)])).len()
            };
            assert_eq!([after(20), after(5)], [0, 1]);
        }),
    ];
}
