//! The calls of the read-write lock, which is that of Redisson's `RReadWriteLock`, with a queue of clients
//! beside it as a fair lock has one.
//!
//! All readers of a client are one owner, with one hold and one marker. The owner of a writer has `:write` at
//! its end.

use std::time::{Duration, Instant};

use redis::{Cmd, Script, Value};

use crate::error::Error;
use crate::token::Drawn;
use crate::transport::{Answer, Request};

use super::fair::{age, say_entry};
use super::replies::{acquired, unexpected};
use super::scripts::SCRIPTS;
use super::{Acquired, Call, Names, QueueEntry, QueueNews, Terms, evalsha, millis};

/// What stands at the end of the owner of a writer.
pub(crate) const WRITER: &str = ":write";

/// A reader with more holds, which only Redisson has, is not looked at: it is there until the lock's lease ends.
const MOST_MARKERS: u32 = 16;

/// The field of a reader, and its count.
pub(super) type Reader = (String, u32);

/// What a request says that asks for the lock.
#[derive(Clone, Copy)]
struct Says<'a> {
    owner: &'a str,
    terms: Terms,
    entry: QueueEntry,
    /// The owner of the same handle that has the lock already, beside which this one is to stand.
    beside: Option<&'a str>,
}

/// Whether the owner of a read-write lock is that of a writer.
fn writes(owner: &str) -> bool {
    owner.ends_with(WRITER)
}

/// What a read-write lock is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

impl<'a> Call<'a> {
    /// As [`acquire`](Call::acquire). A writer that readers keep out looks at once whether they are alive.
    pub(super) async fn acquire_read_write(
        &mut self,
        names: &Names,
        owner: &str,
        terms: Terms,
        entry: QueueEntry,
        beside: Option<&str>,
    ) -> Result<(Acquired, Instant, QueueNews), Error> {
        let says = Says { owner, terms, entry, beside };
        let mut answer = self.ask_read_write(names, says, &[]).await?;
        let mut readers = readers(&answer.value);
        // That one is alive.
        readers.retain(|(reader, _)| beside != Some(reader));
        if !readers.is_empty() {
            answer = self.ask_read_write(names, says, &readers).await?;
        }
        let news = QueueNews::take(&mut answer);
        // For a reader there is no token before the first writer.
        let has_none = !writes(owner) && answer.value == Value::Nil;
        let (mut acquired, sent) = acquired(answer, if has_none { 0 } else { terms.tokens })?;
        acquired.asks_again_without_place(Some(entry), &news);
        Ok((acquired, sent, news))
    }

    async fn ask_read_write(
        &mut self,
        names: &Names,
        Says { owner, terms, entry, beside }: Says<'_>,
        readers: &[Reader],
    ) -> Result<Answer, Error> {
        let Terms { count, lease, tokens } = terms;
        let markers = readers.iter().flat_map(|(reader, count)| {
            (1..=*count).map(move |number| names.marker_key(reader, number))
        });
        // A handle has one reader: the one that asks, or the one beside which a writer is to stand.
        let own = own_marker(names, owner).or_else(|| own_marker(names, beside?));
        let keys = own.into_iter().chain(markers).chain(token_key(names, tokens));
        let args = move |cmd: &mut Cmd| {
            cmd.arg(owner).arg(millis(lease)).arg(count);
            cmd.arg(if writes(owner) { "write" } else { "read" });
            for flag in [entry.of_another, entry.in_turn] {
                cmd.arg(if flag { "1" } else { "" });
            }
            cmd.arg(beside.unwrap_or_default()).arg(age(entry.writer));
            for (reader, count) in readers {
                cmd.arg(reader).arg(*count);
            }
        };
        let entry = QueueEntry { tokens, ..entry };
        let keys = keys.collect();
        let mut request = self.read_write_request(&SCRIPTS.rw_acquire, names, entry, keys, args);
        self.router.call(&mut self.connection, &mut request).await
    }

