use std::time::Duration;

use redlatch::test_util::Redis;
use redlatch_recipes::own_trait::{Locks, Trouble};

/// The code under test.
async fn report(locks: &impl Locks) -> Result<&'static str, Trouble> {
    report_while(locks, || ()).await
}

async fn report_while<L: Locks>(
    locks: &L,
    meanwhile: impl FnOnce(),
) -> Result<&'static str, Trouble> {
    let Some(guard) = locks.acquire("report", Duration::from_secs(3)).await? else {
        return Ok("busy");
    };
    meanwhile();
    let stopped = L::is_lost(&guard);
    L::release(guard).await?;
    Ok(if stopped { "stopped" } else { "done" })
}

struct Mock(Result<Option<()>, Trouble>);

impl Locks for Mock {
    type Guard = ();

    async fn acquire(&self, _: &str, _: Duration) -> Result<Option<()>, Trouble> {
        self.0
    }

    fn is_lost((): &()) -> bool {
        true
    }

    async fn release((): ()) -> Result<(), Trouble> {
        Ok(())
    }
}

#[tokio::test]
async fn a_mock_says_what_it_is_to_say() {
    assert_eq!(report(&Mock(Ok(None))).await, Ok("busy"));
    assert_eq!(report(&Mock(Ok(Some(())))).await, Ok("stopped"));
    assert_eq!(report(&Mock(Err(Trouble::Unavailable))).await, Err(Trouble::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn a_simulated_redis_says_the_same_of_the_real_lock() {
    let redis = Redis::new();
    let (client, other) = (redis.client(), redis.client());
    assert_eq!(report(&client).await, Ok("done"));
    assert_eq!(report_while(&client, || redis.lose("report")).await, Err(Trouble::Lost));
    let guard = other.lock("report").lock().await.unwrap();
    assert_eq!(report(&client).await, Ok("busy"));
    drop(guard);
    redis.stop();
    assert_eq!(report(&redis.client()).await, Err(Trouble::Unavailable));
}
