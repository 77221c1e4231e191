//! redlatch beside other locks over Redis: `benches/run` builds and runs it.
//!
//! Everything is measured by the harness of the crate's own bench; here are only the others, and
//! the chart.

mod chart;
mod contestants;
#[path = "../../compare/harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "shared with the examples, which use more of it")]
#[path = "../../../examples/support/mod.rs"]
mod support;

use std::path::PathBuf;

use clap::Parser;
use contestants::{AsyncRedisLock, Distkit, Rlock, Rslock, redisson};
use harness::{Contestant, Fair, Floor, Peer, Redlatch, family, serve, serve_family};
use support::Result;

/// Locks over Redis side by side, as ratios to the raw floor of the same run.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: harness::Options,
    /// Where Maven built Redisson's side
    #[arg(long)]
    redisson: Option<PathBuf>,
    /// Where to draw the chart
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    if let Some((name, url)) = harness::asked() {
        return match &*name {
            Floor::NAME => serve::<Floor>(&url).await,
            Redlatch::NAME => serve::<Redlatch>(&url).await,
            Fair::NAME => serve::<Fair>(&url).await,
            Rlock::NAME => serve::<Rlock>(&url).await,
            Rslock::NAME => serve::<Rslock>(&url).await,
            AsyncRedisLock::NAME => serve::<AsyncRedisLock>(&url).await,
            Distkit::NAME => serve::<Distkit>(&url).await,
            _ => serve_family(&name, &url).await,
        };
    }
    let args = Args::parse();
    let mut contestants = vec![
        Contestant::of::<Floor>()?,
        Contestant::of::<Redlatch>()?,
        Contestant::of::<Rlock>()?,
        Contestant::of::<Rslock>()?,
        Contestant::of::<AsyncRedisLock>()?,
        Contestant::of::<Distkit>()?,
    ];
    if args.options.fair {
        contestants.push(Contestant::of::<Fair>()?);
    }
    if args.options.family {
        contestants.extend(family()?);
    }
    if let Some(target) = args.redisson {
        contestants.push(redisson(&target, false)?);
        if args.options.fair {
            contestants.push(redisson(&target, true)?);
        }
    }
    let board = harness::run(&args.options, contestants).await?;
    if let Some(svg) = args.svg {
        chart::draw(&board, &svg)?;
        eprintln!("chart: {}", svg.display());
    }
    Ok(())
}
