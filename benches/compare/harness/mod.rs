//! Locks side by side: every contestant in processes of its own, in turns, against one private
//! server, and every figure beside the raw floor of the same round.
//!
//! The crate's own bench runs this with redlatch alone, `benches/peers` with its peers as well.

mod board;
mod counts;
mod crew;
#[allow(dead_code, reason = "only one of the two programs has all of them")]
pub(crate) mod family;
mod figures;
mod floor;
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
#[path = "../../../tests/support/network.rs"]
mod network;
mod orders;
mod ours;
mod peer;
mod report;
mod scenarios;
mod server;
mod worker;

use std::net::TcpListener;
use std::time::Duration;

use clap::Args;

pub(crate) use board::Board;
#[allow(unused_imports, reason = "only a contestant that is not written in Rust names it")]
pub(crate) use crew::Sends;
pub(crate) use crew::{BEFORE, Contestant};
#[allow(
    unused_imports,
    reason = "the chart needs it, which only one of the two programs draws"
)]
pub(crate) use figures::Metric;
pub(crate) use floor::Floor;
pub(crate) use ours::{Fair, Redlatch};
#[allow(unused_imports, reason = "the peers implement it, which are in only one of the two")]
pub(crate) use peer::{Handle, Peer};
pub(crate) use scenarios::Scenario;
pub(crate) use worker::{asked, serve};

use crate::support::{Result, Server};
use network::{Distance, Network};
use scenarios::Bench;

#[derive(Args)]
pub(crate) struct Options {
    /// How long a contended measurement takes; one without contention takes half of it
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// How often everything is measured; the medians are told
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// One short round, to see whether everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Of the others only these
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Of what is measured only this, like `contended-64`
    #[arg(long, value_delimiter = ',')]
    pub(crate) scenarios: Vec<String>,
    /// Put a network with this round trip between everybody and the server, like `1ms`
    #[arg(long, value_parser = round_trip)]
    pub(crate) rtt: Option<Duration>,
    /// Also with fair locks
    #[arg(long)]
    pub(crate) fair: bool,
    /// Another build of this bench: the redlatch that is in it takes part as `before`
    #[arg(long)]
    pub(crate) before: Option<std::path::PathBuf>,
    /// Count what redlatch sends and fail if it is too much; no time is looked at
    #[arg(long)]
    pub(crate) counts: bool,
    /// What cargo says to every benchmark
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

/// A time in milliseconds.
fn round_trip(text: &str) -> std::result::Result<Duration, String> {
    let millis = text.strip_suffix("ms").unwrap_or(text).trim().parse::<f64>();
    match millis {
        Ok(millis) if (0.0..=10_000.0).contains(&millis) => {
            Ok(Duration::from_secs_f64(millis / 1e3))
        }
        _ => Err("a time from 0ms to 10000ms".into()),
    }
}

/// How long and how often.
#[derive(Clone)]
pub(crate) struct Config {
    rounds: usize,
    measured: Duration,
    warm_up: Duration,
    hand_offs: usize,
    parked: Duration,
    /// So many turns of a task instead of a time.
    turns: Option<u64>,
    /// To the server and back, besides what loopback takes.
    round_trip: Duration,
}

impl Config {
    fn of(options: &Options) -> Self {
        let config = Self {
            rounds: options.rounds.max(1),
            measured: Duration::from_secs_f64(options.seconds.clamp(0.1, 600.0)),
            warm_up: Duration::from_secs(1),
            hand_offs: 24,
            parked: Duration::from_secs(1),
            turns: None,
            round_trip: options.rtt.unwrap_or_default(),
        };
        if !options.quick {
            return config;
        }
        let (measured, warm_up) = (Duration::from_millis(400), Duration::from_millis(200));
        let parked = Duration::from_millis(500);
        Self { rounds: 1, measured, warm_up, hand_offs: 6, parked, ..config }
    }
}

/// Measures them all; the first one is the floor.
pub(crate) async fn run(options: &Options, mut contestants: Vec<Contestant>) -> Result<Board> {
    if let Some(program) = &options.before {
        contestants.push(Contestant::before::<Redlatch>(program));
    }
    let server = Server::private()?;
    // The floor and what it is about are in each.
    let always: Vec<_> = contestants.iter().take(2).map(|one| one.name).chain([BEFORE]).collect();
    let wanted = |contestant: &Contestant| {
        let named = options.only.iter().any(|name| name == contestant.name);
        options.only.is_empty() || named || always.contains(&contestant.name)
    };
    let contestants: Vec<_> = contestants.into_iter().filter(wanted).collect();
    if options.counts {
        return counts::check(server.url(), Config::of(options), contestants).await;
    }
    let way = options.rtt.map(|rtt| Way::to(server.url(), rtt)).transpose()?;
    let at = way.as_ref().map_or(server.url(), |way| &way.url);
    let bench = Bench::new(server.url(), at, Config::of(options)).await?;
    let named = |scenario: &Scenario| options.scenarios.contains(&scenario.key());
    let mut scenarios = Scenario::ALL.to_vec();
    scenarios.retain(|scenario| options.scenarios.is_empty() || named(scenario));
    if scenarios.iter().any(|one| matches!(one, Scenario::Paced(_)))
        && !scenarios.contains(&Scenario::APART)
    {
        // It says how fast the floor is.
        scenarios.insert(0, Scenario::APART);
    }
    let board = measure(bench, contestants, scenarios).await?;
    report::print(&board);
    Ok(board)
}

/// A network between a client and the server.
struct Way {
    /// Where the client finds the server behind it.
    url: String,
    /// Held because it ends when this is dropped.
    _network: Network,
}

impl Way {
    fn to(server: &str, round_trip: Duration) -> Result<Self> {
        let port = server.trim_end_matches('/').rsplit(':').next().unwrap_or_default();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let network = Network::to_port(listener, port.parse()?, Distance::round_trip(round_trip));
        let url = format!("redis://127.0.0.1:{}/", network.port());
        Ok(Self { url, _network: network })
    }
}

async fn measure(
    mut bench: Bench,
    contestants: Vec<Contestant>,
    scenarios: Vec<Scenario>,
) -> Result<Board> {
    let rounds = bench.config.rounds;
    let mut board = Board::new(contestants.iter().map(|contestant| contestant.name).collect());
    let mut crews: Vec<_> = contestants.iter().map(|_| None).collect();
    for round in 0..rounds {
        for (nth, scenario) in scenarios.iter().copied().enumerate() {
            eprintln!("round {} of {rounds}: {}", round + 1, scenario.label());
            for turn in 0..contestants.len() {
                // Each begins in some of them, and follows others in others.
                let at = (turn + round + nth) % contestants.len();
                let (contestant, crew) = (&contestants[at], &mut crews[at]);
                let measured = async {
                    let crew = match crew {
                        Some(crew) => crew,
                        None => crew.insert(bench.start(contestant).await?),
                    };
                    bench.measure(scenario, contestant, crew).await
                };
                match measured.await {
                    Ok(figures) => board.put(scenario, contestant.name, round, figures),
                    Err(e) => {
                        let failure = format!("{} {}: {e}", scenario.key(), contestant.name);
                        eprintln!("  failed {failure}");
                        board.failures.push(failure);
                        // What it does then is its own; it is measured again from the start.
                        *crew = None;
                    }
                }
            }
        }
    }
    Ok(board)
}
