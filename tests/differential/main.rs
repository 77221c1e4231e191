//! Holds the simulated server to real ones: the same bytes go to both, at the same times by their
//! clocks, and the answers and messages of both have to be the same.
//!
//! The steps are random and follow from a seed. `REDIS_SERVER` names the real server. What differs is
//! printed with the steps that lead there, as few as are enough, and with the seed.
//!
//! | variable | effect |
//! |---|---|
//! | `REDLATCH_DIFFERENTIAL` | so many steps instead of a few thousand |
//! | `REDLATCH_SEED` | the seed of the first run; with one step, that run again |
//! | `REDLATCH_DIFFERENCES` | stops at so many differences instead of the first |

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod clock;
mod generate;
mod pair;
mod resp;
mod scripts;
mod steps;
mod templates;
mod wanted;

use std::env;
use std::io::Write as _;

use fastrand::Rng;
use pair::{Pair, Real};
use steps::Step;

/// So many steps a run has, after which both servers begin anew.
const RUN: usize = 500;

/// How many the short form takes.
const SHORT: usize = 5_000;

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Takes the steps at both. The difference, and at which step it was.
fn run(real: &Real, steps: &[Step]) -> Option<(usize, String)> {
    let mut pair = Pair::new(real);
    steps.iter().enumerate().find_map(|(at, step)| pair.step(step).err().map(|what| (at, what)))
}

/// As few of the steps as still lead to a difference.
fn shrunk(real: &Real, mut steps: Vec<Step>) -> Vec<Step> {
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + size).min(steps.len()));
            match run(real, &fewer) {
                Some((last, _)) => {
                    fewer.truncate(last + 1);
                    steps = fewer;
                }
                None => at += size,
            }
        }
        size /= 2;
    }
    steps
}

/// The difference that a run has, in words.
fn difference(real: &Real, seed: u64, steps: &[Step]) -> Option<String> {
    let (at, what) = run(real, steps)?;
    real.lose_patience();
    let few = shrunk(real, steps[..=at].to_vec());
    let lines: Vec<String> = few.iter().map(|step| format!("  {step:?}")).collect();
    // One that does not come again is in the network.
    let what = run(real, &few).map_or(format!("but not again\n{what}"), |(_, what)| what);
    Some(format!("{}, REDLATCH_SEED={seed}, after\n{}\n{what}", real.name(), lines.join("\n")))
}

#[test]
fn the_simulated_server_answers_as_the_real_one_does() {
    let real = match Real::start() {
        Ok(real) => real,
        Err(why) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // Past the capture of what a passing test prints.
            let _ = writeln!(std::io::stderr(), "{test}: LEFT OUT: {why}");
            return;
        }
    };
    let many = setting("REDLATCH_DIFFERENTIAL").map_or(SHORT, |many| many as usize);
    let first = setting("REDLATCH_SEED").unwrap_or(1);
    let most = setting("REDLATCH_DIFFERENCES").unwrap_or(1) as usize;
    let (mut taken, mut found) = (0, Vec::new());
    for seed in first.. {
        let steps = generate::steps(&mut Rng::with_seed(seed), RUN);
        taken += steps.len();
        if seed % 100 == 0 {
            println!("{}: seed {seed}, {taken} steps", real.name());
        }
        found.extend(difference(&real, seed, &steps));
        if taken >= many || found.len() >= most {
            break;
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
    println!(
        "{}: {taken} steps from seed {first} on, no difference that is not wanted",
        real.name()
    );
    for (what, why) in wanted::WANTED {
        println!("  wanted: {what}: {why}");
    }
}
