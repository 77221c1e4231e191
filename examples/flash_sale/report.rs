//! What came of it: the table, and whether the sales with the lock went as they must.

use std::collections::HashSet;

use comfy_table::{CellAlignment, Table, presets};

use crate::args::{Figures, Way};
use crate::shop::Books;

/// The figures of one sale.
pub(crate) struct Outcome {
    books: Books,
    /// Pieces that cannot be delivered.
    oversold: usize,
    /// Pieces that went to somebody who had one already.
    served_twice: usize,
    /// Orders that the tills say they have filled.
    claimed: u32,
    /// Orders that were not granted the lock at once.
    waits: Option<u32>,
    seconds: f64,
}

impl Outcome {
    pub(crate) fn new(
        figures: Figures,
        books: Books,
        claimed: u32,
        waits: Option<u32>,
        seconds: f64,
    ) -> Self {
        let sold = books.sold.len();
        let oversold = sold.saturating_sub(figures.stock as usize);
        let customers: HashSet<_> = books.sold.iter().collect();
        let served_twice = sold - customers.len();
        Self { books, oversold, served_twice, claimed, waits, seconds }
    }

    /// Everything that is wrong with this sale.
    fn faults(&self, figures: Figures) -> Vec<String> {
        let sold = self.books.sold.len();
        let must_sell = figures.stock.min(figures.buyers) as usize;
        let left = i64::from(figures.stock) - sold as i64;
        let mut faults = Vec::new();
        let mut must = |holds: bool, fault: String| faults.extend((!holds).then_some(fault));
        must(self.oversold == 0, format!("oversold by {}", self.oversold));
        must(sold >= must_sell, format!("sold {sold} where {must_sell} could be sold"));
        must(self.served_twice == 0, format!("{} pieces to buyers with one", self.served_twice));
        must(self.books.stock == left, format!("{} in stock, not {left}", self.books.stock));
        must(self.claimed as usize == sold, format!("{} confirmed, {sold} booked", self.claimed));
        must(self.books.lock_is_free, "the lock was left behind".to_owned());
        faults
    }
}

/// Prints the table and the verdicts. True if the sales with the lock have no fault.
pub(crate) fn print(figures: Figures, outcomes: &[(Way, Outcome)]) -> bool {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header([
        "",
        "stock",
        "buyers",
        "sold",
        "oversold",
        "served twice",
        "waits",
        "seconds",
    ]);
    for (way, sale) in outcomes {
        table.add_row([
            way.title().to_owned(),
            figures.stock.to_string(),
            figures.buyers.to_string(),
            sale.books.sold.len().to_string(),
            sale.oversold.to_string(),
            sale.served_twice.to_string(),
            sale.waits.map_or("-".to_owned(), |waits| waits.to_string()),
            format!("{:.2}", sale.seconds),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\n{table}\n");
    let mut without_fault = true;
    for (way, sale) in outcomes {
        let faults = sale.faults(figures);
        let verdict = match (way, sale.oversold) {
            (Way::Unlocked, 0) => "nothing oversold this time; try more buyers".to_owned(),
            (Way::Unlocked, many) => format!("oversold by {many}"),
            _ if faults.is_empty() => {
                "sold exactly what was there, and nobody was served twice".to_owned()
            }
            _ => format!("WRONG: {}", faults.join("; ")),
        };
        println!("{}: {verdict}.", way.title());
        without_fault &= *way == Way::Unlocked || faults.is_empty();
    }
    without_fault
}
