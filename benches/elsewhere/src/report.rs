//! What people read of it: one table in Markdown.

use comfy_table::{Table, presets};

use crate::board::{Board, Figure};
use crate::crew::{Contestant, Part};

const HEADER: [&str; 10] = [
    "",
    "round trips of a sale",
    "1 buyer: time ÷ plain",
    "32 buyers: time ÷ plain",
    "64 x 5 turns, 1 process: time ÷ 320 ms",
    "64 x 5 turns, 4 processes: time ÷ 320 ms",
    "hand-off: time ÷ plain",
    "holder killed: next after, s",
    "holder stopped: next after, s",
    "its late write",
];

pub(crate) fn table(board: &Board, tools: &[Contestant]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADER);
    let first = tools.first().map_or("", |tool| tool.name);
    for Contestant { name, .. } in tools.iter().filter(|tool| tool.part != Part::Control) {
        let value = |figure| board.value(figure, name);
        let ratio = |figure| told(board.ratio(figure, name, first), short);
        let turns = |figure| told(value(figure), short);
        let seconds = |figure| told(board.range(figure, name), range);
        let trips = told(value(Figure::RoundTrips), |trips| format!("{trips:.0}"));
        table.add_row([
            (*name).to_owned(),
            trips,
            ratio(Figure::Alone),
            ratio(Figure::Crowd),
            turns(Figure::Turns),
            turns(Figure::TurnsAcross),
            ratio(Figure::HandOff),
            seconds(Figure::Crash),
            seconds(Figure::Pause),
            late(board, name),
        ]);
    }
    format!("{table}\n{}", notes(board, tools))
}

/// What has no column.
fn notes(board: &Board, tools: &[Contestant]) -> String {
    let mut notes = String::new();
    for tool in tools {
        let tries = board.value(Figure::Tries, tool.name).filter(|tries| *tries > 1.0);
        if let Some(tries) = tries {
            notes += &format!("\n{}: {tries:.1} tries for each of the 64 x 5 turns", tool.name);
        }
        if let Some(sold) = board.sold.get(tool.name).filter(|_| tool.part == Part::Control) {
            notes += &format!("\n{}: up to {sold} sold of 100", tool.name);
        }
    }
    notes
}

fn told<T>(value: Option<T>, how: impl Fn(T) -> String) -> String {
    value.map_or_else(String::new, how)
}

fn late(board: &Board, name: &'static str) -> String {
    board.late.get(name).map_or_else(String::new, |late| {
        let verdict = if late.stands { "accepted" } else { "refused" };
        eprintln!("late write, {name}: {}", late.answer);
        match late.answer.strip_prefix("error") {
            Some(_) => format!("{verdict}, with an error"),
            None => verdict.into(),
        }
    })
}

fn range((least, most): (f64, f64)) -> String {
    let [least, most] = [least, most].map(|seconds| format!("{seconds:.1}"));
    if least == most { least } else { format!("{least} to {most}") }
}

/// As many digits as mean something.
pub(crate) fn short(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 100.0 => format!("{ratio:.0}"),
        ratio if ratio >= 10.0 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}
