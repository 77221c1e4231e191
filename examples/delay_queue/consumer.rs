//! One of the processes that carry out what was refused.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use redlatch::LockClient;

use crate::bank::Bank;
use crate::queue::{Claim, Queue};
use crate::support::Result;
use crate::workers::{orders, say};

/// How long a consumer has for a request before another one may have it; also the lease of a lock
/// whose holder was killed.
const LEASE: Duration = Duration::from_secs(1);

/// What a consumer says, a line each; the last three with the request behind it.
pub(crate) const READY: &str = "ready";
pub(crate) const PAID_IN: &str = "paid-in";
pub(crate) const REPEATED: &str = "repeated";
pub(crate) const STOPPED: &str = "stopped";

/// Says that it is ready, waits for the start, and carries out what is due until the other end of
/// the pipe goes. One that `stops` stands still for ever between what it did first and `done`.
pub(crate) async fn serve(name: &str, stops: bool) -> Result<()> {
    let url = std::env::var("REDIS_URL")?;
    let (queue, bank) = (Queue::open(&url, name).await?, Bank::open(&url, name).await?);
    let client = LockClient::builder().url(url).watchdog_timeout(LEASE).connect().await?;
    let mut orders = orders();
    say(READY)?;
    orders.recv().await;
    tokio::select! {
        result = work(&client, &queue, &bank, stops) => result?,
        _ = orders.recv() => {}
    }
    client.close().await;
    Ok(())
}

async fn work(client: &LockClient, queue: &Queue, bank: &Bank, stops: bool) -> Result<()> {
    let mut new_first = queue.new_first().await?;
    loop {
        let wait = match queue.claim(LEASE).await? {
            Claim::Request { id, body } => {
                if let Err(error) = carry_out(client, queue, bank, &id, &body, stops).await {
                    eprintln!("request {id} is due again within {LEASE:?}: {error:#}");
                }
                continue;
            }
            Claim::NotYet(wait) => tokio::time::sleep(wait).left_future(),
            Claim::Empty => std::future::pending().right_future(),
        };
        tokio::select! {
            woken = new_first.next() => woken.ok_or("the subscription has ended")?,
            () = wait => {}
        }
    }
}

/// The lock keeps the account for one request at a time. That this one is not carried out twice is
/// up to the account: a request can be claimed again while its first consumer is only slow.
async fn carry_out(
    client: &LockClient,
    queue: &Queue,
    bank: &Bank,
    id: &str,
    body: &str,
    stops: bool,
) -> Result<()> {
    let (account, amount) = body.split_once(' ').ok_or("not a request")?;
    let (account, amount) = (account.parse()?, amount.parse()?);
    let guard = client.fenced_lock(bank.lock(account)).lock().await?;
    let token = guard.token().get();
    let carried_out = guard.run_until_lost(bank.pay_in(&guard, account, id, amount)).await??;
    if stops {
        say(&format!("{STOPPED} {id}"))?;
        std::future::pending::<()>().await;
    }
    queue.done(id).await?;
    guard.unlock().await?;
    match carried_out == token {
        true => say(&format!("{PAID_IN} {id}")),
        false => say(&format!(
            "{REPEATED} {id} token {carried_out} had paid it in, this is token {token}"
        )),
    }
}
