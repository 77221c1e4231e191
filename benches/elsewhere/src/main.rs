//! redlatch beside the locks of PostgreSQL, ZooKeeper and etcd: `benches/elsewhere/run` builds and
//! runs it.
//!
//! Every tool works in processes of its own, which are given orders (`worker`). The servers are
//! private ones, which end with this program (`servers`).

mod board;
mod chart;
mod crew;
mod faults;
#[path = "../../../examples/support/guardian.rs"]
mod guardian;
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../../../tests/support/network.rs"]
mod network;
#[path = "../../../examples/support/postgres.rs"]
mod postgres;
mod report;
mod scenarios;
mod seat;
mod servers;
#[allow(dead_code, reason = "shared with the examples, which use more of it")]
#[path = "../../../examples/support/mod.rs"]
mod support;
mod tools;
mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use support::Result;

use board::Board;
use servers::Servers;

/// What a tool may use to tell that a holder is gone: lease, session, or idle time.
const LEASE: Duration = Duration::from_secs(10);

/// Locks of Redis, PostgreSQL, ZooKeeper and etcd side by side.
#[derive(Parser)]
struct Args {
    /// How often everything is measured; the medians are told
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How often a holder is killed; the median is told
    #[arg(long, default_value_t = 3)]
    crashes: usize,
    /// Of the tools only this; may be said more than once
    #[arg(long)]
    only: Vec<String>,
    /// Where Maven built ZooKeeper's side
    #[arg(long)]
    curator: Option<PathBuf>,
    /// Where to draw the chart
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    if let Some((tool, sites)) = worker::asked()? {
        return tools::serve(&tool, &sites).await;
    }
    let begun = Instant::now();
    let args = Args::parse();
    let mut tools = tools::all(args.curator.as_deref())?;
    if !args.only.is_empty() {
        // The first one stays: the others are compared with it.
        let first = tools.remove(0);
        tools.retain(|tool| args.only.iter().any(|name| name == tool.name));
        tools.insert(0, first);
    }
    let servers = Servers::start().await?;
    let mut board = Board::default();
    scenarios::measure(&servers, &tools, args.rounds, &mut board).await?;
    faults::measure(&servers, &tools, args.crashes, &mut board).await;
    println!("{}", report::table(&board, &tools));
    for failure in &board.failures {
        println!("failed: {failure}");
    }
    eprintln!("all of it took {} s", begun.elapsed().as_secs());
    if let Some(svg) = args.svg {
        chart::draw(&board, &tools, &svg)?;
        eprintln!("chart: {}", svg.display());
    }
    if board.failures.is_empty() { Ok(()) } else { Err("not all of it could be measured".into()) }
}
