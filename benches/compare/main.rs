//! What the lock costs beside what it cannot do without: `cargo bench --bench compare` measures
//! redlatch and the same two scripts with nothing around them, in turns against one private server.
//!
//! `cargo test --bench compare` looks at no time, only at how many commands an acquisition takes,
//! and fails if they are too many. `benches/run` has other libraries in it.

mod harness;
#[allow(dead_code, reason = "shared with the examples, which use more of it")]
#[path = "../../examples/support/mod.rs"]
mod support;
mod watched;

use clap::Parser;

use harness::family::Reading;
use harness::{Contestant, Fair, Floor, Peer, Redlatch, serve};
use watched::Watched;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: harness::Options,
    /// Also in a program that reads its figures once a second; with `--features metrics` it exports them as well
    #[arg(long)]
    watched: bool,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> support::Result<()> {
    if let Some((name, url)) = harness::asked() {
        return match &*name {
            Floor::NAME => serve::<Floor>(&url).await,
            Fair::NAME => serve::<Fair>(&url).await,
            Reading::NAME => serve::<Reading>(&url).await,
            Watched::NAME => serve::<Watched>(&url).await,
            _ => serve::<Redlatch>(&url).await,
        };
    }
    let mut contestants = vec![Contestant::of::<Floor>()?, Contestant::of::<Redlatch>()?];
    let Args { mut options, watched } = Args::parse();
    if watched {
        contestants.push(Contestant::of::<Watched>()?);
    }
    if options.fair {
        contestants.push(Contestant::of::<Fair>()?);
    }
    // `cargo bench` says so; `cargo test` does not, and has no time to look at times.
    options.counts |= !options.bench;
    harness::run(&options, contestants).await?;
    Ok(())
}
