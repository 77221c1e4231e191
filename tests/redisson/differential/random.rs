//! Random steps of three parties, beside a model of the lock: what comes of each, and what stands in Redis then. All leases
//! are default ones, and nobody waits.

use std::collections::BTreeMap;
use std::env;

use futures::stream::{self, StreamExt};

use super::*;

/// So many lines of steps, or as many as `REDLATCH_REDISSON_LINES` says.
const LINES: u64 = 3;

const STEPS: usize = 24;

/// Of the watchdogs of both sides, in milliseconds.
const LEASE: i64 = 30_000;

/// What Redisson's scripts make of a lock.
#[derive(Default)]
struct Model {
    writes: bool,
    reads: [u32; 3],
    written: [u32; 3],
    /// How many holds a writer has had at once.
    most_writes: u32,
}

impl Model {
    fn is_free(&self) -> bool {
        self.reads == [0; 3] && self.written == [0; 3]
    }

    fn came(&mut self, Step { who, act }: Step) -> Came {
        let mine = self.written[who] > 0;
        match act {
            Act::Tries(Side::Read) => {
                let granted = !self.writes || mine;
                self.reads[who] += u32::from(granted);
                Came::Said(granted)
            }
            Act::Tries(Side::Write) => {
                let granted = self.is_free() || mine;
                self.writes |= granted;
                self.written[who] += u32::from(granted);
                self.most_writes = self.most_writes.max(self.written[who]);
                Came::Said(granted)
            }
            Act::GivesBack(side) => {
                let held = if side == Side::Read { &mut self.reads } else { &mut self.written };
                if held[who] == 0 {
                    return Came::Failed;
                }
                held[who] -= 1;
                self.writes &= self.written != [0; 3];
                Came::Done
            }
            Act::AsksWhetherLocked(Side::Read) => Came::Said(self.reads != [0; 3]),
            Act::AsksWhetherLocked(Side::Write) => Came::Said(self.writes),
            other => panic!("no step of this model: {other:?}"),
        }
    }

    fn seen(&self) -> Seen {
        let held = |counts: &[u32; 3]| {
            counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect()
        };
        let reads: BTreeMap<usize, u32> = held(&self.reads);
        let mode = if self.writes { "write" } else { "read" };
        Seen {
            mode: (!self.is_free()).then(|| mode.to_owned()),
            lasts: if self.is_free() { -2 } else { LEASE },
            markers: reads.iter().map(|(who, count)| (*who, (*count, LEASE))).collect(),
            reads,
            writes: held(&self.written),
        }
    }
}

/// No reader asks to write: the two sides answer that differently.
fn steps(random: &mut fastrand::Rng) -> Vec<Step> {
    let mut model = Model::default();
    let mut steps = Vec::new();
    while steps.len() < STEPS {
        let who = random.usize(..3);
        let side = if random.usize(..3) == 0 { Side::Write } else { Side::Read };
        let act = match random.usize(..10) {
            0..5 => Act::Tries(side),
            5..9 => Act::GivesBack(side),
            _ => Act::AsksWhetherLocked(side),
        };
        let upgrades =
            act == Act::Tries(Side::Write) && model.reads[who] > 0 && model.written[who] == 0;
        if !upgrades {
            model.came(Step { who, act });
            steps.push(Step { who, act });
        }
    }
    for who in 0..3 {
        steps.extend((0..model.reads[who]).map(|_| Step { who, act: Act::GivesBack(Side::Read) }));
        steps.extend(
            (0..model.written[who]).map(|_| Step { who, act: Act::GivesBack(Side::Write) }),
        );
    }
    steps
}

pub(crate) async fn steps_beside_a_model(setup: &Setup) {
    let clients = &clients(setup).await;
    let lines =
        env::var("REDLATCH_REDISSON_LINES").map_or(LINES, |lines| lines.parse().expect("a number"));
    let plays = (1..=lines).flat_map(|line| casts(3).into_iter().map(move |cast| (line, cast)));
    let is_old = setup.version.starts_with("3.23");
    let played = plays.map(async |(line, cast)| {
        let steps = steps(&mut fastrand::Rng::with_seed(line));
        let name = format!("random-{line}-{}", Cast(&cast));
        let mut stage = Stage::new(setup, clients, name.clone(), &cast).await;
        let mut model = Model::default();
        for (at, step) in steps.iter().enumerate() {
            let came = stage.play(*step).await;
            let was_free = model.is_free();
            let mut expected = model.came(*step);
            // Redisson 3.23 says so to whoever gives a free lock back.
            if was_free && is_old && cast[step.who] == Kind::Java && expected == Came::Failed {
                expected = Came::Done;
            }
            let seen = model.seen().of_ours(&cast);
            let found = stage.look();
            // What is locked to read when a writer reads, too, Redisson says differently in 3.23.
            let may_differ = is_old || cast[step.who] == Kind::Rust;
            let fits = came == expected || may_differ && expected.fits(came, *step, false, &seen);
            // Redisson adds up the leases of a writer, until it renews them.
            let longest = LEASE * i64::from(1 + model.most_writes);
            if !fits || !seen.matches(&found, Some(longest)) {
                let before: Vec<_> = steps[..=at]
                    .iter()
                    .map(|step| format!("{}.{:?}", step.who, step.act))
                    .collect();
                return Some(format!(
                    "{name}: {expected:?} {seen:?}\n  and not {came:?} {found:?}\n  after {}",
                    before.join(" ")
                ));
            }
        }
        None
    });
    let wrong: Vec<Option<String>> = stream::iter(played).buffer_unordered(BESIDE).collect().await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "redisson {}:\n{}", setup.version, wrong.join("\n"));
}
