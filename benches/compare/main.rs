//! What the lock costs beside what it cannot do without: `cargo bench --bench compare` measures
//! redlatch and the same two scripts with nothing around them, in turns against one private server.
//!
//! `cargo test --bench compare` looks at no time, only at how many commands an acquisition takes,
//! and fails if they are too many. `benches/run` has other libraries in it.

mod harness;
#[allow(dead_code, reason = "shared with the examples, which use more of it")]
#[path = "../../examples/support/mod.rs"]
mod support;

use clap::Parser;

use harness::family::Reading;
use harness::{Contestant, Fair, Floor, Peer, Redlatch, serve};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: harness::Options,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> support::Result<()> {
    if let Some((name, url)) = harness::asked() {
        return match &*name {
            Floor::NAME => serve::<Floor>(&url).await,
            Fair::NAME => serve::<Fair>(&url).await,
            Reading::NAME => serve::<Reading>(&url).await,
            _ => serve::<Redlatch>(&url).await,
        };
    }
    let mut contestants = vec![Contestant::of::<Floor>()?, Contestant::of::<Redlatch>()?];
    let mut options = Args::parse().options;
    if options.fair {
        contestants.push(Contestant::of::<Fair>()?);
    }
    // `cargo bench` says so; `cargo test` does not, and has no time to look at times.
    options.counts |= !options.bench;
    harness::run(&options, contestants).await?;
    Ok(())
}
