//! The calls of the fair lock: the lock of an `RLock`, with a queue of clients beside it.

use std::time::{Duration, Instant};

use redis::{Cmd, Script, Value};

use crate::clock;
use crate::config::{Config, QUEUE_TERM};
use crate::error::Error;
use crate::transport::{Answer, Request};

use super::replies::unexpected;
use super::scripts::SCRIPTS;
use super::{
    Call, Names, OldestForeignWaiter, ServerClock, Terms, count_listeners, evalsha, millis, publish,
};

/// What a request says of this client in the queue of a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueEntry {
    /// Since when the oldest waiter of this client has waited; `None` if none does.
    pub(crate) since: Option<Instant>,
    /// That of this waiter, or of the last one that has left. A waiter that comes later has a higher
    /// one, so that Redis knows which of two requests is the later one.
    pub(crate) ticket: u64,
    /// That waiter is not the one that asks.
    pub(crate) of_another: bool,
    /// How long a client may take to come when Redis notifies it.
    pub(crate) grace: Duration,
    pub(crate) mode: TurnMode,
}

impl QueueEntry {
    /// No waiter waits, and no request with a ticket has been sent.
    pub(crate) fn none(config: &Config) -> Self {
        let (grace, mode) = (config.fair_grace, TurnMode::Arriving);
        Self { since: None, ticket: 0, of_another: false, grace, mode }
    }
}

/// What Redis does when a client has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnMode {
    /// Redis grants it the lock.
    Grant,
    /// Redis notifies it, and it asks: only a hand-off could make a grant that of a waiter.
    Notify,
    /// Redis waits for it: it is not subscribed yet, and asks as soon as it is.
    Arriving,
}

impl TurnMode {
    pub(crate) fn of(hears: bool, takes_grants: bool) -> Self {
        match (hears, takes_grants) {
            (false, _) => Self::Arriving,
            (true, true) => Self::Grant,
            (true, false) => Self::Notify,
        }
    }

    fn arg(self, ticket: u64) -> String {
        let mode = match self {
            Self::Grant => 0,
            Self::Notify => 1,
            Self::Arriving => 2,
        };
        format!("{mode}:{ticket}")
    }
}

/// What the answer to an acquire says of the queue that Redis keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueNews {
    /// If this client has the lock now.
    pub(crate) foreign: Option<OldestForeignWaiter>,
    /// If a waiter was refused.
    pub(crate) clock: Option<ServerClock>,
}

impl QueueNews {
    pub(super) fn of(answer: &Answer, names: &Names) -> Self {
        let (mut news, sent) = (Self::default(), answer.sent);
        match &answer.value {
            Value::Int(age) => news.foreign = OldestForeignWaiter::new(sent, *age),
            Value::Array(parts) => match &**parts {
                [Value::BulkString(_), Value::Int(age)] => {
                    news.foreign = OldestForeignWaiter::new(sent, *age);
                }
                [_, Value::BulkString(holder), Value::Int(age), said] => {
                    let ours = holder.starts_with(names.client().as_bytes());
                    news.foreign = if ours { OldestForeignWaiter::new(sent, *age) } else { None };
                    news.clock = clock_of(said, sent);
                }
                _ => {}
            },
            _ => {}
        }
        news
    }
}

fn clock_of(said: &Value, asked: Instant) -> Option<ServerClock> {
    let Value::Int(said) = said else { return None };
    let trip = clock::now().saturating_duration_since(asked);
    Some(ServerClock { asked, said: u64::try_from(*said).ok()?, trip })
}

/// What Redis says of this client's entry in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refreshed {
    /// There is none: the client must ask again.
    Gone,
    Kept,
    /// It is kept, and the lock is free.
    Free,
}

