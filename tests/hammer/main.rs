//! The hammer: many processes and tasks on a few dozen names, a nemesis that breaks things, and a
//! history of all of it that is checked by rules.
//!
//! In each process runtimes end and begin while their tasks call and hold locks, and clients are
//! closed under load and replaced. The nemesis holds requests up for longer than their callers
//! wait, so that the server executes them late if nothing prevents that; and a Sentinel gives the
//! server another name meanwhile. Nobody may notice any of that but the caller. In every other round, and in
//! all with `--far`, each process is at a distance of its own from the server, up to 20 ms there and
//! back.
//!
//! ```text
//! cargo test --test hammer                                         the trials, and 30 s of it
//! cargo test --release --test hammer -- --minutes 10 [--seed 7]    as long as you like
//! cargo test --release --test hammer -- --minutes 60 --far --twice 15 --processes 24 --tasks 16 --names 400
//!                                  a million grants on 2 cores, where 15 of 100 answers are lost
//! ```
//!
//! The long form ends with a line `verdict: PASS`, `VIOLATION` or `INCONCLUSIVE`, and the exit code
//! 0, 1 or 2. A violation is a line `violation H6: ...` with the smallest window that shows it. The
//! rules are in `check/`:
//!
//! | | |
//! |---|---|
//! | H1 | two owners' holds are never believed at once, unless both read |
//! | H2, H3 | tokens are in the order of the holds, and one for each |
//! | H4 | what the protected resource saw agrees |
//! | H5 | when all is quiet, the server counts the guards that are kept |
//! | H6, H7 | what is free is taken by who waits; after a crash, at the lease's end |
//! | H8, H9 | loss is told in time, for good, and only when it happened |
//! | H10 | a request that was sent twice counts once |
//! | H11 | nothing stays or comes back that nobody holds, and nothing has no end |
//! | H12 | what a call says of itself is true |
//! | H13 | enough was done for silence to mean something, else the run is inconclusive |
//! | H14 | a process that waits has its turn, however far away it is |
//! | H15 | who waits for a fair lock has it in the order of the calls |
//! | H16 | the same of a read-write lock, but that readers pass readers |
//! | H17 | several locks that are acquired together are held all or not at all |
//! | H18 | a reader of a fenced read-write lock has the token of the last writer |
//!
//! H13 asks a run of half a minute for late requests, runtimes that ended and clients that were
//! closed, and a run of five minutes for every kind of fault.
//!
//! The seed makes the choice of calls and faults repeatable, not what comes of them.

#![cfg_attr(
    not(feature = "test-util"),
    allow(dead_code, unused_imports, reason = "the simulated form needs a part of this")
)]

#[allow(dead_code, unused_imports, unused_macros, reason = "this suite needs a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod calm_times;
mod check;
mod child;
mod handle;
mod history;
mod monitor;
mod names;
mod nemesis;
mod platform;
mod prelude;
mod processes;
mod record;
mod report;
mod resource;
mod round;
mod run;
mod runtimes;
mod shared;
#[cfg(feature = "test-util")]
mod simulated;
mod stop;
mod trials;
mod witness;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use run::{Length, Settings, Verdict};

/// The arguments of the long form, and those with which it starts itself.
#[derive(Debug, Parser)]
#[command(name = "hammer")]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    settings: Settings,
}

/// The arguments of the hammer in simulated worlds.
#[cfg(feature = "test-util")]
#[derive(Debug, Parser)]
#[command(name = "hammer")]
struct Simulated {
    #[arg(long, required = true)]
    simulated: bool,
    #[command(flatten)]
    settings: simulated::campaign::Settings,
}

#[derive(Debug, clap::Subcommand)]
enum Role {
    #[command(hide = true)]
    Client(child::Assignment),
}

fn main() -> ExitCode {
    #[cfg(feature = "test-util")]
    if std::env::args().any(|arg| arg == "--simulated") {
        return ends(&simulated::campaign::run(&Simulated::parse().settings));
    }
    let ours = |arg: String| {
        arg == "client" || arg.starts_with("--minutes") || arg.starts_with("--seconds")
    };
    if !std::env::args().skip(1).any(ours) {
        let arguments = libtest_mimic::Arguments::from_args();
        return libtest_mimic::run(&arguments, trials::all()).exit_code();
    }
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Client(assignment)) => {
            child::main(&assignment);
            ExitCode::SUCCESS
        }
        None => ends(&run::run(&arguments.settings, Length::of(&arguments.settings))),
    }
}

fn ends(verdict: &Verdict) -> ExitCode {
    let (word, code) = match verdict {
        Verdict::Pass => ("PASS", 0),
        Verdict::Violation(_) => ("VIOLATION", 1),
        Verdict::Inconclusive(why) => {
            println!("inconclusive: {why}");
            ("INCONCLUSIVE", 2)
        }
    };
    println!("verdict: {word}");
    ExitCode::from(code)
}
