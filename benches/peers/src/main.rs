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
use contestants::{
    AsyncRedisLock, Distkit, DistkitRead, DistkitReadMostly, Rlock, RlockRead, RlockReadMostly,
    RlockSeveral, Rslock, redisson,
};
use harness::family::{InOrder, Reading, ReadingMostly, Several};
use harness::{Contestant, Fair, Floor, Peer, Redlatch, serve};
use support::Result;

/// Locks over Redis side by side, as ratios to the raw floor of the same run.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: harness::Options,
    /// Other locks than plain ones: `read`, `read-mostly`, `several-3` or `several-10`
    #[arg(long)]
    kind: Option<String>,
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
            Reading::NAME => serve::<Reading>(&url).await,
            ReadingMostly::NAME => serve::<ReadingMostly>(&url).await,
            Several::<3>::NAME => serve::<Several<3>>(&url).await,
            Several::<10>::NAME => serve::<Several<10>>(&url).await,
            InOrder::<3>::NAME => serve::<InOrder<3>>(&url).await,
            InOrder::<10>::NAME => serve::<InOrder<10>>(&url).await,
            RlockRead::NAME => serve::<RlockRead>(&url).await,
            RlockReadMostly::NAME => serve::<RlockReadMostly>(&url).await,
            RlockSeveral::<3>::NAME => serve::<RlockSeveral<3>>(&url).await,
            RlockSeveral::<10>::NAME => serve::<RlockSeveral<10>>(&url).await,
            DistkitRead::NAME => serve::<DistkitRead>(&url).await,
            DistkitReadMostly::NAME => serve::<DistkitReadMostly>(&url).await,
            _ => Err(format!("nobody is called {name}").into()),
        };
    }
    let args = Args::parse();
    let board = harness::run(&args.options, contestants(&args)?).await?;
    if let Some(svg) = args.svg {
        chart::draw(&board, &svg)?;
        eprintln!("chart: {}", svg.display());
    }
    Ok(())
}

fn contestants(args: &Args) -> Result<Vec<Contestant>> {
    if let Some(kind) = &args.kind {
        return of_kind(kind, args);
    }
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
    if let Some(target) = &args.redisson {
        contestants.push(redisson(target, "lock", "Redisson")?);
        if args.options.fair {
            contestants.push(redisson(target, "fair", "Redisson-fair")?);
        }
    }
    Ok(contestants)
}

/// Those with that kind of lock. redlatch comes behind the floor.
fn of_kind(kind: &str, args: &Args) -> Result<Vec<Contestant>> {
    let (mut contestants, java) = match kind {
        "read" => {
            let (ours, rlock) = (Contestant::of::<Reading>()?, Contestant::of::<RlockRead>()?);
            (vec![ours, rlock, Contestant::of::<DistkitRead>()?], "Redisson-read")
        }
        "read-mostly" => {
            let ours = Contestant::of::<ReadingMostly>()?;
            let rlock = Contestant::of::<RlockReadMostly>()?;
            (vec![ours, rlock, Contestant::of::<DistkitReadMostly>()?], "Redisson-read-mostly")
        }
        "several-3" => (several::<3>()?, "Redisson-several-3"),
        "several-10" => (several::<10>()?, "Redisson-several-10"),
        _ => return Err(format!("there is no kind of lock that is called {kind}").into()),
    };
    contestants.insert(0, Contestant::of::<Floor>()?);
    if let Some(target) = &args.redisson {
        contestants.push(redisson(target, kind, java)?);
    }
    Ok(contestants)
}

fn several<const MANY: usize>() -> Result<Vec<Contestant>> {
    Ok(vec![
        Contestant::of::<Several<MANY>>()?,
        Contestant::of::<InOrder<MANY>>()?,
        Contestant::of::<RlockSeveral<MANY>>()?,
    ])
}
