//! `async-redis-lock`: waiting without a limit, and a lease that a busy machine does not outlast,
//! renewed every third of it as it recommends.

use std::time::Duration;

use ::async_redis_lock::{Lock, Locker, Options};

use crate::harness::{Handle, Peer};
use crate::support::Result;

const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct AsyncRedisLock(Locker);

pub(crate) struct Named {
    locker: Locker,
    name: String,
    options: Options,
}

impl Peer for AsyncRedisLock {
    const NAME: &'static str = "async-redis-lock";

    type Handle = Named;

    async fn connect(url: &str) -> Result<Self> {
        Ok(Self(Locker::from_redis_url(url).await?))
    }

    fn handle(&self, name: &str) -> Result<Named> {
        let options = Options::new().timeout(None).ttl(LEASE).extend(LEASE / 3);
        Ok(Named { locker: self.0.clone(), name: name.into(), options })
    }
}

impl Handle for Named {
    type Guard = Lock;

    async fn lock(&self) -> Result<Lock> {
        Ok(self.locker.acquire_with_options(&self.options, &self.name).await?)
    }

    async fn unlock(&self, guard: Lock) -> Result<()> {
        Ok(guard.release().await?)
    }
}
