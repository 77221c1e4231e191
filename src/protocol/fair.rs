//! The calls of the fair lock: the lock of an `RLock`, with a queue of clients beside it.

use std::time::{Duration, Instant};

use redis::{Cmd, Script, Value};

use crate::clock;
use crate::config::QUEUE_TERM;
use crate::error::Error;
use crate::transport::{Answer, Channels, Connection, Request};

use super::replies::{loss_of, refusal, unexpected};
use super::scripts::{SCRIPTS, frees};
use super::{
    Acquired, Call, Grant, Names, OldestForeignWaiter, ServerClock, count_listeners, evalsha,
    millis, publish,
};

/// What a request says of this client in the queue of a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueEntry {
    /// Since when the oldest waiter of this client has waited; `None` if none does.
    pub(crate) since: Option<Instant>,
    /// A higher one each time that the entry comes to stand for another waiter, so that Redis knows which of two requests
    /// is the later one. If no waiter waits, no lower one than all before.
    pub(crate) ticket: u64,
    /// The oldest waiter is not the one that asks.
    pub(crate) of_another: bool,
    /// How long a client may take to come when Redis notifies it.
    pub(crate) grace: Duration,
    pub(crate) mode: TurnMode,
    /// How many fencing tokens Redis draws when it grants the lock to this client.
    pub(crate) tokens: u32,
    /// A nested hold of a reader waits for its turn.
    pub(crate) in_turn: bool,
    /// Since when the oldest waiter of this client has waited that wants to write a read-write lock.
    pub(crate) writer: Option<Instant>,
}

impl QueueEntry {
    /// No waiter waits, and no request with a ticket has been sent.
    pub(crate) fn none(grace: Duration) -> Self {
        let mode = TurnMode::Arriving;
        let (since, of_another, in_turn, writer) = (None, false, false, None);
        Self { since, ticket: 0, of_another, grace, mode, tokens: 0, in_turn, writer }
    }
}

/// What Redis does when a client has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnMode {
    /// Redis grants the lock to this client.
    Grant,
    /// Redis notifies this client, which then asks: only a hand-off could make a grant that of a waiter.
    Notify,
    /// Redis waits for this client, which is not subscribed yet, and asks as soon as it is.
    Arriving,
    /// Redis notifies this client, which then asks: its oldest waiter wants to read a read-write lock, or to write.
    Read,
    Write,
}

impl TurnMode {
    pub(crate) fn of(is_subscribed: bool, takes_grants: bool) -> Self {
        match (is_subscribed, takes_grants) {
            (false, _) => Self::Arriving,
            (true, true) => Self::Grant,
            (true, false) => Self::Notify,
        }
    }

    fn arg(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Notify => "notify",
            Self::Arriving => "arriving",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// What a script of a lock with a queue says of the queue, beside what that of a plain lock replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueNews {
    pub(crate) foreign: Option<OldestForeignWaiter>,
    /// Whether this client, which a holder keeps waiting, is the first in the queue.
    pub(crate) is_first: Option<bool>,
    pub(crate) clock: Option<ServerClock>,
}

impl QueueNews {
    /// Takes the news out of an answer, and leaves what the script of a plain lock would have replied.
    pub(super) fn take(answer: &mut Answer) -> Self {
        let sent = answer.sent;
        let Value::Array(parts) = &mut answer.value else { return Self::default() };
        if parts.is_empty() {
            return Self::default();
        }
        let news = parts.split_off(1);
        answer.value = parts.remove(0);
        let foreign = match news.first() {
            Some(Value::Int(age)) => OldestForeignWaiter::new(sent, *age),
            _ => None,
        };
        Self {
            foreign,
            is_first: news.get(3).map(|said| *said == Value::Int(1)),
            clock: news.get(1).and_then(|said| clock_of(said, sent)),
        }
    }
}

impl Acquired {
    /// Has this client ask again within the grace, if Redis has refused it and had no room for its entry in the queue,
    /// because the memory was full: Redis sends this client no message of a release then.
    pub(super) fn asks_again_without_entry(&mut self, entry: Option<QueueEntry>, news: &QueueNews) {
        if let (
            Self::Refused { remaining, .. },
            Some(QueueEntry { since: Some(_), grace, .. }),
            None,
        ) = (self, entry, news.clock)
        {
            *remaining = Some(remaining.map_or(grace, |remaining| remaining.min(grace)));
        }
    }
}

fn clock_of(said: &Value, asked: Instant) -> Option<ServerClock> {
    let Value::Int(said) = said else { return None };
    let round_trip = clock::now().saturating_duration_since(asked);
    Some(ServerClock { asked, said: u64::try_from(*said).ok()?, round_trip })
}

/// What Redis says of this client's entry in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refreshed {
    /// There is no entry: the client must ask again.
    Gone,
    Kept,
    /// The entry is kept, and the lock is free.
    Free,
}

