//! H12: what a call says of itself is true.
//!
//! Beside the history itself, the ground for that is what the server said that it carried out,
//! while somebody listened.

use crate::check::orphans::surely_over;
use crate::prelude::*;
use crate::witness::GRANTED;

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = lost_and_released(history);
    let mut by_client: HashMap<(u128, u16), Vec<&Acquire>> = HashMap::new();
    if !history.heard.is_empty() {
        for acquire in &history.acquires {
            by_client.entry((acquire.owner.0, acquire.key)).or_default().push(acquire);
        }
    }
    let calm = Calm::of_each(history);
    for heard in &history.heard {
        found.extend(untrue(history, heard, &by_client, &calm));
    }
    found
}

/// A release of a hold that had been lost before says so.
fn lost_and_released(history: &History) -> Vec<Violation> {
    let wrong = |hold: &Acquire| {
        let (loss, release) = (hold.loss?, hold.release?);
        let window = (loss.t, release.ret);
        let what = "released what it had lost, and heard nothing";
        let is_wrong = loss.t < release.inv && release.outcome == Outcome::Done;
        is_wrong.then(|| Violation::of_hold("H12", hold, what, window))
    };
    history.grants().filter_map(wrong).collect()
}

/// Of what was granted, the server has heard; of what was not executed, it has written nothing.
fn untrue(
    history: &History,
    heard: &Heard,
    by_client: &HashMap<(u128, u16), Vec<&Acquire>>,
    calm: &[Calm],
) -> Vec<Violation> {
    let mut commands: HashMap<(u128, u16), Vec<&Command>> = HashMap::new();
    for command in &heard.commands {
        commands.entry((command.owner.0, command.key)).or_default().push(command);
    }
    let taken_away = |key: u16, from: u64, to: u64| {
        history.tampering().any(|(of, t0, t1)| of == key && t0 <= to && from <= t1)
    };
    let closed = history.closed();
    let closes = |acquire: &Acquire| {
        closed.get(&acquire.owner.0).is_some_and(|client| client.closing <= acquire.ret)
    };
    let off = history.bounds.off;
    let mut found = Vec::new();
    let during = |acquire: &&Acquire| {
        heard.from + off < acquire.inv && acquire.ret.saturating_add(off) < heard.to
    };
    for acquire in history.acquires.iter().filter(during) {
        let client = (acquire.owner.0, acquire.key);
        let of_client = commands.get(&client).map_or(&[][..], Vec::as_slice);
        // They are in order.
        let between = |from: u64, to: u64| {
            let first = of_client.partition_point(|command| command.t < from);
            of_client[first..].iter().take_while(move |command| command.t < to)
        };
        let wrong = match acquire.outcome {
            Outcome::Granted => {
                // If another handle of its client handed the lock on, the server has heard of this hold
                // when it has confirmed that it was given back, and of its end.
                // Of a reader only if it was the last one of its client.
                let unlocked = acquire.release.filter(|release| release.outcome == Outcome::Done);
                let unlocked = unlocked.filter(|_| !acquire.reads);
                let known = unlocked.is_none_or(|release| {
                    let to = release.ret.saturating_add(off);
                    let mut since = between(release.inv - off, to.saturating_add(1));
                    heard.to < to || since.any(|command| command.owner == acquire.owner)
                });
                (!known).then_some("was granted what the server never heard of")
            }
            Outcome::NotExecuted => {
                // Another call of the client may be what was written, and so may a call of before
                // that was dropped: its request may still be on its way.
                let calm = &calm[usize::from(acquire.id.0)];
                let alone = by_client[&client].iter().all(|other| {
                    other.id == acquire.id
                        || acquire.ret < other.inv
                        || other.ret < acquire.inv
                            && surely_over(other, history, calm) < acquire.inv
                });
                let mut asked = false;
                let mut wrote = None;
                // Beside the server, a client hears in the same moment of what it has given back, and says so.
                for command in between(acquire.inv + off, acquire.ret.saturating_add(1)) {
                    match command.what {
                        What::Asked => asked = true,
                        // Redis grants by itself what a client leaves in the same moment, because it closes.
                        What::Wrote if command.owner.1 >= GRANTED && closes(acquire) => {}
                        What::Wrote => wrote = Some(command.t),
                        // It was undone before the call ended.
                        What::GivenBack => wrote = None,
                        What::Told => {}
                    }
                }
                let stays = wrote.is_some_and(|t| {
                    t + acquire.lease > acquire.ret && !taken_away(acquire.key, t, acquire.ret)
                });
                (alone && asked && stays).then(|| match closes(acquire) {
                    true => "was told while it closed that a call was not executed, which was",
                    false => "was told that a call was not executed, which was",
                })
            }
            _ => None,
        };
        let window = (acquire.inv, acquire.ret);
        found.extend(wrong.map(|wrong| Violation::of_hold("H12", acquire, wrong, window)));
    }
    found
}

