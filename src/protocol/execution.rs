//! A caller's commands, which Redis executes only while an owner holds a lock.

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Pipeline, RedisFuture, Value, from_redis_value};

use super::commands::{keys_of, sharded_channel_of};
use super::scripts::SCRIPTS;
use super::{Call, Names, evalsha, loss_of, unexpected};
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::slot;
use crate::transport::{Request, Router};

/// The stack of Lua has room for 8,000 words of a command.
const MAX_WORDS: usize = 7_000;

/// Redis 6.2 takes 1,048,576 words in a request, later ones more. Each command has one beside its own,
/// and its keys twice.
const MAX_WORDS_AND_KEYS: usize = 1_000_000;

/// What Redis takes as one word (its default for `proto-max-bulk-len`).
const LONGEST_WORD: usize = 512 << 20;

/// The one command that stands for all of them.
pub(crate) struct Execution {
    cmd: Cmd,
    /// What the commands are called, in order.
    names: Vec<String>,
}

impl Execution {
    /// Checks the commands, with no I/O.
    pub(crate) fn new(
        pipeline: &Pipeline,
        names: &Names,
        owner: &str,
        router: &Router,
    ) -> Result<Self, Error> {
        if pipeline.is_empty() {
            return Err(Error::invalid(
                "there is nothing to execute: the pipeline has no commands",
            ));
        }
        // As they would be sent: the driver says in no other way where a scan goes on.
        let packed: Vec<Vec<u8>> = pipeline.cmd_iter().map(Cmd::get_packed_command).collect();
        let commands: Vec<Vec<&[u8]>> =
            packed.iter().map(|packed| words(packed).unwrap_or_default()).collect();
        let name = |words: &[&[u8]]| words.first().map_or("".into(), |name| text(name));
        let mut keys = vec![names.key().as_bytes()];
        for words in &commands {
            let known = keys_of(words).ok_or_else(|| unknown(&name(words)))?;
            check_size(words).map_err(|size| too_large(&name(words), size))?;
            for key in &known {
                check_key(key, names, router)?;
            }
            if let Some(channel) = sharded_channel_of(words) {
                check_slot("channel", channel, names, router)?;
            }
            keys.extend(known);
        }
        let all = keys.len() + commands.iter().map(|words| 1 + words.len()).sum::<usize>();
        if all > MAX_WORDS_AND_KEYS {
            return Err(too_large(
                "the pipeline",
                format!("has more than {MAX_WORDS_AND_KEYS} words and keys"),
            ));
        }
        let mut cmd = evalsha(&SCRIPTS.execute, &keys);
        cmd.arg(owner);
        for words in &commands {
            cmd.arg(words.len()).arg(words);
        }
        Ok(Self { cmd, names: commands.iter().map(|words| name(words)).collect() })
    }
}

impl Call<'_> {
    /// Has Redis execute the commands if `owner` holds the lock, and returns their replies; a
    /// loss if it does not. They are sent once: without an answer, Redis may have executed them.
    pub(crate) async fn execute(
        &mut self,
        names: &Names,
        execution: Execution,
    ) -> Result<Result<Vec<Value>, Loss>, Error> {
        let request = self.request(Some(&SCRIPTS.execute), execution.cmd, names.key());
        let mut request = Request { at_most_once: true, ..request };
        let mut replies = match self.router.call(&mut self.connection, &mut request).await?.value {
            Value::Array(replies) => replies,
            other => {
                return loss_of(&other).map(Err).ok_or_else(|| unexpected("execute", &other));
            }
        };
        match replies.pop().map(Value::extract_error) {
            Some(Ok(last)) => replies.push(last),
            Some(Err(error)) => return Err(refused(&execution.names, replies.len(), error)),
            None => return Err(unexpected("execute", &Value::Nil)),
        }
        Ok(Ok(replies))
    }
}

