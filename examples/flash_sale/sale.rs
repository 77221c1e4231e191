//! A whole sale: fires the starting gun, counts the answers, reads the books.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{Figures, Way};
use crate::report::Outcome;
use crate::shop::Shop;
use crate::support::Result;
use crate::till;
use crate::workers::Workers;

pub(crate) async fn run(
    shop: &Shop,
    tills: &mut Workers,
    figures: Figures,
    way: Way,
) -> Result<Outcome> {
    let orders = figures.orders();
    println!("{}: {orders} orders for {} pieces", way.title(), figures.stock);
    shop.stock_up(figures.stock).await?;
    start(tills, figures.processes).await?;
    let started = Instant::now();
    let answers = count(tills, orders).await?;
    let seconds = started.elapsed().as_secs_f64();
    // They end after their last order.
    while tills.next_line().await.is_some() {}
    if answers.total() != orders {
        return Err(format!("{orders} orders, but {} answers", answers.total()).into());
    }
    let waits = (way != Way::Unlocked).then_some(answers.waited);
    Ok(Outcome::new(figures, shop.books().await?, answers.served, waits, seconds))
}

/// Waits until all tills are ready and then starts them together.
async fn start(tills: &mut Workers, processes: u32) -> Result<()> {
    for _ in 0..processes {
        match tills.next_line().await {
            Some((_, line)) if line == till::READY => {}
            _ => return Err("a till did not get ready".into()),
        }
    }
    for till in 0..processes as usize {
        tills.tell(till, "go").await?;
    }
    Ok(())
}

#[derive(Default)]
struct Answers {
    served: u32,
    refused: u32,
    waited: u32,
}

impl Answers {
    fn total(&self) -> u32 {
        self.served + self.refused
    }
}

/// Ends with the last answer, or early when all tills have gone.
async fn count(tills: &mut Workers, orders: u32) -> Result<Answers> {
    let style = "  {bar:40} {pos}/{len} orders, {msg} sold, {elapsed}";
    let bar = ProgressBar::new(orders.into()).with_style(ProgressStyle::with_template(style)?);
    let mut answers = Answers::default();
    while answers.total() < orders {
        let Some((_, line)) = tills.next_line().await else {
            break;
        };
        let (served, waited) = match line.as_str() {
            till::SERVED => (true, false),
            till::SERVED_AFTER_WAITING => (true, true),
            till::REFUSED => (false, false),
            till::REFUSED_AFTER_WAITING => (false, true),
            _ => return Err(format!("a till said {line:?}").into()),
        };
        *if served { &mut answers.served } else { &mut answers.refused } += 1;
        answers.waited += u32::from(waited);
        bar.set_message(answers.served.to_string());
        bar.inc(1);
    }
    bar.finish();
    Ok(answers)
}
