//! The work that needs a lock, and what may come of it. The services say that in their own words.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use redlatch::{ErrorKind, Lease, LockClient};
use sqlx::postgres::PgPoolOptions;

use crate::orders::Orders;

/// What a service has as its state: a client of redlatch, and no lock.
#[derive(Clone)]
pub struct Shop {
    pub locks: LockClient,
    pub orders: Orders,
}

impl Shop {
    /// Connects with the first call, so that the service can start while Redis is down.
    pub fn new(redis: &str, postgres: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let locks = LockClient::builder().url(redis).command_timeout(Duration::from_secs(1));
        let orders = Orders { database: PgPoolOptions::new().connect_lazy(postgres)? };
        Ok(Self { locks: locks.connect_lazy()?, orders })
    }

    /// Charges an order, once. Waits that long for another call of it, or of an order that shares its lock.
    pub async fn pay(&self, order: i64, wait: Duration) -> Result<String, Refusal> {
        // Calls on one handle nest: each call makes its own.
        let lock = self.locks.fenced_lock(lock_of(order));
        let paid = lock.try_with(wait, Lease::Watchdog, async |guard| {
            if let Some(receipt) = self.orders.receipt(order).await? {
                return Ok(receipt);
            }
            let receipt = charge_the_card(order).await;
            match self.orders.write(order, &receipt, guard.token()).await? {
                true => Ok(receipt),
                false => Err(Refusal::Lost),
            }
        });
        paid.await?.ok_or(Refusal::Busy)?
    }
}

/// Names come again: the token of each stays in Redis for good. Of two orders with one name one waits, or is `Busy`.
pub fn lock_of(order: i64) -> String {
    format!("order:{}", order.rem_euclid(65_536))
}

/// Why an order was not charged.
#[derive(Debug)]
pub enum Refusal {
    /// Another call has its lock: most likely one of the same order.
    Busy,
    /// Redis could not be asked, so nothing was done.
    Unavailable,
    /// The lock was lost during the work, which was stopped, or refused by the table.
    Lost,
    Failed(Box<dyn Error + Send + Sync>),
}

impl From<redlatch::Error> for Refusal {
    fn from(error: redlatch::Error) -> Self {
        match error.kind() {
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Lost => Self::Lost,
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// For users: the text of an error is for the log, because it names servers.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "another request is under way: try again",
            Self::Unavailable => "try again",
            Self::Lost => "another request may have charged this order: look at it",
            Self::Failed(_) => "this failed",
        })
    }
}

impl Error for Refusal {}

/// Stands for the payment service.
async fn charge_the_card(order: i64) -> String {
    format!("receipt of order {order}")
}
