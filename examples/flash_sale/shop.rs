//! The shop: its books in Redis, and how it sells. It takes no lock, and that is the point: what
//! [`Shop::sell`] does is right if nobody else does it at the same time, and wrong otherwise.
//! [`Shop::sell_under`] writes nothing unless the lock is still held at that moment.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Pipeline};
use redlatch::LockGuard;

use crate::support::Result;

/// Payment, label, a slow colleague.
const THINKING: Duration = Duration::from_millis(2);

/// The books go by themselves even if the whole example is killed.
const FORGOTTEN_AFTER_SECONDS: u64 = 3600;

pub(crate) struct Shop {
    name: String,
    lock: String,
    redis: MultiplexedConnection,
}

/// What became of an order.
#[derive(Debug, PartialEq)]
pub(crate) enum Sale {
    Sold,
    SoldOut,
    HasOneAlready,
}

/// What the books say after the sale.
pub(crate) struct Books {
    /// Pieces still there.
    pub(crate) stock: i64,
    /// The buyer of every piece.
    pub(crate) sold: Vec<u32>,
    /// Nobody has left the lock behind.
    pub(crate) lock_is_free: bool,
}

impl Shop {
    pub(crate) async fn open(url: &str, name: &str) -> Result<Self> {
        let redis = async { redis::Client::open(url)?.get_multiplexed_async_connection().await };
        let redis = redis.await.map_err(|e| format!("cannot use Redis: {e}"))?;
        Ok(Self { name: name.to_owned(), lock: format!("{name}:lock"), redis })
    }

    pub(crate) async fn stock_up(&self, pieces: u32) -> Result<()> {
        let mut redis = self.redis.clone();
        Ok(redis.set_ex(self.stock(), pieces, FORGOTTEN_AFTER_SECONDS).await?)
    }

    /// One piece for this buyer: read, think, write.
    pub(crate) async fn sell(&self, buyer: u32) -> Result<Sale> {
        let booking = match self.book(buyer).await? {
            Ok(booking) => booking,
            Err(refusal) => return Ok(refusal),
        };
        let () = booking.query_async(&mut self.redis.clone()).await?;
        Ok(Sale::Sold)
    }

    /// The same, and Redis writes only if that guard's lock is still held.
    pub(crate) async fn sell_under(&self, guard: &LockGuard, buyer: u32) -> Result<Sale> {
        let booking = match self.book(buyer).await? {
            Ok(booking) => booking,
            Err(refusal) => return Ok(refusal),
        };
        let () = guard.execute(&booking).await?;
        Ok(Sale::Sold)
    }

    /// Reads and thinks. Returns what there is to write, unless there is nothing to sell.
    async fn book(&self, buyer: u32) -> Result<std::result::Result<Pipeline, Sale>> {
        let mut redis = self.redis.clone();
        let (pieces, earlier): (i64, Option<u64>) = redis::pipe()
            .get(self.stock())
            .cmd("LPOS")
            .arg(self.sold())
            .arg(buyer)
            .query_async(&mut redis)
            .await?;
        if earlier.is_some() {
            return Ok(Err(Sale::HasOneAlready));
        }
        if pieces <= 0 {
            return Ok(Err(Sale::SoldOut));
        }
        tokio::time::sleep(THINKING).await;
        let mut booking = redis::pipe();
        booking.set_ex(self.stock(), pieces - 1, FORGOTTEN_AFTER_SECONDS).ignore();
        booking.rpush(self.sold(), buyer).ignore();
        booking.expire(self.sold(), FORGOTTEN_AFTER_SECONDS.cast_signed()).ignore();
        Ok(Ok(booking))
    }

    pub(crate) async fn books(&self) -> Result<Books> {
        let mut redis = self.redis.clone();
        Ok(Books {
            stock: redis.get(self.stock()).await?,
            sold: redis.lrange(self.sold(), 0, -1).await?,
            lock_is_free: !redis.exists(self.lock()).await?,
        })
    }

    /// Removes the books. Nobody may be selling any more.
    pub(crate) async fn clear_away(&self) -> Result<()> {
        let mut redis = self.redis.clone();
        // What a till had sent before it was killed is carried out before this is answered.
        let () = redis.ping().await?;
        Ok(redis.del(&[self.stock(), self.sold(), self.lock.clone()]).await?)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name of the lock that every till takes, but in the first sale.
    pub(crate) fn lock(&self) -> &str {
        &self.lock
    }

    fn stock(&self) -> String {
        format!("{}:stock", self.name)
    }

    fn sold(&self) -> String {
        format!("{}:sold", self.name)
    }
}
