//! A caller's commands, which Redis executes only while an owner holds a lock.

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Pipeline, RedisFuture, Value, from_redis_value_ref};

use super::commands::keys_of;
use super::scripts::SCRIPTS;
use super::{Names, Session, evalsha, loss_of, unexpected};
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::slot;
use crate::transport::{Request, Router};

/// The stack of Lua has room for 8,000 words of a command.
const MOST_WORDS: usize = 7_000;

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
            if words.len() > MOST_WORDS {
                let message = format!("{} has more than {MOST_WORDS} words: split it", name(words));
                return Err(Error::invalid(message));
            }
            for key in &known {
                check_key(key, names, router)?;
            }
            keys.extend(known);
        }
        let mut cmd = evalsha(&SCRIPTS.execute, &keys);
        cmd.arg(owner);
        for words in &commands {
            cmd.arg(words.len()).arg(words);
        }
        Ok(Self { cmd, names: commands.iter().map(|words| name(words)).collect() })
    }
}

impl Session<'_> {
    /// Has Redis execute the commands if `owner` holds the lock, and returns their replies; a
    /// loss if it does not. They are sent once: without an answer, Redis may have executed them.
    pub(crate) async fn execute(
        &mut self,
        names: &Names,
        execution: Execution,
    ) -> Result<Result<Vec<Value>, Loss>, Error> {
        let request = self.request(Some(&SCRIPTS.execute), execution.cmd, names.key());
        let mut request = Request { once: true, ..request };
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
            Value::Array(replies) if replies.len() == 1 => &replies[0],
            _ => &all,
        };
        // As a list of one string, bytes would be a number for each string.
        let (first, second) =
            if matches!(single, Value::BulkString(_)) { (single, &all) } else { (&all, single) };
        Ok(from_redis_value_ref(first)
            .or_else(|error| from_redis_value_ref(second).map_err(|_| error))?)
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

/// Those of a command in the form in which it is sent.
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

fn check_key(key: &[u8], names: &Names, router: &Router) -> Result<(), Error> {
    let lock = names.key();
    if key == lock.as_bytes() {
        let message = format!("the key `{lock}` is the lock itself: no command may use it");
        return Err(Error::invalid(message));
    }
    if router.slot_of(lock).is_some_and(|slot| slot != slot::of(key)) {
        return Err(Error::invalid(format!(
            "in a cluster the key `{}` has to be in the slot of the lock `{lock}`: \
             give both the same hash tag, as in `{{{}}}:stock`",
            text(key),
            slot::tag(lock),
        )));
    }
    Ok(())
}

/// The command behind so many others was refused.
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
