//! Commands of the caller, which Redis executes only while the lock is held.

use redis::{FromRedisValue, Pipeline, Value};

use crate::error::{Error, Outcome};
use crate::possession::FoundBy;
use crate::protocol::{Execution, converted};

use super::{GuardInner, LockGuard};

impl<T> LockGuard<T> {
    /// Executes the commands of a pipeline in the same Redis, if this hold still exists there; else
    /// returns [`Lost`](crate::ErrorKind::Lost), and none of them is executed. Redis does both in one
    /// script: no other holder comes in between, nor any other command. So for state that lives beside
    /// the lock this closes the gap that no lease can close: a holder that is paused past its lease
    /// changes nothing.
    ///
    /// It does not wait until [replicas](crate::LockClientBuilder::replicas) have what the commands wrote.
    ///
    /// One round trip; after a hand-off to this guard, it first waits until Redis has confirmed that.
    /// Of several calls on the guards of one handle, each waits for the one before.
    ///
    /// The replies are converted as
    /// [`query_async`](https://docs.rs/redis/latest/redis/struct.Pipeline.html#method.query_async) does
    /// it, less those that the pipeline [ignores](Pipeline::ignore). One that is left alone may also stand
    /// for itself, as below, if the driver does not convert the list of it. As `Vec<u8>` a string is its
    /// bytes: of the list, the driver would make a number of its digits. A list of strings as
    /// `Vec<Vec<u8>>` needs the tuple for that, `(Vec<Vec<u8>>,)`. To make the pipeline
    /// [`atomic`](Pipeline::atomic) changes nothing.
    ///
    /// ```no_run
    /// # async fn example(guard: redlatch::LockGuard) -> Result<(), redlatch::Error> {
    /// use redlatch::redis;
    ///
    /// let mut sale = redis::pipe();
    /// sale.cmd("DECR").arg("{order}:left").cmd("RPUSH").arg("{order}:sold").arg("alice").ignore();
    /// let left: i64 = guard.execute(&sale).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Which commands
    ///
    /// Those of Redis' own data types, and `PUBLISH` and `SPUBLISH`. The client has to know which keys a
    /// command has, so it refuses those of modules, `SORT`, `XREAD`, `GEORADIUS` and the like, and those of Redis 8.4;
    /// and it refuses those that no script may run, or that block. In a [cluster](crate::LockClientBuilder::cluster) all keys, and the
    /// channels of `SPUBLISH`, have to be in the slot of the lock: give them its hash tag. The names of keys
    /// are as they are in Redis: the [`name_prefix`](crate::LockClientBuilder::name_prefix) is not put before
    /// them. The user of Redis needs the permissions for the commands, and to read and write their keys. As
    /// in every script, an integer above 2⁵³ is rounded in a reply, and one near 2⁶³ may be anything: read such a value with a
    /// `GET` behind it, whose reply is a text.
    ///
    /// A command has at most 7,000 words, of 512 MiB each, and the pipeline a million, with its keys counted
    /// twice. (A server with a smaller `proto-max-bulk-len` refuses a longer word, and closes the
    /// connection.) While Redis executes it, Redis answers no one else, and `SCRIPT KILL` cannot end it, because the script
    /// writes before the first command: so keep a pipeline short. For the same reason a server that refuses writes refuses a
    /// pipeline that only reads.
    ///
    /// While a cluster moves the slot, the node that has the lock and all their keys executes the commands: the
    /// client follows `ASK` and `MOVED`, and such a node has executed nothing. As long as no node has all of
    /// them, because the keys are on both sides, or one of them does not exist yet (`TRYAGAIN`), the client
    /// asks again; by the command timeout the error is `Unavailable`, and the outcome `NotExecuted`. A
    /// command that uses a key which one before it has deleted fails during that time, as in every script.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost): Redis has executed nothing, and will not.
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), before any I/O: the pipeline is empty or
    /// too large, or has a command or a key that it may not have.
    /// [`Server`](crate::ErrorKind::Server) if Redis refused the script, if a command failed, or if the
    /// replies do not convert. A script is not rolled back: the commands before one that failed stay
    /// executed, and those behind it are not executed. The error names the command, and its
    /// [outcome](Error::outcome) is `NotExecuted` if it was the first. That is so with
    /// [`ignore_errors`](Pipeline::ignore_errors), too.
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if Redis did not answer in time. If the outcome is
    /// `Unknown`, Redis may have executed the commands, or those before one that failed, and may still do so while this handle holds the
    /// lock, but not for longer: the client releases the lock, or hands it off, only once that is over.
    /// It does not send them a second time, and undoes nothing: they are executed once at most. To find
    /// out, read under the lock what they write. If a second time does no harm, call this again.
    /// [`Closed`](crate::ErrorKind::Closed) in a [forked child](crate::LockClient#forking).
    ///
    /// # Panics
    ///
    /// As for [every call](crate::Lock#panics).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, Redis may or may not execute the commands, as with the outcome
    /// `Unknown`.
    pub async fn execute<R: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<R, Error> {
        self.hold.execute(pipeline).await
    }
}

impl GuardInner {
    async fn execute<R: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<R, Error> {
        let GuardInner { of, granted, .. } = self;
        let possession = &granted.possession;
        let engine = &of.engine;
        let execute = async {
            let (names, owner) = (&possession.names, possession.id());
            self.execute_all(Execution::new(pipeline, names, &owner, &engine.router)?).await
        };
        let replies = engine.call(self.name(), execute).await?;
        converted(pipeline, replies).await.map_err(|error| error.about(self.name()))
    }

    async fn execute_all(&self, execution: Execution) -> Result<Vec<Value>, Error> {
        let Self { of, granted, .. } = self;
        let engine = &of.engine;
        let mut session = self.session(granted.longest_lease()).await?;
        session.unanswered = true;
        let replies = session.call.execute(&granted.possession.names, execution).await;
        session.record_answer(&replies);
        replies?.map_err(|loss| {
            engine.losses.found_gone(&granted.possession, FoundBy::Execution, loss);
            self.was_lost(Outcome::NotExecuted)
        })
    }
}
