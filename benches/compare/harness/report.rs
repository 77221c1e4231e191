//! What people and programs read of it.

use comfy_table::{Table, presets};

use super::board::Board;
use super::figures::Metric;
use super::scenarios::Scenario;

pub(crate) fn print(board: &Board) {
    for scenario in Scenario::ALL {
        println!("\n{}\n\n{}", scenario.label(), details(board, scenario));
    }
    println!("\nRatios to the floor, as Markdown\n\n{}\n", summary(board));
    for line in lines(board) {
        println!("{line}");
    }
    for failure in &board.failures {
        println!("failed {failure}");
    }
}

fn table<'a>(header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    table
}

/// Everything that was measured in one scenario, a ratio to the floor first.
fn details(board: &Board, scenario: Scenario) -> Table {
    let metrics = scenario.metrics().iter().chain([&Metric::Errors]);
    let metrics: Vec<_> = metrics.copied().collect();
    let labels = metrics.iter().map(|metric| metric.label());
    let mut table = table(std::iter::once("").chain(labels));
    for name in &board.contestants {
        let cells = metrics.iter().map(|metric| {
            let Some(value) = board.value(scenario, name, *metric) else {
                return "".to_owned();
            };
            let value = format!("{value:.*}", metric.decimals());
            match board.ratio(scenario, name, *metric) {
                Some(ratio) => format!("{} ({value})", short(ratio)),
                None => value,
            }
        });
        table.add_row(std::iter::once((*name).to_owned()).chain(cells));
    }
    table
}

/// What is told of a scenario in the README.
fn told(scenario: Scenario) -> &'static [Metric] {
    use Metric::{ClientCpu, Cpu, FarLongest, FarShare, InUse, Jain, JainProcesses, Longest};
    use Metric::{P50, P90, P99, Parked, Rate, Seconds, Sent, Starved};
    match scenario {
        Scenario::Apart(..) => &[Rate, Sent, Cpu, ClientCpu],
        Scenario::Paced(_) => &[P50, P99],
        Scenario::Crowd => &[Rate, Starved, Jain, Longest, Sent, Cpu],
        Scenario::Crowds => &[Rate, Starved, Jain, JainProcesses, Longest, Sent, Cpu],
        Scenario::Fixed => &[Seconds, InUse, Sent],
        Scenario::HandOff => &[P50, P90, Parked],
        Scenario::Far => &[FarShare, FarLongest, InUse],
    }
}

/// Ratios where there is a floor, else plain figures.
fn summary(board: &Board) -> Table {
    let mut header: Vec<_> = std::iter::once("").chain(board.contestants.iter().copied()).collect();
    let has_peers = board.contestants.len() > 2;
    header.extend(has_peers.then_some("redlatch to the best other"));
    let mut table = table(header);
    for scenario in Scenario::ALL {
        for (nth, metric) in told(scenario).iter().copied().enumerate() {
            // As plain figures they say more: the floor's are two.
            let plain = !metric.is_ratio() || metric == Metric::Sent;
            let label = if nth == 0 { scenario.label() } else { "...".into() };
            let unit = if plain { "" } else { " ÷ floor" };
            let mut row = vec![format!("{label}: {}{unit}", metric.label())];
            row.extend(board.contestants.iter().map(|name| {
                match plain {
                    true => board
                        .value(scenario, name, metric)
                        .map_or_else(String::new, |value| format!("{value:.*}", metric.decimals())),
                    false => board.ratio(scenario, name, metric).map_or_else(String::new, short),
                }
            }));
            let best = board.beside_the_best(scenario, metric).filter(|_| !plain && has_peers);
            row.extend(has_peers.then(|| best.map_or_else(String::new, short)));
            table.add_row(row);
        }
    }
    table
}

/// One line a figure: `figure SCENARIO CONTESTANT METRIC VALUE RATIO`, with a dash for no ratio.
fn lines(board: &Board) -> Vec<String> {
    let mut lines = Vec::new();
    for scenario in Scenario::ALL {
        for name in &board.contestants {
            for metric in scenario.metrics() {
                let Some(value) = board.value(scenario, name, *metric) else { continue };
                let ratio = board.ratio(scenario, name, *metric);
                let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.4}"));
                let (scenario, metric) = (scenario.key(), metric.key());
                lines.push(format!("figure {scenario} {name} {metric} {value:.4} {ratio}"));
            }
        }
    }
    lines
}

/// As many digits as mean something.
pub(crate) fn short(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 100.0 => format!("{ratio:.0}"),
        ratio if ratio >= 10.0 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}
