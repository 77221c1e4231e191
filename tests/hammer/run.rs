//! A run: rounds until the time is over, and the verdict.

use crate::check::floor::{Done, Floor, missing};
use crate::check::{self, resource};
use crate::prelude::*;
use crate::round::{self, Size};
use crate::{nemesis, report};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Settings {
    /// How long to run.
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) minutes: Option<u64>,
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// Of the choice of calls and faults; random unless set.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) size: Size,
    /// Leave the files of the last round where they are, and say where.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// How long a run is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    pub(crate) seconds: u64,
    /// On a busy machine a run goes on for so long to reach its floor.
    pub(crate) at_most: u64,
    pub(crate) floor: Floor,
}

impl Length {
    pub(crate) fn of(settings: &Settings) -> Self {
        let minutes = settings.minutes.map(|minutes| minutes * 60);
        let seconds = settings.seconds.or(minutes).unwrap_or(30).max(1);
        let mut floor = Floor::for_seconds(seconds);
        if settings.size.twice > 0 {
            // Connections break all the time, and with one goes what others of its client wait for.
            floor.hand_offs /= 10;
        }
        Self { seconds, at_most: seconds, floor }
    }

    /// The short form, which is a test: most of what the hammer finds, it finds in worlds.
    pub(crate) fn short() -> Self {
        Self { seconds: 15, at_most: 150, floor: Floor::for_seconds(15) }
    }
}

/// In seconds.
const ROUND: u64 = 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Violation(String),
    Inconclusive(String),
}

/// Runs, prints the table and what was found.
pub(crate) fn run(settings: &Settings, length: Length) -> Verdict {
    let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed: {seed}");
    let mut done = Done::default();
    let (mut played, mut number) = (0, 0);
    let mut verdict = Verdict::Pass;
    while verdict == Verdict::Pass
        && (played < length.seconds
            || played < length.at_most && !missing(&done, &length.floor).is_empty())
    {
        let left = if played < length.seconds { length.seconds - played } else { ROUND };
        let seconds = left.min(ROUND);
        let size = Size { far: settings.size.far || number % 2 == 1, ..settings.size };
        verdict = match round::play(size, seconds, seed.wrapping_add(number)) {
            Ok((history, folder)) => {
                if settings.keep {
                    println!("files: {}", folder.keep().display());
                }
                judge(history, &mut done)
            }
            Err(why) => Verdict::Inconclusive(why),
        };
        played += seconds;
        number += 1;
    }
    println!("{}", report::summary(&done));
    if verdict == Verdict::Pass {
        let missing = missing(&done, &length.floor);
        if !missing.is_empty() {
            verdict = Verdict::Inconclusive(missing.join("; "));
        }
    }
    verdict
}

fn judge(history: History, done: &mut Done) -> Verdict {
    count(&history, done, nemesis::names());
    let found: Vec<Violation> = check::all(&history);
    let text = report::violations(&found, &history);
    print!("{text}");
    match history.trouble {
        _ if !found.is_empty() => Verdict::Violation(text),
        Some(trouble) => Verdict::Inconclusive(trouble),
        None => Verdict::Pass,
    }
}

pub(crate) fn count(history: &History, done: &mut Done, kinds: impl Iterator<Item = &'static str>) {
    done.operations += history.operations;
    done.of_read_write += history.of_read_write;
    done.of_several += history.of_several;
    done.longest_for_several = done.longest_for_several.max(history.longest_for_several());
    done.hand_offs += history.hand_offs();
    let mut last = None;
    for acquire in &history.acquires {
        done.cancelled += u64::from(acquire.outcome == Outcome::Cancelled);
        done.unknown += u64::from(acquire.outcome == Outcome::Unknown);
        if acquire.is_granted() {
            done.grants += 1;
            done.renewals += u64::from(acquire.renewals);
            done.losses += u64::from(acquire.loss.is_some());
            let before = last.replace((acquire.key, acquire.id.0));
            let crossed =
                before.is_some_and(|(key, process)| key == acquire.key && process != acquire.id.0);
            done.crossed_processes += u64::from(crossed);
        }
    }
    let late = resource::late_writes(history);
    done.late_writes.0 += late.0;
    done.late_writes.1 += late.1;
    let Fates { requests, unanswered, held, late, slow, never } = history.fates;
    done.fates.requests += requests;
    done.fates.unanswered += unanswered;
    done.fates.held += held;
    done.fates.late += late;
    done.fates.slow += slow;
    done.fates.never += never;
    for (kind, (tried, effective)) in round::by_kind(history, kinds) {
        let sum = done.faults.entry(kind).or_default();
        sum.0 += tried;
        sum.1 += effective;
    }
}
