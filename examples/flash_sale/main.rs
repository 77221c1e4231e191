//! A flash sale: more buyers than goods, and all of them at once.
//!
//! The stock is a plain number in Redis. To sell one piece a shop reads the number, thinks a little
//! (takes the payment, prints the label) and writes back one less. Several *processes* sell from the
//! same stock, first without a lock, which sells pieces that do not exist, and then with redlatch,
//! which sells exactly what is there. In the third sale the tills leave their writes to
//! `LockGuard::execute`: even one that is paused past its lease would write nothing.
//!
//! ```text
//! cargo run --release --example flash_sale
//! cargo run --release --example flash_sale -- --stock 100 --processes 8 --buyers 1000
//! ```
//!
//! It uses the server in `REDIS_URL` (with keys of its own, which it removes), else a private one.
//! The exit status is 0 if and only if the sales with the lock went as they must.

mod args;
mod report;
mod sale;
mod shop;
mod till;

#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "no till is killed")]
#[path = "../support/workers.rs"]
mod workers;

use std::process::ExitCode;

use args::{Figures, Role, Way};
use report::Outcome;
use support::Result;

#[tokio::main]
async fn main() -> ExitCode {
    let went_well = match args::parse() {
        Role::Till(assignment) => till::serve(&assignment).await.map(|()| true),
        Role::Organiser(figures) => all_sales(figures).await,
    };
    match went_well {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("flash_sale: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn all_sales(figures: Figures) -> Result<bool> {
    let server = support::Server::from_env_or_private()?;
    let mut outcomes = Vec::new();
    for way in [Way::Unlocked, Way::Locked, Way::Executed] {
        outcomes.push((way, one_sale(server.url(), figures, way).await?));
    }
    Ok(report::print(figures, &outcomes))
}

async fn one_sale(url: &str, figures: Figures, way: Way) -> Result<Outcome> {
    let shop = shop::Shop::open(url, &support::unique("flash-sale")).await?;
    let mut tills = till::open(url, &shop, figures, way)?;
    let outcome = tokio::select! {
        // A signal that comes when the sale has begun would end the process, if it did not look for signals first.
        biased;
        () = told_to_stop() => Err("told to stop".into()),
        outcome = sale::run(&shop, &mut tills, figures, way) => outcome,
    };
    tills.close().await;
    // Also after an error: the server may be one that other people use.
    shop.clear_away().await?;
    outcome
}

/// Ctrl-C, or a polite kill.
async fn told_to_stop() {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => _ = terminate.recv().await,
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
use std::future::pending as terminated;
