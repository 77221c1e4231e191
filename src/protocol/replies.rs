//! What the replies of the scripts mean.

use std::time::{Duration, Instant};

use redis::Value;

use super::Acquired;
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::token::{FencingToken, TokenBlock};
use crate::transport::Answer;

/// What Redis says of locks that it was to renew.
pub(crate) struct Renewed {
    pub(crate) held: Vec<Result<(), Loss>>,
    pub(crate) sent: Instant,
    /// Redis may have executed an earlier sending of the request, too.
    pub(crate) repeated: bool,
}

/// What a read-write lock is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// The longest time for which a waiter relies on messages about a lock in a slot that migrates.
const MAX_TRUST_WHILE_MIGRATING: Duration = Duration::from_secs(1);

/// The answer to an acquire that draws `tokens` tokens, and when the acquire was sent.
pub(super) fn acquired(answer: Answer, tokens: u32) -> Result<(Acquired, Instant), Error> {
    let acquired = match &answer.value {
        Value::Nil if tokens == 0 => Acquired::Granted(TokenBlock::default()),
        Value::BulkString(last) if tokens > 0 => {
            Acquired::Granted(TokenBlock::up_to(token_of(last)?, tokens))
        }
        other => match loss_of(other) {
            Some(loss) => Acquired::Gone(loss),
            None => refused(&answer)?,
        },
    };
    Ok((acquired, answer.sent))
}

fn refused(answer: &Answer) -> Result<Acquired, Error> {
    let reply = &answer.value;
    let (remaining, holder) = refusal(reply).ok_or_else(|| unexpected("acquire", reply))?;
    // The message of a release there may not reach a client that listens here.
    let shortened =
        || remaining.unwrap_or(MAX_TRUST_WHILE_MIGRATING).min(MAX_TRUST_WHILE_MIGRATING);
    let remaining = answer.asking.then(shortened).or(remaining);
    Ok(Acquired::Refused { remaining, holder, repeated: answer.repeated })
}

/// The answer to a renewal of `many` locks.
pub(super) fn renewed(answer: Answer, many: usize) -> Result<Renewed, Error> {
    match answer.value {
        Value::Array(held) if held.len() == many => {
            let held = held.iter().map(|one| match one {
                Value::Okay => Ok(()),
                other => Err(loss_of(other).unwrap_or(Loss::KeyGone)),
            });
            let (sent, repeated) = (answer.sent, answer.repeated);
            Ok(Renewed { held: held.collect(), sent, repeated })
        }
        other => Err(unexpected("renew", &other)),
    }
}

/// The holder's remaining lease, and the holder.
pub(super) fn refusal(reply: &Value) -> Option<(Option<Duration>, Box<str>)> {
    let Value::Array(parts) = reply else { return None };
    match &**parts {
        [Value::Int(ttl), Value::BulkString(holder)] => {
            Some((lease_of(*ttl), String::from_utf8_lossy(holder).into()))
        }
        _ => None,
    }
}

/// What a script says that does not find the owner.
pub(super) fn loss_of(reply: &Value) -> Option<Loss> {
    match reply {
        Value::SimpleString(reply) if reply == "GONE" => Some(Loss::KeyGone),
        Value::SimpleString(reply) if reply == "TAKEN" => Some(Loss::TakenOver),
        _ => None,
    }
}

/// A lease as PTTL has it; `None` if there is none.
pub(super) fn lease_of(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}

pub(super) fn token_of(number: &[u8]) -> Result<FencingToken, Error> {
    let text = std::str::from_utf8(number).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.map(FencingToken::new).ok_or_else(|| unexpected("a fencing token", &Value::Nil))
}

pub(super) fn unexpected(call: &str, reply: &Value) -> Error {
    let message = format!("Redis gave {call} a reply that is none of its replies: {reply:?}");
    Error::new(ErrorKind::Server, Outcome::Unknown, message)
}
