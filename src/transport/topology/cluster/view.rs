//! What a node reports of its cluster, and how the client asks.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, RedisError, RedisResult, Value};
use tokio::task::JoinSet;

use super::map;
use super::members::Members;
use super::{NEXT_NODE_DELAY, PAUSE_AFTER_SILENCE};
use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::clock;
use crate::host::here;
use crate::transport::address;
use crate::transport::connection::dial::Dialer;
use crate::transport::connection::{ask_first, open};
use crate::transport::error_class::is_fatal;

/// What a node reports.
pub(super) struct View {
    pub(super) ranges: Vec<map::Range>,
    pub(super) members: Members,
    pub(super) sharded: bool,
    /// Whether the node serves requests. A node that is cut off from the others does not.
    pub(super) is_ok: bool,
}

/// The answers to a look for the map, one after the other.
pub(super) struct Look {
    name: Arc<str>,
    answer_timeout: Duration,
    asked: JoinSet<Answer>,
    /// Those that have failed. They may be up while another one hangs.
    asked_again: JoinSet<Answer>,
}

/// The view, whether it is of a seed, and how long that took; or why there is none.
type Answer = Result<(View, bool, Duration), (RedisError, Asked)>;

/// An address at which the client asks.
struct Asked {
    info: ConnectionInfo,
    /// Whether the builder named it.
    is_seed: bool,
    /// Until it is asked again.
    pauses: Backoff,
}

impl Look {
    /// Asks these addresses, one a moment after the other. A `round` is the time until all of them are asked. `seeds` are
    /// those that the builder named.
    pub(super) fn begin(
        known: Vec<ConnectionInfo>,
        seeds: &Range<usize>,
        round: Duration,
        dialer: &Dialer,
    ) -> Self {
        let (name, answer_timeout) = (dialer.name.clone(), dialer.answer_timeout);
        let (asked, asked_again) = Default::default();
        let mut look = Self { name, answer_timeout, asked, asked_again };
        // Each is asked once in a round at most.
        let (first, longest) = (PAUSE_AFTER_SILENCE.max(round), LONGEST_PAUSE.max(round));
        for (at, info) in known.into_iter().enumerate() {
            let wait = NEXT_NODE_DELAY * u32::try_from(at).unwrap_or(u32::MAX);
            let (is_seed, pauses) = (seeds.contains(&at), Backoff::new(first, longest));
            let asked = look.ask(Asked { info, is_seed, pauses }, wait);
            look.asked.spawn(here(asked));
        }
        look
    }

    /// The next answer; `None` when each address has answered or failed.
    pub(super) async fn next(&mut self) -> Option<RedisResult<(View, bool, Duration)>> {
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.asked.join_next() => answer?,
                Some(answer) = self.asked_again.join_next() => answer,
            };
            match answer {
                Ok(Ok(view)) => return Some(Ok(view)),
                Ok(Err((error, mut node))) => {
                    let pause = node.pauses.next();
                    let again = self.ask(node, pause);
                    self.asked_again.spawn(here(again));
                    return Some(Err(error));
                }
                // It has panicked.
                Err(_) => {}
            }
        }
    }

    /// Asks there after that time.
    fn ask(&self, node: Asked, wait: Duration) -> impl Future<Output = Answer> + use<> {
        let (name, answer_timeout) = (self.name.clone(), self.answer_timeout);
        async move {
            clock::sleep(wait).await;
            let asked_at = clock::now();
            match View::fetch(node.info.clone(), &name, answer_timeout).await {
                Ok(view) => Ok((view, node.is_seed, clock::now() - asked_at)),
                Err(error) => Err((error, node)),
            }
        }
    }
}

/// What asks a node for its id.
pub(in crate::transport::topology) fn who_are_you() -> Cmd {
    question("CLUSTER", "MYID")
}

/// What asks a node for all nodes that it knows.
pub(super) fn whom_do_you_know() -> Cmd {
    question("CLUSTER", "NODES")
}

/// What asks a node who has which slot.
pub(super) fn who_has_what() -> Cmd {
    question("CLUSTER", "SLOTS")
}

/// What asks a node whether it serves requests.
pub(super) fn how_are_you() -> Cmd {
    question("CLUSTER", "INFO")
}

fn question(container: &str, about: &str) -> Cmd {
    let mut ask = redis::cmd(container);
    ask.arg(about);
    ask
}

impl View {
    /// Asks a node, which may take `answer_timeout` for each answer.
    pub(super) async fn fetch(
        info: ConnectionInfo,
        name: &str,
        answer_timeout: Duration,
    ) -> RedisResult<Self> {
        let host = address::host(&info).to_owned();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut server = open(&redis::Client::open(info)?, config, answer_timeout).await?;
        // Of a channel, as Redisson asks: Azure Managed Redis leaves it without an answer if there is none.
        let mut listeners = question("PUBSUB", "SHARDNUMSUB");
        listeners.arg("0");
        let questions = [who_has_what(), how_are_you(), whom_do_you_know(), listeners];
        let answers = ask_first(&mut server.connection, name, questions);
        let [slots, state, members, listeners] = clock::within(answer_timeout, answers).await?;
        let Some(ranges) = map::parse(&slots.extract_error()?, &host) else {
            let nonsense = "CLUSTER SLOTS was answered with something else";
            return Err((redis::ErrorKind::Parse, nonsense).into());
        };
        if ranges.is_empty() {
            // The node belongs to no cluster any more, or not yet.
            return Err(io::Error::other("the node knows of no slots").into());
        }
        let members = Members::parse(members.extract_error())?;
        let is_ok = serves(state.extract_error())?;
        let sharded = has_sharded_channels(listeners.extract_error())?;
        Ok(Self { ranges, members, sharded, is_ok })
    }
}

/// Whether a node serves requests, from its answer to `CLUSTER INFO`.
pub(super) fn serves(answer: RedisResult<Value>) -> RedisResult<bool> {
    let is_ok = |info: &str| !info.contains("cluster_state:fail");
    match answer {
        Ok(Value::BulkString(info)) => Ok(is_ok(&String::from_utf8_lossy(&info))),
        Ok(Value::VerbatimString { text, .. }) => Ok(is_ok(&text)),
        Err(error) if !is_fatal(&error) => Err(error),
        // A user without permission to ask relies on the map.
        _ => Ok(true),
    }
}

/// Whether a node has sharded channels, from its answer to a question about them. An error if it has not said that:
/// the client holds on to what it hears first.
fn has_sharded_channels(answer: RedisResult<Value>) -> RedisResult<bool> {
    match answer {
        Ok(_) => Ok(true),
        // It does not know the question, or this user may not ask.
        Err(error) if is_fatal(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_busy_has_not_said_whether_it_has_sharded_channels() {
        let answered = |line: &str| {
            let answer = redis::parse_redis_value(line.as_bytes());
            has_sharded_channels(answer.and_then(Value::extract_error))
        };
        assert!(answered("*0\r\n").unwrap());
        for refusal in ["-ERR Unknown PUBSUB subcommand\r\n", "-NOPERM it may not ask\r\n"] {
            assert!(!answered(refusal).unwrap());
        }
        for refusal in ["-BUSY Redis is busy running a script\r\n", "-LOADING its data\r\n"] {
            assert!(answered(refusal).is_err());
        }
    }
}