impl<'a> Call<'a> {
    /// A request about a lock and its queue, with what it says of this client there. That is computed for each
    /// sending. `more` are the keys behind these: markers of readers, and then the fencing token, if the script needs
    /// it. `args` adds the arguments of the script's own.
    pub(super) fn queue_request<'r>(
        &self,
        script: &'static Script,
        names: &'r Names,
        entry: QueueEntry,
        more: impl IntoIterator<Item = String>,
        args: impl Fn(&mut Cmd) + Send + Sync + 'r,
    ) -> Request<'r>
    where
        'a: 'r,
    {
        // A lazy client knows the channels of a cluster only when it sends its first request.
        let (router, more) = (self.router, Vec::from_iter(more));
        let rebuild = move |_: &Connection| {
            let [queue, waiting] = names.queue_keys();
            let keys = [names.key(), &queue, &waiting].into_iter();
            let keys = keys.chain(more.iter().map(String::as_str));
            let mut cmd = evalsha(script, &keys.collect::<Vec<_>>());
            say_entry(&mut cmd, names, entry, router.channels());
            args(&mut cmd);
            cmd
        };
        let request = self.request(Some(script), Cmd::new(), names.key());
        // A request that asks publishes nothing at the source: its client may listen there, and would ask again.
        let publishes_on = frees(script).then(|| names.common_channel());
        Request { rebuild: Some(Box::new(rebuild)), publishes_on, ..request }
    }

    /// Gives this client's entry in the queue up. `last` is a ticket that none exceeds that it has had. Returns the
    /// grant that Redis has made to this client before, if it has the lock still: its message may be on its way.
    pub(crate) async fn leave_queue(
        &mut self,
        names: &Names,
        grace: Duration,
        last: u64,
    ) -> Result<Option<Grant>, Error> {
        let entry = QueueEntry { ticket: last, ..QueueEntry::none(grace) };
        let script = if names.is_read_write() { &SCRIPTS.rw_leave } else { &SCRIPTS.fair_leave };
        let mut request = self.queue_request(script, names, entry, None, |_| {});
        let Answer { value, sent, .. } =
            self.router.call(&mut self.connection, &mut request).await?;
        if value == Value::Okay || loss_of(&value).is_some() {
            return Ok(None);
        }
        if let Value::Array(parts) = &value
            && let [granted, said] = &**parts
            && let Some((left, owner)) = refusal(granted)
        {
            return Ok(Grant::of_refusal(names, &owner, left, sent, sent, clock_of(said, sent)));
        }
        Err(unexpected("fair_leave", &value))
    }

    /// Keeps this client's entries in the queues of these locks. In a cluster they are all in one
    /// slot. Also returns what the server's clock said.
    pub(crate) async fn refresh_entries(
        &mut self,
        all: &[&Names],
    ) -> Result<(Vec<Refreshed>, Option<ServerClock>), Error> {
        let Some(first) = all.first() else { return Ok((Vec::new(), None)) };
        let queues: Vec<[String; 2]> = all.iter().map(|names| names.queue_keys()).collect();
        let mut keys = Vec::with_capacity(3 * all.len());
        for (names, [queue, waiting]) in all.iter().zip(&queues) {
            keys.extend([names.key(), queue, waiting]);
        }
        let mut cmd = evalsha(&SCRIPTS.fair_refresh, &keys);
        cmd.arg(first.client()).arg(millis(QUEUE_TERM));
        let mut request = self.request(Some(&SCRIPTS.fair_refresh), cmd, first.key());
        let answer = self.router.call(&mut self.connection, &mut request).await?;
        let reply: &[Value] = if let Value::Array(parts) = &answer.value { parts } else { &[] };
        if let [Value::Array(entries), said] = reply
            && let Some(entries) = entries.iter().map(refreshed).collect::<Option<Vec<_>>>()
            && entries.len() == all.len()
        {
            return Ok((entries, clock_of(said, answer.sent)));
        }
        Err(unexpected("fair_refresh", &answer.value))
    }
}

/// What a request says to a script of a lock with a queue of this client's entry there, at this moment.
fn say_entry(cmd: &mut Cmd, names: &Names, entry: QueueEntry, channels: Channels) {
    cmd.arg(names.client()).arg(age(entry.since)).arg(entry.ticket).arg(entry.mode.arg());
    cmd.arg(millis(QUEUE_TERM)).arg(millis(entry.grace));
    cmd.arg(names.common_channel()).arg(publish(channels));
    cmd.arg(if count_listeners(channels).is_empty() { "" } else { "1" });
    cmd.arg(entry.tokens);
}

/// The key of the fencing tokens, for a script that draws some, or reads the last one.
pub(super) fn token_key(names: &Names, tokens: u32) -> Option<String> {
    (tokens > 0).then(|| names.token_key())
}

/// In microseconds, at this moment; empty if no waiter waits.
pub(super) fn age(since: Option<Instant>) -> String {
    let age = since.map(|since| clock::now().saturating_duration_since(since));
    age.map_or_else(String::new, |age| age.as_micros().to_string())
}

fn refreshed(entry: &Value) -> Option<Refreshed> {
    match entry {
        Value::Okay => Some(Refreshed::Kept),
        Value::SimpleString(reply) if reply == "FREE" => Some(Refreshed::Free),
        other => loss_of(other).map(|_| Refreshed::Gone),
    }
}
