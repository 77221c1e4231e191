//! The main figures as a picture: one panel a figure, one bar a tool.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::board::{Board, Figure};
use crate::crew::{Contestant, Part};
use crate::report::short;
use crate::support::Result;

const WIDTH: u32 = 960;
const COLUMNS: i32 = 2;
const GAP: i32 = 24;
const TITLE: i32 = 26;
const BAR: i32 = 15;
const STEP: i32 = 21;
const LABELS: i32 = 148;
/// For the number at the end of the longest bar.
const NUMBER: i32 = 52;

/// Nothing is drawn behind it, and these can be read on white as well as on black.
const TEXT: RGBColor = RGBColor(0x80, 0x86, 0x8f);
const OURS: RGBColor = RGBColor(0xe0, 0x6c, 0x2c);
const OTHERS: RGBColor = RGBColor(0x4f, 0x8f, 0xc9);

const PANELS: [(&str, Figure); 4] = [
    ("Flash sale, 32 buyers: time / plain lock (less is better, log scale)", Figure::Crowd),
    ("Hand-off: time / plain lock (less is better, log scale)", Figure::HandOff),
    ("64 x 5 turns of 1 ms in 4 processes: time / 320 ms (log scale)", Figure::TurnsAcross),
    ("Holder killed, timeouts of 10 s: longest wait, s", Figure::Crash),
];

struct Bar {
    name: &'static str,
    value: f64,
    /// Of the width.
    part: f64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) fn draw(board: &Board, tools: &[Contestant], path: &Path) -> Result<()> {
    let tools: Vec<_> = tools.iter().filter(|tool| tool.part != Part::Control).collect();
    let shown = tools.iter().filter(|tool| tool.sells()).count();
    let height = TITLE + STEP * shown as i32 + GAP;
    let rows = PANELS.len() as i32 / COLUMNS;
    let area = SVGBackend::new(path, (WIDTH, (rows * height) as u32)).into_drawing_area();
    let width = (WIDTH as i32 - GAP * (COLUMNS - 1)) / COLUMNS;
    for (at, (title, figure)) in PANELS.iter().enumerate() {
        let (column, row) = (at as i32 % COLUMNS, at as i32 / COLUMNS);
        let corner = (column * (width + GAP), row * height);
        panel(&area, corner, width, title, &bars(board, &tools, *figure))?;
    }
    area.present()?;
    Ok(())
}

fn bars(board: &Board, tools: &[&Contestant], figure: Figure) -> Vec<Bar> {
    let value = |tool: &&Contestant| match figure {
        Figure::Crash => board.range(figure, tool.name).map(|(_, most)| most),
        Figure::TurnsAcross => board.value(figure, tool.name),
        _ => board.ratio(figure, tool.name, tools[0].name),
    };
    let values = tools.iter().filter_map(|tool| Some((tool.name, value(tool)?)));
    let values: Vec<_> = values.collect();
    // By tens, from half of the least on, where some are many times the others.
    let least = values.iter().map(|(_, value)| value / 2.0).fold(f64::INFINITY, f64::min);
    let length = |value: f64| match figure {
        Figure::Crash => value,
        _ => (value / least).ln(),
    };
    let most = values.iter().map(|(_, value)| length(*value)).fold(0.0, f64::max);
    let bar = |(name, value)| Bar { name, value, part: length(value) / most };
    values.into_iter().map(bar).collect()
}

fn panel(
    area: &Area<'_>,
    (left, top): (i32, i32),
    width: i32,
    title: &str,
    bars: &[Bar],
) -> Result<()> {
    let font = |size| ("sans-serif", size).into_font();
    let text = |size, across| font(size).color(&TEXT).pos(Pos::new(across, VPos::Center));
    area.draw(&Text::new(title, (left, top + TITLE / 2), text(15, HPos::Left)))?;
    for (nth, bar) in bars.iter().enumerate() {
        let middle = top + TITLE + STEP * nth as i32 + STEP / 2;
        area.draw(&Text::new(bar.name, (left + LABELS - 8, middle), text(15, HPos::Right)))?;
        let length = (f64::from(width - LABELS - NUMBER) * bar.part).round().max(1.0) as i32;
        let corners =
            [(left + LABELS, middle - BAR / 2), (left + LABELS + length, middle + BAR / 2)];
        let ours = matches!(bar.name, "plain" | "fenced" | "fair");
        let color = if ours { OURS } else { OTHERS };
        area.draw(&Rectangle::new(corners, color.filled()))?;
        let number = (left + LABELS + length + 6, middle);
        area.draw(&Text::new(short(bar.value), number, text(15, HPos::Left)))?;
    }
    Ok(())
}
