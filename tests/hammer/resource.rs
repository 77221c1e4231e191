//! What the locks protect: values in a second Redis, which knows nothing of locks.
//!
//! It is the witness that does not depend on the locks' own word. For a fenced hold the store
//! compares tokens and refuses a lower one. For a plain one the holder reads the value, and later
//! writes another and is told which one that replaced: if it is not the one that was read,
//! somebody wrote in between.

use std::time::Duration;

use redis::aio::MultiplexedConnection;

use crate::handle::Hold;
use crate::record::{Event, FENCED, Outcome, Record, Recorder, now};

pub(crate) struct Resource {
    connection: MultiplexedConnection,
}

async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Whether it is accepted, the highest token before, and the number of the write.
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

    /// One critical section's work, if the hold is believed at its beginning. Between the last look
    /// and the write it thinks for a while, in which the lock can be lost. `me` is unique in the run.
    pub(crate) async fn work(&self, log: &Recorder, hold: &mut Hold, me: u64, think: Duration) {
        if !hold.is_believed(log) {
            return;
        }
        let mut to = self.connection.clone();
        let base = Record { deadline: 0, slack: 0, ..hold.base() };
        log.put(Record { t: now(), event: Event::StoreInv, aux: me, ..base });
        let ret = if base.has(FENCED) {
            sleep(think).await;
            let mut write = redis::cmd("EVAL");
            write.arg(FENCED_WRITE).arg(1).arg(format!("fenced:{}", base.key)).arg(base.token);
            let (accepted, before, number): (bool, u64, u64) =
                write.query_async(&mut to).await.expect("writing to the resource");
            let outcome = if accepted { Outcome::Done } else { Outcome::NotExecuted };
            Record { deadline: before, aux: number, outcome, ..base }
        } else {
            let key = format!("plain:{}", base.key);
            let read: Option<u64> =
                redis::cmd("GET").arg(&key).query_async(&mut to).await.expect("reading it");
            if !hold.is_believed(log) {
                return;
            }
            sleep(think).await;
            let mut write = redis::cmd("SET");
            write.arg(&key).arg(me).arg("GET");
            let replaced: Option<u64> =
                write.query_async(&mut to).await.expect("writing to the resource");
            let (read, replaced) = (read.unwrap_or(0), replaced.unwrap_or(0));
            let outcome = if read == replaced { Outcome::Done } else { Outcome::NotExecuted };
            Record { deadline: replaced, aux: me, outcome, ..base }
        };
        log.put(Record { t: now(), event: Event::StoreRet, ..ret });
        // What it says now is what counts: was it believed for all of the work?
        hold.is_believed(log);
    }
}
