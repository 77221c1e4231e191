//! The wire format: names, and one typed call for each script in `lua/`.
//!
//! Every command about a lock is built here, and every reply is decoded here. The layout is
//! Redisson's `RLock`, so that a Java service can share a lock. Every call but [`Call::execute`]
//! and [`Call::force_unlock`] may be sent twice and counts once (each script says why). So [`Router`] can send it again
//! after a connection is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Script, Value};

use crate::clock;
use crate::config::Replicas;
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::token::{Drawn, TokenBlock};
use crate::transport::{Batchable, Connection, Request, Rewrite, Router};

mod all;
mod commands;
mod execution;
mod fair;
mod foreign;
mod grant;
mod inspect;
mod names;
mod read_write;
mod replies;
mod scripts;
mod sight;
mod survey;
mod texts;
mod update;
pub(crate) use all::Wanted;
pub(crate) use execution::{Execution, converted};
use fair::token_key;
pub(crate) use fair::{QueueEntry, QueueNews, Refreshed, TurnMode};
pub(crate) use foreign::OldestForeignWaiter;
pub(crate) use grant::{Grant, ServerClock, TurnMessage};
pub(crate) use names::Names;
pub(crate) use read_write::WRITER;
pub(crate) use replies::{Mode, Renewed};
use replies::{acquired, loss_of, renewed, unexpected};
pub(crate) use scripts::scripts;
use scripts::{SCRIPTS, count_listeners, operation, publish};
pub(crate) use sight::{SeenHolder, SeenWaiter, Sight};
pub(crate) use survey::{Seen, Survey};
pub(crate) use update::Updated;

/// The reply to an acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The owner has the lock: with tokens for a first hold and those that follow it, if the lock is fenced.
    Granted(TokenBlock),
    /// Another owner has it.
    Refused {
        /// The remaining lease of that owner; `None` if the key has no TTL.
        remaining: Option<Duration>,
        holder: Box<str>,
        /// The request was sent twice, and Redis may have executed it the first time.
        repeated: bool,
    },
    /// The outer holds, on which a nested one was to stand, no longer exist.
    Gone(Loss),
}

/// The reply to a release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The owner held nothing.
    Nothing(Loss),
    /// Holds are left, at most as many as the release has said.
    CountLowered,
    /// The last hold is released, and that many clients have received the message.
    Freed { receivers: u32 },
}

impl Released {
    /// The clients that have the message of a release.
    pub(crate) fn receivers(&self) -> Option<u32> {
        if let Self::Freed { receivers } = self { Some(*receivers) } else { None }
    }
}

/// What Redis is to have of a lock from now on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The hold count.
    pub(crate) count: u32,
    pub(crate) lease: Duration,
    /// How many fencing tokens the client draws. One for a reader is the last one that was drawn.
    pub(crate) tokens: u32,
}

/// A lock that is held, as Redis sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inspected {
    /// The holder's remaining lease; `None` if its key has no TTL.
    pub(crate) remaining: Option<Duration>,
    /// How many holds the inspecting owner has.
    pub(crate) count: u32,
    pub(crate) holder: Box<str>,
    /// What a read-write lock is held for.
    pub(crate) mode: Option<Mode>,
}

/// The requests of one call: where they are sent, and until when their answers are of use.
pub(crate) struct Call<'a> {
    pub(crate) router: &'a Router,
    /// The connection in use, set before a request is sent. The undo of the request is sent
    /// behind it, on the same connection. If set before, the request is first tried there.
    pub(crate) connection: Option<Connection>,
    pub(crate) deadline: Instant,
    /// How long an answer may take. A connection that leaves a request unanswered for longer is silent.
    pub(crate) answer_timeout: Duration,
    /// Whether a request for a hold may have been sent: as long as the call waits for a connection, none was.
    pub(crate) was_sent: bool,
}

impl<'a> Call<'a> {
    pub(crate) fn new(router: &'a Router, deadline: Instant) -> Self {
        let answer_timeout = router.answer_timeout();
        Self { router, connection: None, deadline, answer_timeout, was_sent: false }
    }

