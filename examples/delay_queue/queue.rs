//! A queue of requests that are carried out later: two keys and three scripts.
//!
//! `{name}:due` is a sorted set of ids, by the time at which each is due on the server's clock;
//! `{name}:body` has what each of them asks for. Who claims a request puts it off by a lease. So a
//! request whose consumer dies is due again by itself, and each is carried out *at least* once.
//!
//! Nobody polls: `put` publishes when a request became the first of the queue, and a claim that finds
//! nothing says when to look again.

use std::time::Duration;

use futures::{Stream, StreamExt};
use redis::Script;
use redis::aio::MultiplexedConnection;

use crate::support::Result;

/// KEYS due, body; ARGV id, body, delay in ms. A second time it changes nothing.
const PUT: &str = "
    local now = redis.call('time')
    local due = now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3]
    redis.call('hsetnx', KEYS[2], ARGV[1], ARGV[2])
    redis.call('zadd', KEYS[1], 'nx', due, ARGV[1])
    if redis.call('zrange', KEYS[1], 0, 0)[1] == ARGV[1] then
        redis.call('publish', KEYS[1], due)
    end";

/// KEYS due, body; ARGV lease in ms. Replies with the milliseconds until the first is due (-1 if
/// there is none), or with 0, an id and its body.
const CLAIM: &str = "
    local now = redis.call('time')
    now = now[1] * 1000 + math.floor(now[2] / 1000)
    local first = redis.call('zrange', KEYS[1], 0, 0, 'withscores')
    if not first[1] then return {-1, '', ''} end
    if tonumber(first[2]) > now then return {first[2] - now, '', ''} end
    redis.call('zadd', KEYS[1], now + ARGV[1], first[1])
    return {0, first[1], redis.call('hget', KEYS[2], first[1])}";

/// KEYS due, body; ARGV id.
const DONE: &str = "
    redis.call('zrem', KEYS[1], ARGV[1])
    redis.call('hdel', KEYS[2], ARGV[1])";

pub(crate) struct Queue {
    client: redis::Client,
    redis: MultiplexedConnection,
    keys: [String; 2],
}

/// What there is for a consumer.
pub(crate) enum Claim {
    /// A request, which is this consumer's for the length of a lease.
    Request {
        id: String,
        body: String,
    },
    /// None yet: the first one is due after this time.
    NotYet(Duration),
    Empty,
}

impl Queue {
    pub(crate) async fn open(url: &str, name: &str) -> Result<Self> {
        let client = redis::Client::open(url)?;
        let redis = client.get_multiplexed_async_connection().await?;
        // Braces: in a cluster, both keys of a script have to be in one slot.
        let keys = ["due", "body"].map(|key| format!("{{{name}}}:{key}"));
        Ok(Self { client, redis, keys })
    }

    pub(crate) fn keys(&self) -> &[String] {
        &self.keys
    }

    pub(crate) async fn put(&self, id: &str, body: &str, delay: Duration) -> Result<()> {
        self.run(PUT, &[id, body, &delay.as_millis().to_string()]).await
    }

    /// The first request, if it is due.
    pub(crate) async fn claim(&self, lease: Duration) -> Result<Claim> {
        let lease = lease.as_millis().to_string();
        let (wait, id, body): (i64, _, _) = self.run(CLAIM, &[&lease]).await?;
        Ok(match u64::try_from(wait) {
            Ok(0) => Claim::Request { id, body },
            Ok(wait) => Claim::NotYet(Duration::from_millis(wait)),
            Err(_) => Claim::Empty,
        })
    }

    /// It need not be carried out again.
    pub(crate) async fn done(&self, id: &str) -> Result<()> {
        self.run(DONE, &[id]).await
    }

    /// An item whenever there is another first request. It subscribes before it returns; who claims
    /// after that misses nothing.
    pub(crate) async fn new_first(&self) -> Result<impl Stream<Item = ()> + Unpin + use<>> {
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(&self.keys[0]).await?;
        Ok(subscription.into_on_message().map(drop))
    }

    async fn run<T: redis::FromRedisValue>(&self, script: &str, arguments: &[&str]) -> Result<T> {
        let script = Script::new(script);
        let mut call = script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument);
        }
        Ok(call.invoke_async(&mut self.redis.clone()).await?)
    }
}