pub(crate) mod trials {
    use super::*;
    use crate::check::sample::{KEY, asked, held, history};

    /// What the server has carried out, for that owner.
    fn hearing(calls: &[Acquire], owner: Owner, commands: &[(u64, What)]) -> History {
        let command = |(t, what): &(u64, What)| Command { t: *t, key: KEY, owner, what: *what };
        let commands = commands.iter().map(command).collect();
        let heard = vec![Heard { from: 0, to: 5000 * MS, commands }];
        history(calls).with(|history| history.heard = heard)
    }

    /// How much is found if it has, for the owner of the last of these.
    fn found(calls: &[Acquire], commands: &[(u64, What)]) -> usize {
        let owner = calls.last().expect("a call").owner;
        check(&hearing(calls, owner, commands)).len()
    }

    fn wrote(t: u64) -> [(u64, What); 2] {
        [(t * MS, What::Asked), (t * MS, What::Wrote)]
    }

    fn refused() -> Acquire {
        asked(0, 50).ended(Outcome::NotExecuted, 1050).with_lease(2_000)
    }

    pub(crate) const TRIALS: Trials = &[
        ("a release of a lost hold says so", || {
            let lost = || held(0, 10).lost_at(500).until(600, 601);
            assert_eq!(check(&history([lost()]))[0].rule, "H12");
            assert_eq!(check(&history([lost().told(Outcome::Lost)])), []);
        }),
        ("what was granted was asked for", || {
            let found = |t| found(&[held(0, 60).until(70, 80).asked_at(50)], &wrote(t));
            assert_eq!([found(75), found(40)], [0, 1]);
        }),
        ("what was not executed left nothing", || {
            let others = [wrote(40), wrote(1100)].concat();
            assert_eq!([found(&[refused()], &others), found(&[refused()], &wrote(60))], [0, 1]);
            // One that was dropped before may have been on its way.
            for (ended, wrong) in [(Outcome::Cancelled, 0), (Outcome::NotExecuted, 1)] {
                let found = |lease, commands: &[(u64, What)]| {
                    let before = asked(0, 10).ended(ended, 20);
                    found(&[before, refused().with_lease(lease)], commands)
                };
                assert_eq!(found(2_000, &wrote(60)), wrong, "{ended:?}");
                // Its lease may end before that, and the call may undo it.
                assert_eq!(found(900, &wrote(60)), 0);
                let [asked, wrote] = wrote(60);
                assert_eq!(found(2_000, &[asked, wrote, (wrote.0, What::GivenBack)]), 0);
            }
        }),
        ("what redis grants by itself to a client that closes is nobodys", || {
            let refused = || asked(0, 50).ended(Outcome::NotExecuted, 60);
            let found = |number, closing| {
                let owner = (refused().owner.0, number);
                let history = hearing(&[refused()], owner, &wrote(55));
                check(&history.closed_at(closing, closing)).len()
            };
            assert_eq!([found(GRANTED + 1, 58), found(GRANTED + 1, 70), found(1, 58)], [0, 1, 1]);
        }),
        ("what a call gave back in the moment of its end is undone", || {
            let found = |commands: &[(u64, What)]| found(&[refused()], commands);
            let ([asked, wrote], end) = (wrote(60), refused().ret);
            let given_back = |t| [asked, wrote, (t, What::GivenBack)];
            assert_eq!([found(&given_back(end)), found(&given_back(end + 1))], [0, 1]);
            // What was granted in that moment is there.
            assert_eq!(found(&[asked, (end, What::Wrote)]), 1);
        }),
    ];
}
