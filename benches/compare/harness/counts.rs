//! The short form: what redlatch sends for an acquisition, against the most that it may be. A
//! machine that is busy changes times, and none is looked at.

use std::time::Duration;

use super::board::Board;
use super::crew::Contestant;
use super::figures::Metric;
use super::scenarios::{Bench, Scenario};
use super::{Config, Floor, Peer, Redlatch};
use crate::support::Result;

/// What is counted, and between what it has to lie. One task alone sends the two commands
/// exactly; many share calls, and hand a lock over, how often depends on who comes when.
const LIMITS: &[(Scenario, Metric, f64, f64)] = &[
    (Scenario::Alone, Metric::Sent, 2.0, 2.0),
    (Scenario::Apart, Metric::Sent, 0.0, 1.0),
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
    let bench = Bench::new(url, url, config).await?;
    let counted = [<Floor as Peer>::NAME, <Redlatch as Peer>::NAME];
    let contestants = contestants.into_iter().filter(|it| counted.contains(&it.name)).collect();
    let board = super::measure(bench, contestants, Scenario::ALL.to_vec()).await?;

    let mut wrong = Vec::new();
    for &(scenario, metric, least, most) in LIMITS {
        let (floor, ours) = (counted[0], counted[1]);
        let value = board.value(scenario, ours, metric).ok_or("it could not be measured")?;
        let (what, of) = (metric.key(), scenario.key());
        println!("count {of} {what} {value:.3} of {least:.1} to {most:.1}");
        if value < least || value > most {
            wrong.push(format!("{of}: {what} is {value:.3}, not {least:.1} to {most:.1}"));
        }
        // That the counting counts: the floor's is known.
        let known = board.value(scenario, floor, Metric::Sent).is_none_or(|sent| sent == 2.0);
        if metric == Metric::Sent && !known {
            wrong.push(format!("{of}: the floor was not counted as 2 commands"));
        }
    }
    if wrong.is_empty() { Ok(board) } else { Err(wrong.join("; ").into()) }
}
