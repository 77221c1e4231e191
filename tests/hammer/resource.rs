//! What the locks protect: values in a second Redis, which knows nothing of locks, or in the memory of
//! a simulated world.
//!
//! It is the witness that does not depend on the locks' own word. For a fenced hold the store
//! compares tokens and refuses a lower one. For a plain one the holder reads the value, and later
//! writes another and is told which one that replaced: if it is not the one that was read,
//! somebody wrote in between. One that may only read does so twice, and nobody may write in between.

use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;

use crate::prelude::*;
use crate::record::READ;

/// What keeps the values.
pub(crate) trait Store: Send + Sync {
    /// Whether it is accepted, the highest token before, and the number of the write.
    fn write_fenced(&self, key: u16, token: u64) -> BoxFuture<'_, (bool, u64, u64)>;

    fn read(&self, key: u16) -> BoxFuture<'_, u64>;

    /// Returns what was there before.
    fn replace(&self, key: u16, value: u64) -> BoxFuture<'_, u64>;
}

pub(crate) struct Resource {
    connection: MultiplexedConnection,
}

const FENCED_WRITE: &str = "
local before = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local number = redis.call('HINCRBY', KEYS[1], 'writes', 1)
local accepted = tonumber(ARGV[1]) >= before
if accepted then redis.call('HSET', KEYS[1], 'token', ARGV[1]) end
return {accepted and 1 or 0, string.format('%.0f', before), number}";

impl Resource {
    pub(crate) async fn open(url: &str) -> Self {
        let client = redis::Client::open(url).expect("an address");
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        Self { connection: connection.expect("the server of the protected resource") }
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: redis::Cmd) -> T {
        let answer = command.query_async(&mut self.connection.clone()).await;
        answer.expect("asking the server of the protected resource")
    }
}

impl Store for Resource {
    fn write_fenced(&self, key: u16, token: u64) -> BoxFuture<'_, (bool, u64, u64)> {
        let mut write = redis::cmd("EVAL");
        write.arg(FENCED_WRITE).arg(1).arg(format!("fenced:{key}")).arg(token);
        Box::pin(self.ask(write))
    }

    fn read(&self, key: u16) -> BoxFuture<'_, u64> {
        let mut read = redis::cmd("GET");
        read.arg(format!("plain:{key}"));
        Box::pin(async { self.ask::<Option<u64>>(read).await.unwrap_or(0) })
    }

    fn replace(&self, key: u16, value: u64) -> BoxFuture<'_, u64> {
        let mut write = redis::cmd("SET");
        write.arg(format!("plain:{key}")).arg(value).arg("GET");
        Box::pin(async { self.ask::<Option<u64>>(write).await.unwrap_or(0) })
    }
}

async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// One critical section's work, if the hold is believed at its beginning. Between the last look
/// and the write it thinks for a while, in which the lock can be lost. `me` is unique in the run, and `key` is
/// one of the names that are held.
pub(crate) async fn work(
    store: &dyn Store,
    hold: &mut Hold,
    (key, me): (u16, u64),
    think: Duration,
) {
    if !hold.is_believed() {
        return;
    }
    let base = Record { key, deadline: 0, slack: 0, ..hold.base };
    hold.log.put(Record { t: now(), event: Event::StoreInv, aux: me, ..base });
    let ret = if base.has(FENCED) {
        sleep(think).await;
        let (accepted, before, number) = store.write_fenced(base.key, base.token).await;
        let outcome = if accepted { Outcome::Done } else { Outcome::NotExecuted };
        Record { deadline: before, aux: number, outcome, ..base }
    } else if base.has(READ) {
        let read = store.read(base.key).await;
        sleep(think).await;
        let again = store.read(base.key).await;
        let outcome = if read == again { Outcome::Done } else { Outcome::NotExecuted };
        Record { deadline: again, aux: me, outcome, ..base }
    } else {
        let read = store.read(base.key).await;
        if !hold.is_believed() {
            return;
        }
        sleep(think).await;
        let replaced = store.replace(base.key, me).await;
        let outcome = if read == replaced { Outcome::Done } else { Outcome::NotExecuted };
        Record { deadline: replaced, aux: me, outcome, ..base }
    };
    hold.log.put(Record { t: now(), event: Event::StoreRet, ..ret });
    // What it says now is what counts: was it believed for all of the work?
    hold.is_believed();
}
