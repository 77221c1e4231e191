//! One world after the other on all processors, until the time is over or a rule is broken.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use super::plan::{Edits, Plan};
use super::shrink::shrink;
use super::{nemesis, world};
use crate::check;
use crate::check::floor::{CLOSE, Done, END, Floor, missing};
use crate::prelude::*;
use crate::report;
use crate::run::{Verdict, count};

#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Settings {
    /// How long to run, in the time of each processor; one world if it is left out.
    #[arg(long, conflicts_with = "seconds")]
    minutes: Option<u64>,
    #[arg(long)]
    seconds: Option<u64>,
    /// Of the first world; the next one has the next number. Random unless set.
    #[arg(long)]
    seed: Option<u64>,
    /// How many worlds there are at a time: one for each processor unless set.
    #[arg(long)]
    threads: Option<usize>,
    /// Go on after a violation, and make nothing smaller.
    #[arg(long)]
    all: bool,
    /// Print no more than which rules are broken, and make nothing smaller.
    #[arg(long)]
    brief: bool,
    /// Print what is planned.
    #[arg(long)]
    plan: bool,
    /// Print each request.
    #[arg(long)]
    requests: bool,
    /// Print everything that was written down of that name.
    #[arg(long)]
    name: Option<u16>,
    #[command(flatten)]
    edits: Edits,
}

/// What came of one world.
pub(crate) struct Judged {
    pub(crate) history: History,
    pub(crate) trace: u64,
    pub(crate) found: Vec<Violation>,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Has each thread remember the panics in it.
fn remember_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            before(info);
        }));
    });
}

/// Plays a world and applies all rules to it. H0: no task fails, and every call comes home.
pub(crate) fn judge(plan: &Plan) -> Judged {
    remember_panics();
    let (mut history, trace) = world::play(plan);
    let mut found = check::all(&history);
    let failed = PANICS.take().into_iter().chain(history.trouble.take());
    found.extend(failed.map(|why| Violation::new("H0", why, (0, 0))));
    found.sort_by_key(|violation| (violation.from, violation.rule));
    Judged { history, trace, found }
}

pub(crate) fn run(settings: &Settings) -> Verdict {
    let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let minutes = settings.minutes.map(|minutes| minutes * 60);
    match settings.seconds.or(minutes) {
        Some(seconds) => campaign(settings, seed, seconds),
        None => one_world(settings, seed),
    }
}

fn one_world(settings: &Settings, seed: u64) -> Verdict {
    let mut plan = Plan::new(seed, &settings.edits);
    plan.shows_requests = settings.requests;
    if settings.plan {
        println!("{plan}");
    }
    let judged = judge(&plan);
    let operations = judged.history.operations;
    if let Some(name) = settings.name {
        print!("{}", report::of_name(name, &judged.history));
    }
    print!("{}", report::violations(&judged.found, &judged.history));
    println!("seed {seed}: {operations} operations, trace {:016x}", judged.trace);
    match judged.found.is_empty() {
        true => Verdict::Pass,
        false => Verdict::Violation(rules(&judged.found).join(" ")),
    }
}

fn campaign(settings: &Settings, seed: u64, seconds: u64) -> Verdict {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = settings.threads.unwrap_or(available);
    println!("seed: {seed}");
    let time = Duration::from_secs(seconds);
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let done = Mutex::new((Done::default(), Duration::ZERO));
    let first = Mutex::new(None);
    let work = || {
        // A machine that is busy with other things plays as much, and takes longer.
        while processor_time() < time && !is_over.load(Ordering::Relaxed) {
            let seed = seed + next.fetch_add(1, Ordering::Relaxed);
            let plan = Plan::new(seed, &settings.edits);
            let judged = judge(&plan);
            let breaks = !judged.found.is_empty();
            if settings.all || !breaks {
                count(&judged.history, &mut lock(&done).0, nemesis::names(settings.edits.topology));
            }
            for violation in judged.found.iter().filter(|_| settings.all) {
                println!("seed {seed}: violation {}: {}", violation.rule, violation.what);
            }
            if breaks && (settings.all || !is_over.swap(true, Ordering::Relaxed)) {
                lock(&first).get_or_insert((seed, judged));
            }
        }
        lock(&done).1 += processor_time();
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (done, took) = done.into_inner().expect("nobody failed");
    println!("{}", report::summary(&done));
    let worlds = next.into_inner();
    println!(
        "worlds: {worlds}, seeds {seed} to {}; operations: {}, {:.0} a second and core",
        seed + worlds - 1,
        done.operations,
        done.operations as f64 / took.as_secs_f64()
    );
    if let Some((seed, judged)) = first.into_inner().expect("nobody failed") {
        if !settings.all && !settings.brief {
            explain(seed, settings, &judged);
        }
        let rules = rules(&judged.found).join(" ");
        let took = took.as_secs_f64();
        println!("seed {seed} breaks a rule after {took:.0} s of a processor\nrules: {rules}");
        return Verdict::Violation(rules);
    }
    match missing(&done, &floor(seconds * threads as u64)) {
        missing if missing.is_empty() => Verdict::Pass,
        missing => Verdict::Inconclusive(missing.join("; ")),
    }
}

/// Prints what was found, and the smallest world in which it is found.
fn explain(seed: u64, settings: &Settings, judged: &Judged) {
    print!("{}", report::violations(&judged.found, &judged.history));
    println!("play it again: {}", command(seed, &settings.edits));
    let (smallest, tried) = shrink(seed, &settings.edits, &rules(&judged.found));
    println!("the smallest of {tried}: {}", command(seed, &smallest));
    let judged = judge(&Plan::new(seed, &smallest));
    print!("{}", report::violations(&judged.found, &judged.history));
}

fn command(seed: u64, edits: &Edits) -> String {
    format!(
        "cargo test --release --features test-util --test hammer -- --simulated --seed {seed}{edits}"
    )
}

fn rules(found: &[Violation]) -> Vec<&'static str> {
    let mut rules: Vec<_> = found.iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// What so many seconds of a processor have to bring, even in a build that is not optimized.
fn floor(seconds: u64) -> Floor {
    Floor {
        kinds: 6,
        lateness: if seconds >= 30 { &[END, CLOSE, "hold up requests"] } else { &[] },
        every_kind: seconds >= 60,
        ..Floor::for_seconds(seconds)
    }
}

/// Of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