impl Call<'_> {
    pub(super) fn acquire_in_order<'r>(
        &self,
        tokens: u32,
        names: &'r Names,
        owner: &'r str,
        lease: Duration,
        count: u32,
        entry: QueueEntry,
    ) -> Request<'r> {
        let channels = self.router.channels();
        let make = move || {
            let mut cmd = of_queue_and_token(&SCRIPTS.fair_acquire, names, tokens > 0);
            cmd.arg(owner).arg(millis(lease)).arg(count);
            cmd.arg(entry.since.map_or("", |_| names.client())).arg(age(entry.since));
            cmd.arg(millis(QUEUE_TERM)).arg(if entry.of_another { "1" } else { "" });
            cmd.arg(names.common_channel()).arg(publish(channels)).arg(count_listeners(channels));
            cmd.arg(millis(entry.grace)).arg(entry.mode.arg(entry.ticket)).arg(tokens);
            cmd
        };
        let request = self.queue_request(&SCRIPTS.fair_acquire, Cmd::new(), names);
        Request { make: Some(Box::new(make)), ..request }
    }

    pub(super) fn release_in_order<'r>(
        &self,
        names: &'r Names,
        owner: &'r str,
        entry: QueueEntry,
    ) -> Request<'r> {
        let channels = self.router.channels();
        let make = move || {
            let mut cmd = of_queue(&SCRIPTS.fair_release, names);
            cmd.arg(owner);
            cmd.arg(names.common_channel()).arg(publish(channels)).arg(count_listeners(channels));
            cmd.arg(names.client()).arg(age(entry.since));
            cmd.arg(millis(QUEUE_TERM)).arg(millis(entry.grace));
            cmd.arg(entry.mode.arg(entry.ticket));
            cmd
        };
        let request = self.queue_request(&SCRIPTS.fair_release, Cmd::new(), names);
        Request { make: Some(Box::new(make)), ..request }
    }

    pub(super) fn prolong_in_order<'r>(
        &self,
        names: &'r Names,
        owner: &'r str,
        Terms { count, lease, tokens }: Terms,
        entry: QueueEntry,
    ) -> Request<'r> {
        let channels = self.router.channels();
        let make = move || {
            let mut cmd = of_queue_and_token(&SCRIPTS.fair_prolong, names, tokens > 0);
            cmd.arg(names.client()).arg(age(entry.since));
            cmd.arg(millis(QUEUE_TERM)).arg(millis(entry.grace));
            cmd.arg(entry.mode.arg(entry.ticket));
            cmd.arg(owner).arg(count).arg(millis(lease)).arg(tokens);
            cmd.arg(names.common_channel()).arg("").arg(publish(channels)).arg(0);
            cmd
        };
        let request = self.queue_request(&SCRIPTS.fair_prolong, Cmd::new(), names);
        Request { make: Some(Box::new(make)), ..request }
    }

    pub(super) fn force_unlock_in_order<'r>(
        &self,
        names: &'r Names,
        grace: Duration,
    ) -> Request<'r> {
        let channels = self.router.channels();
        let mut cmd = of_queue(&SCRIPTS.fair_force_unlock, names);
        cmd.arg(names.common_channel()).arg(publish(channels)).arg(count_listeners(channels));
        cmd.arg(millis(grace));
        self.queue_request(&SCRIPTS.fair_force_unlock, cmd, names)
    }

    /// Gives this client's entry in the queue up. `last` is the ticket of the last waiter that has left.
    pub(crate) async fn leave_queue(
        &mut self,
        names: &Names,
        grace: Duration,
        last: u64,
    ) -> Result<(), Error> {
        let channels = self.router.channels();
        let mut cmd = of_queue(&SCRIPTS.fair_leave, names);
        cmd.arg(names.client()).arg(names.common_channel());
        cmd.arg(publish(channels)).arg(count_listeners(channels)).arg(millis(grace)).arg(last);
        let mut request = self.queue_request(&SCRIPTS.fair_leave, cmd, names);
        match self.router.call(&mut self.connection, &mut request).await?.value {
            Value::Int(0 | 1) => Ok(()),
            other => Err(unexpected("fair_leave", &other)),
        }
    }

    /// Keeps this client's places in the queues of these locks. In a cluster they are all in one
    /// slot. Also returns what the server's clock said.
    pub(crate) async fn refresh_places(
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
        match answer.value {
            Value::Array(reply) if reply.len() == all.len() + 1 => {
                let places: Result<_, _> = reply[..all.len()].iter().map(refreshed).collect();
                Ok((places?, clock_of(&reply[all.len()], answer.sent)))
            }
            other => Err(unexpected("fair_refresh", &other)),
        }
    }

    fn queue_request<'r>(
        &self,
        script: &'static Script,
        cmd: Cmd,
        names: &'r Names,
    ) -> Request<'r> {
        let request = self.request(Some(script), cmd, names.key());
        Request { publishes_on: Some(names.common_channel()), ..request }
    }
}

fn of_queue(script: &Script, names: &Names) -> Cmd {
    of_queue_and_token(script, names, false)
}

fn of_queue_and_token(script: &Script, names: &Names, new_token: bool) -> Cmd {
    let [queue, waiting] = names.queue_keys();
    if new_token {
        evalsha(script, &[names.key(), &queue, &waiting, &names.token_key()])
    } else {
        evalsha(script, &[names.key(), &queue, &waiting])
    }
}

/// In microseconds, at this moment; empty if no waiter waits.
fn age(since: Option<Instant>) -> String {
    let age = since.map(|since| clock::now().saturating_duration_since(since));
    age.map_or_else(String::new, |age| age.as_micros().to_string())
}

fn refreshed(entry: &Value) -> Result<Refreshed, Error> {
    match entry {
        Value::Int(0) => Ok(Refreshed::Gone),
        Value::Int(1) => Ok(Refreshed::Kept),
        Value::Int(2) => Ok(Refreshed::Free),
        other => Err(unexpected("fair_refresh", other)),
    }
}