    /// Nothing more is sent behind what has no answer here: its owners go on over other connections. So
    /// the server closes this one before it is sent anything newer.
    pub(crate) fn abandon(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.router.drop_connection(&connection);
        }
    }

    /// Asks Redis to let `owner` hold the lock `terms.count` times, and for `terms.tokens` tokens. `entry` is that of
    /// this client, if Redis keeps a queue. `beside` is the owner of the same handle that has a read-write lock already.
    /// Also returns when it was sent, and what Redis said of its queue.
    pub(crate) async fn acquire(
        &mut self,
        names: &Names,
        owner: &str,
        terms: Terms,
        entry: Option<QueueEntry>,
        beside: Option<&str>,
    ) -> Result<(Acquired, Instant, QueueNews), Error> {
        if let Some(entry) = entry.filter(|_| names.is_read_write()) {
            return self.acquire_read_write(names, owner, terms, entry, beside).await;
        }
        let Terms { count, lease, tokens } = terms;
        let mut request = match entry {
            None => self.acquire_request(tokens, names, owner, lease, count),
            Some(entry) => {
                let args = move |cmd: &mut Cmd| {
                    cmd.arg(owner).arg(millis(lease)).arg(count).arg(tokens);
                    cmd.arg(if entry.of_another { "1" } else { "" });
                };
                let token = token_key(names, tokens);
                self.queue_request(&SCRIPTS.fair_acquire, names, entry, token, args)
            }
        };
        request.was_sent = Some(&mut self.was_sent);
        let mut answer = self.router.call(&mut self.connection, &mut request).await?;
        let mut news = entry.map(|_| QueueNews::take(&mut answer)).unwrap_or_default();
        let (mut acquired, sent) = acquired(answer, tokens)?;
        acquired.asks_again_without_entry(entry, &news);
        if let Acquired::Refused { holder, .. } = &acquired
            && !holder.starts_with(names.client())
        {
            // The holder is another client.
            news.foreign = None;
        }
        Ok((acquired, sent, news))
    }

    fn acquire_request<'r>(
        &self,
        tokens: u32,
        names: &'r Names,
        owner: &str,
        lease: Duration,
        count: u32,
    ) -> Request<'r> {
        let (mut cmd, verb, keys) = if tokens > 0 {
            (evalsha(&SCRIPTS.acquire, &[names.key(), &names.token_key()]), "fenced", 2)
        } else {
            (evalsha(&SCRIPTS.acquire, &[names.key()]), "acquire", 1)
        };
        cmd.arg(owner).arg(millis(lease)).arg(count);
        if tokens > 0 {
            cmd.arg(tokens);
        }
        let batch = self.batch(names, verb, keys);
        Request { batch, ..self.request(Some(&SCRIPTS.acquire), cmd, names.key()) }
    }

    /// Waits until enough replicas have what `owner` was granted.
    pub(crate) async fn await_replicas(
        router: &Arc<Router>,
        names: &Names,
        owner: &str,
        replicas: Replicas,
        deadline: Instant,
    ) -> Result<(), Error> {
        let script = if names.is_read_write() { &SCRIPTS.rw_rewrite } else { &SCRIPTS.rewrite };
        let mut cmd = evalsha(script, &[names.key()]);
        cmd.arg(owner);
        let rewrite = Rewrite { cmd, script };
        let replicated = router.replicated(names.key(), rewrite, replicas);
        let replicated = clock::timeout_at(deadline, replicated).await.unwrap_or(Err(None));
        let (have, trouble) = match replicated {
            Ok(have) if have >= u64::from(replicas.count) => return Ok(()),
            Ok(have) => (have.to_string(), None),
            Err(trouble) => ("it is not known how many".to_owned(), trouble),
        };
        let Replicas { count, timeout } = replicas;
        let message =
            format!("{have} of {count} replicas had the lock `{}` in {timeout:?}", names.key());
        let error = Error::new(ErrorKind::Unavailable, Outcome::Unknown, message);
        Err(match trouble {
            Some(trouble) => error.caused_by(trouble),
            None => error,
        })
    }

    /// Asks Redis to leave `owner` only `terms.count` holds of the lock, to which that lease is promised.
    /// `entry` is that of this client's next waiter, if Redis keeps a queue, `beside` is the reader that may be beside
    /// a writer, and `drawn` is there if the lock has tokens. The flag says that an earlier sending was never answered:
    /// it may have caused `Nothing`.
    pub(crate) async fn release(
        &mut self,
        names: &Names,
        owner: &str,
        terms: Terms,
        drawn: Option<Drawn>,
        (entry, beside): (Option<QueueEntry>, Option<&str>),
    ) -> Result<(Released, bool), Error> {
        if terms.count > 0 {
            return Ok(
                match self.update(names, owner, terms, Some(|_| false), (entry, beside)).await? {
                    Ok(_) => (Released::CountLowered, false),
                    Err((loss, repeated)) => (Released::Nothing(loss), repeated),
                },
            );
        }
        let mut request = match entry {
            None => self.release_request(names, owner),
            Some(entry) if names.is_read_write() => {
                self.release_read_write(names, owner, drawn, entry)
            }
            Some(entry) => {
                let args = move |cmd: &mut Cmd| _ = cmd.arg(owner);
                let token = drawn.map(|_| names.token_key());
                self.queue_request(&SCRIPTS.fair_release, names, entry, token, args)
            }
        };
        let answer = self.router.call(&mut self.connection, &mut request).await?;
        let released = match answer.value {
            Value::Int(receivers @ 0..) => {
                Released::Freed { receivers: u32::try_from(receivers).unwrap_or(u32::MAX) }
            }
            other => match loss_of(&other) {
                Some(loss) => Released::Nothing(loss),
                None => return Err(unexpected("release", &other)),
            },
        };
        Ok((released, answer.repeated))
    }

    fn release_request<'r>(&self, names: &'r Names, owner: &str) -> Request<'r> {
        let mut cmd = evalsha(&SCRIPTS.release, &[names.key()]);
        cmd.arg(owner).arg(names.channel()).arg(publish(self.router.channels()));
        let batch = self.batch(names, "release", 1);
        let publishes_on = Some(names.channel());
        Request { batch, publishes_on, ..self.request(Some(&SCRIPTS.release), cmd, names.key()) }
    }

    /// Prolongs the leases of many locks, given with their owners. Returns for each, in order,
    /// whether it is lost, and when the request was sent. All are read-write locks, or none is; in a cluster, all
    /// are in one slot.
    pub(crate) async fn renew(
        &mut self,
        locks: &[(&Names, &str)],
        lease: Duration,
    ) -> Result<Renewed, Error> {
        let first = locks.first().map(|(names, _)| *names);
        let (script, mut cmd) = if first.is_some_and(Names::is_read_write) {
            (&SCRIPTS.rw_renew, self.renew_read_write(locks, lease))
        } else {
            let keys: Vec<&str> = locks.iter().map(|(names, _)| names.key()).collect();
            let mut cmd = evalsha(&SCRIPTS.renew, &keys);
            cmd.arg(millis(lease));
            (&SCRIPTS.renew, cmd)
        };
        for (_, owner) in locks {
            cmd.arg(*owner);
        }
        let mut request = Request {
            key: first.map(Names::key),
            multi_key: locks.len() > 1,
            ..self.request(Some(script), cmd, "a batch of renewals")
        };
        renewed(self.router.call(&mut self.connection, &mut request).await?, locks.len())
    }

    /// Frees the lock, whichever owner holds it. False if it was free.
    pub(crate) async fn force_unlock(
        &mut self,
        names: &Names,
        grace: Duration,
    ) -> Result<bool, Error> {
        if !self.router.knows_channels() {
            // With any answer they are known.
            self.inspect(names, "").await?;
        }
        let request = if names.is_in_order() {
            let entry = QueueEntry::none(grace);
            let rw = names.is_read_write();
            let script = if rw { &SCRIPTS.rw_force_unlock } else { &SCRIPTS.fair_force_unlock };
            self.queue_request(script, names, entry, None, |_| {})
        } else {
            let mut cmd = evalsha(&SCRIPTS.force_unlock, &[names.key()]);
            cmd.arg(names.channel()).arg(publish(self.router.channels()));
            let request = self.request(Some(&SCRIPTS.force_unlock), cmd, names.key());
            Request { publishes_on: Some(names.channel()), ..request }
        };
        // Sent twice, it would free the hold of an owner that has got the lock behind the first one.
        let mut request = Request { at_most_once: true, ..request };
        match self.router.call(&mut self.connection, &mut request).await?.value {
            Value::Int(_) => Ok(true),
            other if loss_of(&other).is_some() => Ok(false),
            other => Err(unexpected("force_unlock", &other)),
        }
    }

    /// What the server does when its memory is full; `None` if it does not say.
    pub(crate) async fn maxmemory_policy(&mut self) -> Result<Option<String>, Error> {
        let mut cmd = redis::cmd("INFO");
        cmd.arg("memory");
        let mut request = Request { key: None, ..self.request(None, cmd, "INFO") };
        let answer = self.router.call(&mut self.connection, &mut request).await?;
        let info: String =
            redis::from_redis_value(answer.value).map_err(|_| unexpected("INFO", &Value::Nil))?;
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        Ok(policy.map(|policy| policy.trim().to_owned()))
    }

    /// A command about one key, to which more may be added.
    fn request<'r>(&self, script: Option<&'static Script>, cmd: Cmd, key: &'r str) -> Request<'r> {
        Request {
            cmd,
            rebuild: None,
            script,
            operation: operation(script),
            batch: None,
            counts: true,
            key: Some(key),
            publishes_on: None,
            multi_key: false,
            at_most_once: false,
            was_sent: None,
            what: key,
            deadline: self.deadline,
            answer_timeout: self.answer_timeout,
        }
    }

    fn batch(&self, names: &Names, verb: &'static str, keys: usize) -> Option<Batchable> {
        let slot = self.router.slot_of(names.key());
        Some(Batchable { script: &SCRIPTS.batch, verb, keys, slot })
    }
}

fn evalsha(script: &Script, keys: &[impl AsRef<[u8]>]) -> Cmd {
    // Room for the arguments of one lock: the digest, and an owner.
    let named: usize = keys.iter().map(|key| 2 * key.as_ref().len()).sum();
    let mut cmd = Cmd::with_capacity(7 + keys.len(), 160 + named);
    cmd.arg("EVALSHA");
    cmd.arg(script.get_hash()).arg(keys.len());
    for key in keys {
        cmd.arg(key.as_ref());
    }
    cmd
}

/// A lease as the scripts want it. Leases are whole milliseconds, at least one, long before here.
fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests;
