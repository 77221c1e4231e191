//! The main figures as a picture for the README: one panel a figure, one bar a contestant.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::harness::{Board, Metric, Scenario};
use crate::support::Result;

const WIDTH: u32 = 960;
const COLUMNS: i32 = 2;
const GAP: i32 = 24;
const TITLE: i32 = 26;
const BAR: i32 = 15;
const STEP: i32 = 21;
const LABELS: i32 = 128;
/// For the number at the end of the longest bar.
const NUMBER: i32 = 52;

/// Nothing is drawn behind it, and these can be read on white as well as on black.
const TEXT: RGBColor = RGBColor(0x80, 0x86, 0x8f);
const OURS: RGBColor = RGBColor(0xe0, 0x6c, 0x2c);
const FLOOR: RGBColor = RGBColor(0x80, 0x86, 0x8f);
const OTHERS: RGBColor = RGBColor(0x4f, 0x8f, 0xc9);

struct Panel {
    title: &'static str,
    scenario: Scenario,
    metric: Metric,
    /// By tens: some are hundreds of times the others.
    logarithmic: bool,
}

const PANELS: &[Panel] = &[
    Panel {
        title: "64 names, 64 tasks: throughput / floor (more is better)",
        scenario: Scenario::APART,
        metric: Metric::Rate,
        logarithmic: false,
    },
    Panel {
        title: "Hand-off, median / 2 round trips (less is better, log scale)",
        scenario: Scenario::HandOff,
        metric: Metric::P50,
        logarithmic: true,
    },
    Panel {
        title: "One name, 64 tasks: throughput / floor (more is better)",
        scenario: Scenario::Crowd,
        metric: Metric::Rate,
        logarithmic: false,
    },
    Panel {
        title: "One name, 64 tasks: how many starve (less is better)",
        scenario: Scenario::Crowd,
        metric: Metric::Starved,
        logarithmic: false,
    },
    Panel {
        title: "One name, 4 x 16 tasks: throughput / floor (more is better)",
        scenario: Scenario::Crowds,
        metric: Metric::Rate,
        logarithmic: false,
    },
    Panel {
        title: "320 turns of 1 ms: time / floor (less is better)",
        scenario: Scenario::Fixed,
        metric: Metric::Seconds,
        logarithmic: false,
    },
];

impl Panel {
    fn value(&self, board: &Board, name: &'static str) -> Option<f64> {
        if self.metric.is_ratio() {
            board.ratio(self.scenario, name, self.metric)
        } else {
            board.value(self.scenario, name, self.metric)
        }
    }

    /// Which part of the width a value takes, when another one takes it all.
    fn part(&self, value: f64, most: f64) -> f64 {
        if most <= 0.0 {
            0.0
        } else if self.logarithmic {
            // One is not nothing: the floor has a bar as well.
            let length = |value: f64| (value.max(1.0) * 2.0).ln();
            length(value) / length(most)
        } else {
            value / most
        }
    }

    fn number(&self, value: f64) -> String {
        if self.metric.is_ratio() { short(value) } else { format!("{value:.0}") }
    }
}

pub(crate) fn draw(board: &Board, path: &Path) -> Result<()> {
    let rows = (PANELS.len() as i32 + COLUMNS - 1) / COLUMNS;
    let height = TITLE + STEP * board.contestants.len() as i32 + GAP;
    let area = SVGBackend::new(path, (WIDTH, (rows * height) as u32)).into_drawing_area();
    let width = (WIDTH as i32 - GAP * (COLUMNS - 1)) / COLUMNS;
    let font = |size| ("sans-serif", size).into_font();
    let text = |size, across| font(size).color(&TEXT).pos(Pos::new(across, VPos::Center));
    for (at, panel) in PANELS.iter().enumerate() {
        let (column, row) = (at as i32 % COLUMNS, at as i32 / COLUMNS);
        let (left, top) = (column * (width + GAP), row * height);
        let title = text(16, HPos::Left);
        area.draw(&Text::new(panel.title, (left, top + TITLE / 2), title))?;
        let values = board.contestants.iter().filter_map(|name| panel.value(board, name));
        let most = values.fold(0.0, f64::max);
        for (nth, name) in board.contestants.iter().enumerate() {
            let middle = top + TITLE + STEP * nth as i32 + STEP / 2;
            let label = (left + LABELS - 8, middle);
            area.draw(&Text::new(*name, label, text(15, HPos::Right)))?;
            let Some(value) = panel.value(board, name) else { continue };
            let part = panel.part(value, most);
            let length = (f64::from(width - LABELS - NUMBER) * part).round().max(1.0) as i32;
            let bar =
                [(left + LABELS, middle - BAR / 2), (left + LABELS + length, middle + BAR / 2)];
            let color = match nth {
                0 => FLOOR,
                1 => OURS,
                _ => OTHERS,
            };
            area.draw(&Rectangle::new(bar, color.filled()))?;
            let number = (left + LABELS + length + 6, middle);
            area.draw(&Text::new(panel.number(value), number, text(15, HPos::Left)))?;
        }
    }
    area.present()?;
    Ok(())
}

fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
