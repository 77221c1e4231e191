//! A job of apalis that runs one at a time for each order, and comes again later if the order's lock is taken.

use std::time::Duration;

use apalis::layers::retry::HasherRng;
use apalis::layers::retry::backoff::{ExponentialBackoffMaker, MakeBackoff};
use apalis::prelude::*;
use serde::{Deserialize, Serialize};

use crate::shop::{Refusal, Shop};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pay {
    pub order: i64,
}

pub async fn pay(job: Pay, shop: Data<Shop>) -> Result<(), BoxDynError> {
    match shop.pay(job.order, Duration::ZERO).await {
        Ok(_receipt) => Ok(()),
        // No failure of the job: it comes again.
        Err(refusal @ (Refusal::Busy | Refusal::Unavailable)) => {
            Err(RetryAfterError::new(refusal, SOONEST).into())
        }
        // A person has to look at it.
        Err(refusal) => Err(AbortError::new(refusal).into()),
    }
}

const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(10);

/// Works on the jobs of a storage until it is stopped.
pub async fn work(jobs: MemoryStorage<Pay>, shop: Shop) -> Result<(), BoxDynError> {
    let mut pause = ExponentialBackoffMaker::new(SOONEST, LATEST, 0.5, HasherRng::default())?;
    let again = RetryPolicy::retries(100).with_backoff(pause.make_backoff());
    WorkerBuilder::new("till").backend(jobs).retry(again).data(shop).build(pay).run().await?;
    Ok(())
}
