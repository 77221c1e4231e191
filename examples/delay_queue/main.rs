//! Refused, so later: what to do with a request whose lock is taken, if its caller shall not wait.
//!
//! Requests come in for a few accounts, all at once. Each tries the lock of its account and does not
//! wait: a request that is refused goes into a queue, and its caller may go. Three consumer processes
//! carry out what is due. One of them is killed between its work and its note that the work is done:
//! the request is due again after a lease, another consumer claims it, and the account knows from the
//! fencing token that it has been carried out. Nothing is lost, and nothing is done twice.
//!
//! ```text
//! cargo run --example delay_queue
//! ```
//!
//! [`queue`] is the queue: two keys and three scripts.

mod bank;
mod consumer;
mod queue;

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/workers.rs"]
mod workers;

use std::collections::HashSet;
use std::time::Duration;

use bank::Bank;
use consumer::{PAID_IN, READY, REPEATED, STOPPED};
use futures::future::try_join_all;
use queue::Queue;
use redlatch::LockClient;
use support::{Result, Server, unique};
use tokio::time::{sleep, timeout};
use workers::Workers;

const ACCOUNTS: usize = 4;
const REQUESTS: usize = 40;
const CONSUMERS: usize = 3;

/// What each request pays in.
const AMOUNT: i64 = 10;

/// How long a request takes to carry out, and how much later a refused one is tried again.
const WORK: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_millis(100);

/// Far longer than the example takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, rest @ ..] = &arguments[..] {
        return consumer::serve(name, !rest.is_empty()).await;
    }
    let server = Server::from_env_or_private()?;
    let name = unique("delay-queue");
    let bank = Bank::open(server.url(), &name).await?;
    let queue = Queue::open(server.url(), &name).await?;
    let result = timeout(PATIENCE, run(server.url(), &name, &bank, &queue)).await;
    bank.clear_away(ACCOUNTS, queue.keys()).await?;
    result?
}

async fn run(url: &str, name: &str, bank: &Bank, queue: &Queue) -> Result<()> {
    let client = LockClient::connect(url).await?;
    let requests = (0..REQUESTS).map(|request| handle(&client, bank, queue, request));
    let at_once = try_join_all(requests).await?.into_iter().filter(|carried_out| *carried_out);
    let later = REQUESTS - at_once.count();
    client.close().await;
    println!("{REQUESTS} requests for {ACCOUNTS} accounts, {later} of them refused and put off");

    // The first of them is the one that stops after its first request.
    let mut arguments = vec![vec![name.to_owned()]; CONSUMERS];
    arguments[0].push("stops".to_owned());
    let mut consumers = Workers::start(url, &arguments)?;
    carry_out(&mut consumers, later).await?;
    consumers.close().await;

    for account in 0..ACCOUNTS {
        let (balance, right) =
            (bank.balance(account).await?, (REQUESTS / ACCOUNTS) as i64 * AMOUNT);
        assert_eq!(balance, right, "account {account}: each request must be carried out once");
    }
    println!("{REQUESTS} requests, each of them carried out once");
    Ok(())
}

/// What a service does with a request: true if it was carried out, false if it was put off.
async fn handle(client: &LockClient, bank: &Bank, queue: &Queue, number: usize) -> Result<bool> {
    let (request, account) = (number.to_string(), number % ACCOUNTS);
    let Some(guard) = client.fenced_lock(bank.lock(account)).try_lock_now().await? else {
        queue.put(&request, &format!("{account} {AMOUNT}"), LATER).await?;
        return Ok(false);
    };
    guard.run_until_lost(bank.pay_in(&guard, account, &request, AMOUNT)).await??;
    sleep(WORK).await;
    guard.unlock().await?;
    Ok(true)
}

/// Has the consumers carry out these many requests, and kills one of them at the worst moment.
async fn carry_out(consumers: &mut Workers, requests: usize) -> Result<()> {
    let mut ready = 0;
    let mut done = HashSet::new();
    while done.len() < requests {
        let (consumer, line) = consumers.next_line().await.ok_or("the consumers have gone")?;
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words[..] {
            [READY] => {
                ready += 1;
                if ready == CONSUMERS {
                    consumers.tell(0, "go").await?;
                }
            }
            [STOPPED, request] => {
                consumers.kill(consumer).await?;
                println!("a consumer was killed after request {request}, before it could say so");
                for other in 1..CONSUMERS {
                    consumers.tell(other, "go").await?;
                }
            }
            [PAID_IN, request] => _ = done.insert(request.to_owned()),
            [REPEATED, request, tokens] => {
                println!("request {request} came again: {tokens}");
                done.insert(request.to_owned());
            }
            _ => return Err(format!("unexpected: {line}").into()),
        }
    }
    Ok(())
}
