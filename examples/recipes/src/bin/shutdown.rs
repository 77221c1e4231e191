//! The service of the recipe on shutting down, as a process: says its port, and in the end which locks were left.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --bin shutdown -- 20`

use std::error::Error;
use std::time::Duration;

use redlatch::LockClient;
use redlatch_recipes::shutdown::serve;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds =
        std::env::args().nth(1).ok_or("how many seconds may it take to stop?")?.parse()?;
    // Until then the signal ends the process at once.
    let terminate = signal(SignalKind::terminate())?;
    let locks = LockClient::connect(std::env::var("REDIS_URL")?).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?);
    let left = serve(listener, locks, terminate, Duration::from_secs(seconds)).await;
    println!("released under their holders: {:?}", left.released);
    println!("left to their leases: {:?}", left.unreleased);
    Ok(())
}
