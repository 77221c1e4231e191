//! A service whose locks a Prometheus can watch: what it exports after a minute's worth of trouble.
//!
//! Some tasks want one lock, one gives up, and an operator deletes a lock that is held. Then the example asks
//! its own exporter for what it has recorded. `guide::operations` says what each line means, and has the alerts.
//!
//! ```text
//! cargo run --example metrics --features metrics
//! ```

#[path = "support/exporter.rs"]
mod exporter;
#[path = "support/mod.rs"]
mod support;

use std::net::TcpListener;
use std::time::Duration;

use redlatch::LockClient;
use support::{Result, Server, unique};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::from_env_or_private()?;
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    // Before the client, which keeps what it registers.
    exporter::export(port)?;
    let client = LockClient::builder().url(server.url()).connect().await?;
    let (report, deleted) = (unique("report"), unique("deleted"));

    let jobs = (0..4).map(|_| {
        let lock = client.lock(&report);
        tokio::spawn(async move {
            let guard = lock.lock().await?;
            sleep(Duration::from_millis(20)).await;
            guard.unlock().await
        })
    });
    for job in jobs.collect::<Vec<_>>() {
        job.await??;
    }
    let guard = client.lock(&report).lock().await?;
    let busy = client.lock(&report).try_lock_now().await?;
    println!("another task had it: {}", busy.is_none());
    guard.unlock().await?;

    let guard = client.lock(&deleted).lock().await?;
    client.lock(&deleted).force_unlock().await?;
    println!("an operator took it away: {}", guard.unlock().await.is_err());

    let page = get(port).await?;
    for line in
        page.lines().filter(|line| line.starts_with("redlatch_") && !line.contains("_bucket"))
    {
        println!("{line}");
    }
    client.close().await;
    Ok(())
}

/// As Prometheus asks.
async fn get(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}
