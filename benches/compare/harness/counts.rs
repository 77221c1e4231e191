//! The short form: what redlatch sends for an acquisition, against the most that it may be. A
//! machine that is busy changes times, and none is looked at.

use std::time::Duration;

use super::board::Board;
use super::crew::Contestant;
use super::family::Reading;
use super::figures::Metric;
use super::scenarios::{Bench, Scenario};
use super::{Config, Floor, Peer, Redlatch};
use crate::support::Result;

type Limit = (Scenario, Metric, f64, f64);

/// Of readers of one process: many join one that has asked. They have nothing to do, so the last one of those that are
/// inside together gives the lock back, and the next one asks.
const OF_READERS: &[Limit] =
    &[(Scenario::Crowd, Metric::Sent, 0.0, 1.0), (Scenario::Crowd, Metric::Starved, 0.0, 0.0)];

/// What is counted, and between what it has to lie. One task alone sends the two commands
/// exactly; many share calls, and hand a lock over, how often depends on who comes when.
const LIMITS: &[Limit] = &[
    (Scenario::ALONE, Metric::Sent, 2.0, 2.0),
    (Scenario::APART, Metric::Sent, 0.0, 1.0),
    (Scenario::Crowd, Metric::Sent, 0.0, 1.0),
    (Scenario::Crowd, Metric::Starved, 0.0, 0.0),
    (Scenario::Crowds, Metric::Sent, 0.0, 1.0),
    (Scenario::Crowds, Metric::Starved, 0.0, 0.0),
    (Scenario::Fixed, Metric::Sent, 0.0, 1.5),
    (Scenario::Fixed, Metric::Starved, 0.0, 0.0),
    (Scenario::HandOff, Metric::Parked, 0.0, 0.0),
    (Scenario::Far, Metric::Starved, 0.0, 0.0),
];

pub(crate) async fn check(
    url: &str,
    config: Config,
    contestants: Vec<Contestant>,
) -> Result<Board> {
    let config = Config {
        rounds: 1,
        // Far longer than it takes; who does not come to an end is counted as starved.
        measured: Duration::from_secs(60),
        warm_up: Duration::from_millis(100),
        hand_offs: 1,
        turns: Some(25),
        ..config
    };
    let bench = Bench::new(url, url, config.clone()).await?;
    let (floor, ours) = (<Floor as Peer>::NAME, <Redlatch as Peer>::NAME);
    let contestants = contestants.into_iter().filter(|it| [floor, ours].contains(&it.name));
    let mut counted: Vec<_> = LIMITS.iter().map(|limit| limit.0).collect();
    counted.dedup();
    let board = super::measure(bench, contestants.collect(), counted).await?;
    let bench = Bench::new(url, url, config).await?;
    let readers = vec![Contestant::of::<Reading>()?];
    let of_readers = super::measure(bench, readers, vec![Scenario::Crowd]).await?;

    let mut wrong = Vec::new();
    let of_ours = LIMITS.iter().map(|limit| (&board, ours, limit));
    let readers = OF_READERS.iter().map(|limit| (&of_readers, Reading::NAME, limit));
    for (board, ours, &(scenario, metric, least, most)) in of_ours.chain(readers) {
        let value = board.value(scenario, ours, metric).ok_or("it could not be measured")?;
        let (what, of) = (metric.key(), scenario.key());
        println!("count {of} {ours} {what} {value:.3} of {least:.1} to {most:.1}");
        if value < least || value > most {
            wrong.push(format!("{of} {ours}: {what} is {value:.3}, not {least:.1} to {most:.1}"));
        }
        // That the counting counts: the floor's is known.
        let known = board.value(scenario, floor, Metric::Sent).is_none_or(|sent| sent == 2.0);
        if metric == Metric::Sent && !known {
            wrong.push(format!("{of}: the floor was not counted as 2 commands"));
        }
    }
    if wrong.is_empty() { Ok(board) } else { Err(wrong.join("; ").into()) }
}
