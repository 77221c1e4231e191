//! A service that charges orders under a lock, and the tests of it, which need no server.
//!
//! The service takes a `LockClient` and does not know where Redis is. In production that is a server;
//! here, and on a laptop, it is `memory://`; in the tests it is a `redlatch::test_util::Redis`, which
//! they stop, and which they have lose a lock. The tests run in paused time: they take no time.
//!
//! ```sh
//! cargo run --features test-util --example tested_service
//! cargo test --features test-util --example tested_service
//! ```

use std::time::Duration;

use redlatch::{Error, ErrorKind, LockClient};

/// What a caller of the service is told.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Charged(u32),
    /// Somebody else charges this order right now.
    Busy,
    /// The work was stopped, because another process may charge the order by now.
    Stopped,
    /// Redis is out of reach: nothing was charged.
    TryLater,
}

/// A shop that charges each order once at a time.
struct Shop {
    locks: LockClient,
}

impl Shop {
    async fn charge(&self, order: &str, amount: u32) -> Result<Answer, Error> {
        let lock = self.locks.lock(format!("order:{order}"));
        let wait = Duration::from_millis(200);
        let charged = lock.try_with(wait, redlatch::Lease::Watchdog, async |_guard| {
            ask_the_bank().await;
            amount
        });
        match charged.await {
            Ok(Some(amount)) => Ok(Answer::Charged(amount)),
            Ok(None) => Ok(Answer::Busy),
            Err(error) if error.kind() == ErrorKind::Lost => Ok(Answer::Stopped),
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Answer::TryLater),
            Err(error) => Err(error),
        }
    }
}

/// It takes its time.
async fn ask_the_bank() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory://".to_owned());
    let shop = Shop { locks: LockClient::connect(url).await? };
    let charging = tokio::time::timeout(Duration::from_millis(50), shop.charge("4711", 5));
    println!("done after 50 ms: {}", charging.await.is_ok());
    shop.locks.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use redlatch::test_util::Redis;
    use tokio::time::sleep;

    use super::*;

    const ORDER: &str = "order:4711";

    #[tokio::test(start_paused = true)]
    async fn an_order_is_charged() {
        let shop = Shop { locks: LockClient::in_memory() };
        assert_eq!(shop.charge("4711", 5).await.unwrap(), Answer::Charged(5));
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_that_another_process_charges_is_busy() {
        let redis = Redis::new();
        let elsewhere = redis.client().lock(ORDER).lock().await.unwrap();
        let shop = Shop { locks: redis.client() };
        assert_eq!(shop.charge("4711", 5).await.unwrap(), Answer::Busy);
        elsewhere.unlock().await.unwrap();
        assert_eq!(shop.charge("4711", 5).await.unwrap(), Answer::Charged(5));
    }

    #[tokio::test(start_paused = true)]
    async fn work_stops_when_the_lock_is_lost_in_the_middle_of_it() {
        let redis = Redis::new();
        let shop = Shop { locks: redis.client() };
        let charging = tokio::spawn(async move { shop.charge("4711", 5).await });
        sleep(Duration::from_secs(5)).await;
        assert_eq!(redis.holders(ORDER).len(), 1);
        redis.give(ORDER, "somebody:1");
        assert_eq!(charging.await.unwrap().unwrap(), Answer::Stopped);
        assert_eq!(redis.holders(ORDER).into_keys().collect::<Vec<_>>(), ["somebody:1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_service_starts_while_redis_is_down_and_works_when_it_is_up() {
        let redis = Redis::new();
        redis.stop();
        let shop = Shop { locks: redis.client() };
        assert_eq!(shop.charge("4711", 5).await.unwrap(), Answer::TryLater);
        redis.start();
        assert_eq!(shop.charge("4711", 5).await.unwrap(), Answer::Charged(5));
    }
}