    pub(super) fn release_read_write<'r>(
        &self,
        names: &'r Names,
        owner: &'r str,
        drawn: Option<Drawn>,
        entry: QueueEntry,
    ) -> Request<'r>
    where
        'a: 'r,
    {
        let ahead = drawn.and_then(Drawn::ahead);
        let args = move |cmd: &mut Cmd| {
            cmd.arg(owner).arg(age(entry.writer));
            if let Some((used, last)) = ahead {
                cmd.arg(last.get()).arg(used.get());
            }
        };
        let keys = own_marker(names, owner).into_iter().chain(ahead.map(|_| names.token_key()));
        let (entry, keys) = (QueueEntry { tokens: 0, ..entry }, keys.collect());
        self.read_write_request(&SCRIPTS.rw_release, names, entry, keys, args)
    }

    pub(super) fn prolong_read_write<'r>(
        &self,
        names: &'r Names,
        (owner, beside): (&'r str, Option<&'r str>),
        tokens: u32,
        entry: QueueEntry,
        args: impl Fn(&mut Cmd) + Send + Sync + 'r,
    ) -> Request<'r>
    where
        'a: 'r,
    {
        // A writer that has tokens drawn is handed off, and has had no reader.
        let beside = beside.filter(|_| tokens == 0);
        let marker = own_marker(names, beside.unwrap_or(owner));
        let keys = marker.into_iter().chain(token_key(names, tokens)).collect();
        let entry = QueueEntry { tokens, ..entry };
        let args = move |cmd: &mut Cmd| {
            args(cmd);
            cmd.arg(age(entry.writer)).arg(beside);
        };
        self.read_write_request(&SCRIPTS.rw_prolong, names, entry, keys, args)
    }

    /// A request about a lock, its queue, and these keys behind them: markers, and then the fencing token, if the
    /// entry says that the script needs it.
    fn read_write_request<'r>(
        &self,
        script: &'static Script,
        names: &'r Names,
        entry: QueueEntry,
        more: Vec<String>,
        args: impl Fn(&mut Cmd) + Send + Sync + 'r,
    ) -> Request<'r>
    where
        'a: 'r,
    {
        let router = self.router;
        let make = move || {
            let [queue, waiting] = names.queue_keys();
            let keys = [names.key(), &queue, &waiting].into_iter();
            let keys = keys.chain(more.iter().map(String::as_str));
            let mut cmd = evalsha(script, &keys.collect::<Vec<_>>());
            say_entry(&mut cmd, names, entry, router.channels());
            args(&mut cmd);
            cmd
        };
        self.made_anew(script, names, make)
    }

    /// What [`renew`](Call::renew) sends for read-write locks.
    pub(super) fn renew_read_write(&self, locks: &[(&Names, &str)], lease: Duration) -> Cmd {
        let mut keys = Vec::with_capacity(2 * locks.len());
        for (names, owner) in locks {
            let marker = own_marker(names, owner);
            keys.extend([names.key().to_owned(), marker.unwrap_or_else(|| names.key().into())]);
        }
        let mut cmd = evalsha(&SCRIPTS.rw_renew, &keys);
        cmd.arg(millis(lease));
        cmd
    }

    /// What the lock is held for; `None` if it is free.
    pub(crate) async fn mode(&mut self, names: &Names) -> Result<Option<Mode>, Error> {
        let mut cmd = evalsha(&SCRIPTS.rw_inspect, &[names.key()]);
        cmd.arg("");
        let mut request = self.request(Some(&SCRIPTS.rw_inspect), cmd, names.key());
        match self.router.call(&mut self.connection, &mut request).await?.value {
            Value::Nil => Ok(None),
            other => {
                inspected_mode(&other).map(Some).ok_or_else(|| unexpected("rw_inspect", &other))
            }
        }
    }
}

/// The marker of a reader that is a client of this crate: it has one hold.
fn own_marker(names: &Names, owner: &str) -> Option<String> {
    (!writes(owner)).then(|| names.marker_key(owner, 1))
}

/// The key of the fencing tokens, for a script that draws some, or reads the last one.
fn token_key(names: &Names, tokens: u32) -> Option<String> {
    (tokens > 0).then(|| names.token_key())
}

/// The readers because of which a writer was refused that has not looked at them yet.
pub(super) fn readers(answer: &Value) -> Vec<Reader> {
    let Value::Array(parts) = answer else { return Vec::new() };
    let Some(Value::Array(named)) = parts.get(3) else { return Vec::new() };
    let reader = |pair: &[Value]| {
        let [field, count] = pair else { return None };
        let count = redis::from_redis_value_ref(count).ok().filter(|many| *many <= MOST_MARKERS)?;
        Some((redis::from_redis_value_ref(field).ok()?, count))
    };
    named.chunks_exact(2).filter_map(reader).filter(|(field, _)| field != "mode").collect()
}

/// What a read-write lock is held for.
fn inspected_mode(reply: &Value) -> Option<Mode> {
    let Value::Array(parts) = reply else { return None };
    match parts.get(3)? {
        Value::BulkString(mode) if mode == b"read" => Some(Mode::Read),
        Value::BulkString(mode) if mode == b"write" => Some(Mode::Write),
        _ => None,
    }
}