/// Converts the replies as the driver does for this pipeline; a single one may also be converted by
/// itself.
pub(crate) async fn converted<T: FromRedisValue>(
    pipeline: &Pipeline,
    replies: Vec<Value>,
) -> Result<T, Error> {
    let replies: Result<Value, _> = pipeline.query_async(&mut Replies(replies)).await;
    let converted = replies.and_then(|all| {
        let single = match &all {
            Value::Array(replies) if replies.len() == 1 => replies[0].clone(),
            _ => return Ok(from_redis_value(all)?),
        };
        // Of a list of strings, bytes would be a number for each string.
        let string = || Value::Array(vec![Value::BulkString(b"string".to_vec())]);
        let itself =
            matches!(single, Value::BulkString(_)) && from_redis_value::<T>(string()).is_err();
        let (first, second) = if itself { (single, all) } else { (all, single) };
        Ok(from_redis_value(first).or_else(|error| from_redis_value(second).map_err(|_| error))?)
    });
    converted.map_err(|error| {
        let message = "Redis has executed the commands, and their replies are of another type";
        Error::new(ErrorKind::Server, Outcome::Executed, message).caused_by(error)
    })
}

/// In place of a connection: what Redis has replied.
struct Replies(Vec<Value>);

impl ConnectionLike for Replies {
    fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async { Ok(Value::Array(std::mem::take(&mut self.0))) })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let replies = std::mem::take(&mut self.0);
        let is_transaction = pipeline.is_transaction();
        Box::pin(
            async move { Ok(if is_transaction { vec![Value::Array(replies)] } else { replies }) },
        )
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// The words of a command, which is in the form in which it is sent.
fn words(packed: &[u8]) -> Option<Vec<&[u8]>> {
    let (many, mut rest) = number(packed)?;
    let mut words = Vec::with_capacity(many);
    for _ in 0..many {
        let (length, word) = number(rest)?;
        words.push(word.get(..length)?);
        rest = word.get(length + 2..)?;
    }
    Some(words)
}

/// The number in a line such as `$12`, and what follows it.
fn number(packed: &[u8]) -> Option<(usize, &[u8])> {
    let end = packed.windows(2).position(|pair| pair == b"\r\n")?;
    let number = str::from_utf8(packed.get(1..end)?).ok()?.parse().ok()?;
    Some((number, packed.get(end + 2..)?))
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn unknown(command: &str) -> Error {
    Error::invalid(format!(
        "`{command}` cannot be executed under a lock: a script may not run it, \
         or it is not known which keys it has"
    ))
}

fn check_size(words: &[&[u8]]) -> Result<(), String> {
    if words.len() > MAX_WORDS {
        return Err(format!("has more than {MAX_WORDS} words"));
    }
    match words.iter().map(|word| word.len()).max() {
        Some(longest) if longest > LONGEST_WORD => {
            Err(format!("has a word of more than {LONGEST_WORD} bytes"))
        }
        _ => Ok(()),
    }
}

fn too_large(what: &str, size: String) -> Error {
    Error::invalid(format!("{what} {size}: split it"))
}

fn check_key(key: &[u8], names: &Names, router: &Router) -> Result<(), Error> {
    let lock = names.key();
    if key == lock.as_bytes() {
        let message = format!("the key `{lock}` is the lock itself: no command may use it");
        return Err(Error::invalid(message));
    }
    check_slot("key", key, names, router)
}

fn check_slot(what: &str, key: &[u8], names: &Names, router: &Router) -> Result<(), Error> {
    let lock = names.key();
    if router.slot_of(lock).is_some_and(|slot| slot != slot::of(key)) {
        return Err(Error::invalid(format!(
            "in a cluster the {what} `{}` has to be in the slot of the lock `{lock}`: \
             give both the same hash tag, as in `{{{}}}:stock`",
            text(key),
            slot::tag(lock),
        )));
    }
    Ok(())
}

/// Redis has refused a command. `before` is the number of commands before it.
fn refused(names: &[String], before: usize, error: redis::RedisError) -> Error {
    let (outcome, those) = match before {
        0 => (Outcome::NotExecuted, "no other was executed"),
        _ => (Outcome::Executed, "those before it stay executed"),
    };
    let (name, number, all) = (&names[before], before + 1, names.len());
    let code = error.code().map(|code| format!(" ({code})")).unwrap_or_default();
    let message = format!("command {number} of {all}, `{name}`, was refused{code}, and {those}");
    Error::new(ErrorKind::Server, outcome, message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_as_long_as_redis_takes_it() {
        let long = vec![0; LONGEST_WORD + 1];
        check_size(&[b"SET", b"key", &long[1..]]).expect("it fits");
        let size = check_size(&[b"SET", b"key", &long]).expect_err("too long");
        assert!(size.contains("536870912 bytes"), "{size}");
    }
}
