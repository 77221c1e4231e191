//! Several simulated servers that take each other's place: with replicas and Sentinels, or as a cluster.
//! What Sentinels and the nodes of a cluster would agree on, the test says.

mod cluster;
mod group;

pub(crate) use cluster::Cluster;
pub(crate) use group::Group;
use redis::FromRedisValue;
use redlatch::simulation::{Network, ServerNumber};

/// What a server answers to somebody beside it.
pub(crate) fn ask_at<T: FromRedisValue>(
    network: &Network,
    server: ServerNumber,
    words: &[&str],
) -> T {
    let answer = network.ask(server, redis::cmd(words[0]).arg(&words[1..]));
    let answer = answer.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    redis::from_redis_value(answer).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}
