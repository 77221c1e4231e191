//! A counter that serves in the order in which customers came, whichever process they stand before.
//!
//! Three processes take customers in. The counter is closed at first: the lock is held. Twelve customers
//! come one after another, each at another process, and each waits for the fair lock. One of the
//! processes is killed, and its customers with it. Then the counter opens, and each customer who has the
//! lock draws the next ticket. The tickets are in the order of the customers, and nobody waits for
//! those who have gone.
//!
//! ```text
//! cargo run --example ticket_counter
//! ```
//!
//! With `client.lock` in place of `client.fair_lock` a process that has the lock serves its own
//! customers first, because that is faster.

#[path = "support/mod.rs"]
mod support;
#[path = "support/workers.rs"]
mod workers;

use std::time::Duration;

use redis::AsyncCommands;
use redlatch::{FairLock, LockClient};
use support::{Result, Server, unique};
use tokio::time::{sleep, timeout};
use workers::{Workers, orders, say};

const COUNTERS: usize = 3;
const CUSTOMERS: usize = 12;

/// Customers who come within a round trip have no order. This is far longer than one.
const APART: Duration = Duration::from_millis(200);

/// Far longer than the example takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(name) = std::env::args().nth(1) {
        return serve(&name).await;
    }
    let server = Server::from_env_or_private()?;
    let name = unique("tickets");
    let result = timeout(PATIENCE, run(server.url(), &name)).await;
    let mut redis = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
    let _: () = redis.del(drawn(&name)).await?;
    result?
}

/// The key of the number of tickets that were drawn.
fn drawn(name: &str) -> String {
    format!("{name}:drawn")
}

async fn run(url: &str, name: &str) -> Result<()> {
    let client = LockClient::connect(url).await?;
    let closed = client.fair_lock(name).lock().await?;
    let mut counters = Workers::start(url, &vec![vec![name.to_owned()]; COUNTERS])?;
    for _ in 0..COUNTERS {
        counters.next_line().await.ok_or("the counters have gone")?;
    }
    for customer in 1..=CUSTOMERS {
        counters.tell(customer % COUNTERS, &customer.to_string()).await?;
        counters.next_line().await.ok_or("the counters have gone")?;
        sleep(APART).await;
    }
    counters.kill(0).await?;
    println!("{CUSTOMERS} customers at {COUNTERS} counters, one of which was killed");

    closed.unlock().await?;
    let mut tickets = Vec::new();
    while tickets.len() < CUSTOMERS - CUSTOMERS / COUNTERS {
        let (counter, line) = counters.next_line().await.ok_or("the counters have gone")?;
        let (customer, ticket) = line.split_once(' ').ok_or("no ticket")?;
        tickets.push((ticket.parse::<usize>()?, customer.parse::<usize>()?, counter));
    }
    counters.close().await;
    client.close().await;
    // The lines of two processes come in any order: the tickets have the order of the lock.
    tickets.sort_unstable();
    for (ticket, customer, counter) in &tickets {
        println!("customer {customer}, at counter {counter}: ticket {ticket}");
    }
    assert!(tickets.is_sorted_by_key(|(_, customer, _)| *customer), "not first come");
    println!("{} tickets, first come, first served", tickets.len());
    Ok(())
}

/// One of the processes: each line that it reads is a customer.
async fn serve(name: &str) -> Result<()> {
    let url = std::env::var("REDIS_URL")?;
    let redis = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
    let client = LockClient::connect(url).await?;
    let mut orders = orders();
    say("ready")?;
    while let Some(customer) = orders.recv().await {
        // A handle of its own: calls of one handle would nest.
        let (lock, redis, drawn) = (client.fair_lock(name), redis.clone(), drawn(name));
        tokio::spawn(async move {
            if let Err(error) = draw(&lock, redis, &drawn, &customer).await {
                eprintln!("customer {customer} has no ticket: {error:#}");
            }
        });
    }
    Ok(())
}

async fn draw(
    lock: &FairLock,
    mut redis: redis::aio::MultiplexedConnection,
    drawn: &str,
    customer: &str,
) -> Result<()> {
    say(&format!("{customer} waits"))?;
    let guard = lock.lock().await?;
    let ticket: u64 = guard.run_until_lost(redis.incr(drawn, 1)).await??;
    say(&format!("{customer} {ticket}"))?;
    guard.unlock().await?;
    Ok(())
}
