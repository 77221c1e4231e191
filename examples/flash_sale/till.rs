//! One of the selling processes.

use futures::{StreamExt, TryStreamExt, stream};
use redlatch::LockClient;

use crate::args::{Assignment, Figures, Way};
use crate::shop::{Sale, Shop};
use crate::support::Result;
use crate::workers::{Workers, orders, say};

/// Orders that a till works on at the same time.
const AT_ONCE: usize = 8;

/// What a till says, a line each.
pub(crate) const READY: &str = "ready";
pub(crate) const SERVED: &str = "served";
pub(crate) const SERVED_AFTER_WAITING: &str = "served after waiting";
pub(crate) const REFUSED: &str = "refused";
pub(crate) const REFUSED_AFTER_WAITING: &str = "refused after waiting";

/// The tills of one sale, seen from the process that starts them.
pub(crate) fn open(url: &str, shop: &Shop, figures: Figures, way: Way) -> Result<Workers> {
    let till = |number: u32| {
        let mut arguments =
            ["till", "--shop", shop.name(), "--way", way.argument()].map(String::from).to_vec();
        for (argument, value) in [
            ("--number", number),
            ("--stock", figures.stock),
            ("--processes", figures.processes),
            ("--buyers", figures.buyers),
        ] {
            arguments.extend([argument.to_owned(), value.to_string()]);
        }
        arguments
    };
    let tills: Vec<_> = (0..figures.processes).map(till).collect();
    Workers::start(url, &tills)
}

/// Says that it is ready, waits until it is told to start, works off its orders.
pub(crate) async fn serve(assignment: &Assignment) -> Result<()> {
    // The URL comes in the environment because everybody can read the arguments of a process, and
    // there may be a password in it.
    let url = std::env::var("REDIS_URL")?;
    let shop = Shop::open(&url, &assignment.shop).await?;
    let client = match assignment.way {
        Way::Unlocked => None,
        Way::Locked | Way::Executed => Some(LockClient::connect(&url).await?),
    };
    let mut organiser = orders();
    say(READY)?;
    if organiser.recv().await.is_none() {
        return Ok(());
    }
    let served = stream::iter(assignment.figures.orders_at(assignment.number))
        .map(|buyer| order(&shop, client.as_ref(), assignment.way, buyer))
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |answer| say(answer));
    let done = tokio::select! {
        done = served => done,
        // The other end of the pipe has gone: the sale is off.
        _ = organiser.recv() => Err("the sale was called off".into()),
    };
    if let Some(client) = client {
        client.close().await;
    }
    done
}

/// One order, inside the lock if there is one.
async fn order(
    shop: &Shop,
    client: Option<&LockClient>,
    way: Way,
    buyer: u32,
) -> Result<&'static str> {
    let Some(client) = client else {
        return Ok(answer(shop.sell(buyer).await?, false));
    };
    // Calls on one handle nest: each order has one of its own, so orders exclude each other within
    // this process just as they do between processes.
    let lock = client.lock(shop.lock());
    let (guard, waited) = match lock.try_lock_now().await? {
        Some(guard) => (guard, false),
        None => (lock.lock().await?, true),
    };
    let sale = match way {
        Way::Executed => shop.sell_under(&guard, buyer).await?,
        _ => guard.run_until_lost(shop.sell(buyer)).await??,
    };
    guard.unlock().await?;
    Ok(answer(sale, waited))
}

fn answer(sale: Sale, waited: bool) -> &'static str {
    match (sale == Sale::Sold, waited) {
        (true, false) => SERVED,
        (true, true) => SERVED_AFTER_WAITING,
        (false, false) => REFUSED,
        (false, true) => REFUSED_AFTER_WAITING,
    }
}
