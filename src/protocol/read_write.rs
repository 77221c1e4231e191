//! The calls of the read-write lock, which is that of Redisson's `RReadWriteLock`, with a queue of clients
//! beside it as a fair lock has one.
//!
//! All readers of a client are one owner, with one hold and one marker. The owner of a writer has `:write` at
//! its end.

use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use crate::clock;
use crate::error::Error;
use crate::token::Drawn;
use crate::transport::{Answer, Request};

use super::fair::{age, token_key};
use super::replies::acquired;
use super::scripts::SCRIPTS;
use super::{Acquired, Call, Names, QueueEntry, QueueNews, Terms, evalsha, millis};

/// What stands at the end of the owner of a writer.
pub(crate) const WRITER: &str = ":write";

/// A reader with more holds, which only Redisson has, is not looked at: it is there until the lock's lease ends.
const MAX_MARKERS: u32 = 16;

/// The field of a reader, and its count.
pub(super) type Reader = (String, u32);

/// Whether the owner of a read-write lock is that of a writer.
fn writes(owner: &str) -> bool {
    owner.ends_with(WRITER)
}

impl<'a> Call<'a> {
    /// Asks for a hold of a read-write lock, as [`acquire`](Call::acquire) does for others. If readers keep a writer
    /// out, this looks at once whether they are alive, at 64 of them at a time, for half of its time at most.
    pub(super) async fn acquire_read_write(
        &mut self,
        names: &Names,
        owner: &str,
        terms: Terms,
        entry: QueueEntry,
        beside: Option<&str>,
    ) -> Result<(Acquired, Instant, QueueNews), Error> {
        let mut answer = self.ask_read_write(names, owner, terms, entry, beside, &[]).await?;
        let begun = clock::now();
        let until = begun + self.deadline.saturating_duration_since(begun) / 2;
        // If it has looked, and the answer names readers all the same, some were dead, and it has not seen all.
        let sees_all = loop {
            let mut readers = readers(&answer.value);
            // That one is alive.
            readers.retain(|(reader, _)| beside != Some(reader));
            if readers.is_empty() || clock::now() >= until {
                break readers.is_empty();
            }
            answer = self.ask_read_write(names, owner, terms, entry, beside, &readers).await?;
        };
        let news = QueueNews::take(&mut answer);
        // For a reader there is no token before the first writer.
        let has_none = !writes(owner) && answer.value == Value::Nil;
        let (mut acquired, sent) = acquired(answer, if has_none { 0 } else { terms.tokens })?;
        acquired.asks_again_without_entry(Some(entry), &news);
        if let Acquired::Refused { remaining, .. } = &mut acquired
            && !sees_all
        {
            // The next request of the call goes on with them.
            *remaining = Some(Duration::from_millis(1));
        }
        Ok((acquired, sent, news))
    }

    async fn ask_read_write(
        &mut self,
        names: &Names,
        owner: &str,
        Terms { count, lease, tokens }: Terms,
        entry: QueueEntry,
        beside: Option<&str>,
        readers: &[Reader],
    ) -> Result<Answer, Error> {
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
        let mut request = self.queue_request(&SCRIPTS.rw_acquire, names, entry, keys, args);
        request.was_sent = Some(&mut self.was_sent);
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
        let entry = QueueEntry { tokens: 0, ..entry };
        self.queue_request(&SCRIPTS.rw_release, names, entry, keys, args)
    }

    pub(super) fn update_read_write<'r>(
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
        let marker = own_marker(names, beside.unwrap_or(owner));
        let keys = marker.into_iter().chain(token_key(names, tokens));
        let entry = QueueEntry { tokens, ..entry };
        let args = move |cmd: &mut Cmd| {
            args(cmd);
            cmd.arg(age(entry.writer)).arg(beside);
        };
        self.queue_request(&SCRIPTS.rw_update, names, entry, keys, args)
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
}

/// The marker of a reader that is a client of this crate: it has one hold.
fn own_marker(names: &Names, owner: &str) -> Option<String> {
    (!writes(owner)).then(|| names.marker_key(owner, 1))
}

/// The readers because of which a writer was refused, at which it is to look.
pub(super) fn readers(answer: &Value) -> Vec<Reader> {
    let Value::Array(parts) = answer else { return Vec::new() };
    let Some(Value::Array(named)) = parts.get(3) else { return Vec::new() };
    let reader = |pair: &[Value]| {
        let [field, count] = pair else { return None };
        let count = redis::from_redis_value_ref(count).ok().filter(|many| *many <= MAX_MARKERS)?;
        Some((redis::from_redis_value_ref(field).ok()?, count))
    };
    named.chunks_exact(2).filter_map(reader).filter(|(field, _)| field != "mode").collect()
}
