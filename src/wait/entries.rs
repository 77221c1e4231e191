//! The driver of this client's entries in the queues that Redis keeps of fair locks. [`super::entry`] is
//! what the client knows of one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::futures::Notified;
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::clock;
use crate::config::{Config, QUEUE_TERM};
use crate::host::{here, join_rest};
use crate::possession::Possession;
use crate::protocol::{
    Call, Grant, Names, OldestForeignWaiter, QueueEntry, Refreshed, ServerClock, TurnMessage,
    TurnMode,
};
use crate::transport::Router;

use super::Waiters;
use super::change::{Brought, LONGEST_PARK, Ticket};

/// Entries in one request.
const BATCH: usize = 100;

impl Waiters {
    /// This client's entry in the queue that Redis keeps of that lock, for a request that brings it there: that
    /// of the oldest waiter, or of the one behind the oldest, which is about to have the lock.
    pub(crate) fn bring_entry(&self, names: &Names, config: &Config, behind: bool) -> QueueEntry {
        self.entry(names, config, behind).1
    }

    /// The same for the request with which a waiter asks.
    pub(crate) fn bring_entry_for(
        &self,
        asks: Ticket,
        names: &Names,
        config: &Config,
    ) -> QueueEntry {
        let (oldest, entry) = self.entry(names, config, false);
        QueueEntry { of_another: oldest != Some(asks), ..entry }
    }

    fn entry(&self, names: &Names, config: &Config, behind: bool) -> (Option<Ticket>, QueueEntry) {
        let none = QueueEntry::none(config.fair_grace);
        let tokens = self.tokens_wanted(names, config);
        let mut queues = self.queues.lock();
        match queues.at(clock::now()).bring_entry(names, behind) {
            Ok(Brought { waiter, since, ticket }) => {
                let is_subscribed = queues.subscriptions.is_live(names.channel());
                let mode = match queues.get(names).and_then(|queue| queue.waiter(waiter)) {
                    Some(waiter) if is_subscribed && names.is_read_write() => waiter.wants(),
                    _ => {
                        TurnMode::of(is_subscribed, config.takes_grants() && !names.is_read_write())
                    }
                };
                let writer = queues.first_writer(names).map(|(_, since)| since);
                let entry = QueueEntry { since: Some(since), ticket, mode, tokens, writer, ..none };
                (Some(waiter), entry)
            }
            Err(ticket) => (None, QueueEntry { ticket, ..none }),
        }
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(crate) fn record_foreign(&self, names: &Names, foreign: Option<OldestForeignWaiter>) {
        if let Some(foreign) = foreign {
            self.queues.lock().record_foreign(names, foreign);
        }
    }

    /// Redis has refused this client because of a holder, and said whether it is the first in the queue.
    pub(crate) fn record_rank(&self, names: &Names, is_first: bool) {
        self.change(|queues| queues.record_rank(names, is_first));
    }

    /// Redis has granted a read-write lock to a reader by a request with that entry.
    pub(crate) fn record_reader(&self, names: &Names, entry: Option<QueueEntry>) {
        if let Some(own) = self.queues.lock().own_entry(names) {
            own.set_stays(entry.is_some_and(|entry| entry.writer.is_some()));
        }
    }

    /// The server said its time in an answer about this lock. A request can be answered by another server
    /// than the one at which this client is about to subscribe, so that is no news then.
    pub(crate) fn record_clock(&self, names: &Names, clock: Option<ServerClock>) {
        let mut queues = self.queues.lock();
        if clock.is_some()
            && queues.subscriptions.is_live(names.channel())
            && let Some(entry) = queues.own_entry(names)
        {
            entry.set_clock(clock);
        }
    }

    /// A message came on a channel. Returns the lock that Redis has granted to this client with it.
    pub(super) fn process_message(&self, channel: &str, payload: &[u8]) -> Option<Grant> {
        let message = TurnMessage::of(payload);
        match message {
            TurnMessage::Ask(after) => {
                let after = after.min(LONGEST_PARK);
                self.change(|queues| queues.record_message(channel, after));
                None
            }
            TurnMessage::Granted { key, at, .. } => {
                let names = Names::of_client(channel, key)?;
                let mut queues = self.queues.lock();
                // Without a queue, no clock is known.
                let clock = match queues.own_entry(&names) {
                    Some(entry) => entry.record_granted_at(at)?,
                    None => None,
                };
                drop(queues);
                message.into_grant(channel, clock, clock::now())
            }
        }
    }

    /// Completes when a waiter in a queue that Redis keeps has asked, has taken the lock that was handed to
    /// it, or has left.
    pub(crate) fn progress(&self) -> Notified<'_> {
        self.progress.notified()
    }

    /// Whether the head of this lock's queue asks Redis just now, and can take the lock after that.
    pub(crate) fn head_asks(&self, names: &Names) -> bool {
        let queues = self.queues.lock();
        !queues.closed && queues.get(names).is_some_and(|queue| queue.head_asks(clock::now()))
    }

    /// Whether this client has an entry, and no waiter. From here on it has none.
    pub(crate) fn gives_entry_up(&self, names: &Names) -> bool {
        self.change(|queues| queues.change(names, |queue, _| queue.gives_entry_up())) == Some(true)
    }

    /// Whether this client waits no more, so that an entry in the queue that Redis keeps is to be given up.
    pub(crate) fn has_left(&self, names: &Names) -> bool {
        self.queues.lock().last_to_leave(names).is_some()
    }

    /// The head of this lock's queue asks now: its client may have no entry.
    pub(crate) fn ask_now(&self, names: &Names) {
        self.change(|queues| queues.change(names, |queue, cx| queue.ask_at(cx.at.now, cx)));
    }

    /// Gives up the client's entry in a queue that Redis keeps, when its last waiter has gone: tries until Redis
    /// has answered, or the entry has ended by itself. The last waiter's requests were about the possession
    /// `behind`. Returns the grants of which Redis says then that this client has them: their messages may be on
    /// their way.
    pub(crate) async fn leave_queue(
        &self,
        names: &Names,
        behind: Option<Arc<Possession>>,
        router: &Router,
        config: &Config,
    ) -> Vec<Grant> {
        let give_up = clock::now() + QUEUE_TERM;
        // Behind its last request and the release that undoes it: that one would take the entry again.
        if let Some(possession) = behind {
            drop(clock::timeout_at(give_up, possession.permit()).await);
        }
        let begun = clock::now();
        let mut granted = Vec::from_iter(self.give_entry_up(names, router, config, give_up).await);
        if self.queues.lock().is_asked_for_still(names) {
            // A request that was sent before this one takes about as long.
            let answer_timeout = (4 * (clock::now() - begun)).min(config.fair_grace);
            drop(clock::timeout(answer_timeout, self.requests_end(names)).await);
            granted.extend(self.give_entry_up(names, router, config, give_up).await);
        }
        granted
    }

    async fn give_entry_up(
        &self,
        names: &Names,
        router: &Router,
        config: &Config,
        give_up: Instant,
    ) -> Option<Grant> {
        let mut backoff = Backoff::in_background();
        loop {
            // Another waiter may have come and asked. Then its entry is there instead.
            let last = self.queues.lock().last_to_leave(names)?;
            let mut call = Call::new(router, clock::now() + config.command_timeout);
            match call.leave_queue(names, config.fair_grace, last).await {
                Ok(granted) => return granted,
                Err(error) => tracing::debug!(
                    name = %names.key(), error = format_args!("{error:#}"), "could not leave a queue"
                ),
            }
            if clock::now() >= give_up {
                return None;
            }
            clock::sleep(backoff.next()).await;
        }
    }

    /// Waits, once the client is closed, until no request of a call is under way that may bring the entry again.
    async fn requests_end(&self, names: &Names) {
        loop {
            let progress = self.progress.notified();
            if !self.queues.lock().is_asked_for_still(names) {
                return;
            }
            progress.await;
        }
    }

    /// Keeps all entries of this client until it is dropped: one request every `period` for up to
    /// [`BATCH`] of them, in a cluster for those of a slot. A request may take `answer_timeout`. None waits
    /// for another: a server that hangs must not cost the entries at the others.
    pub(crate) async fn keep_entries(
        self: &Arc<Self>,
        router: &Arc<Router>,
        period: Duration,
        answer_timeout: Duration,
    ) {
        let answer_timeout = answer_timeout.min(period);
        let mut begun = clock::now();
        loop {
            let changed = self.changed.notified();
            if !self.queues.lock().any_in_order() {
                changed.await;
                begun = clock::now();
                continue;
            }
            clock::sleep_until(begun + period).await;
            begun = clock::now();
            let mut by_slot: BTreeMap<Option<u16>, Vec<Arc<Names>>> = BTreeMap::new();
            for names in self.queues.lock().locks_with_entries() {
                by_slot.entry(router.slot_of(names.key())).or_default().push(names);
            }
            let mut refreshes = JoinSet::new();
            for locks in by_slot.values().flat_map(|locks| locks.chunks(BATCH)) {
                let (waiters, router, locks) = (self.clone(), router.clone(), locks.to_vec());
                let refresh = async move { waiters.refresh(&router, &locks, answer_timeout).await };
                refreshes.spawn(here(refresh));
            }
            join_rest(&mut refreshes).await;
        }
    }

    async fn refresh(&self, router: &Router, locks: &[Arc<Names>], answer_timeout: Duration) {
        let all: Vec<&Names> = locks.iter().map(|names| &**names).collect();
        let mut call = Call::new(router, clock::now() + answer_timeout);
        call.answer_timeout = answer_timeout;
        match call.refresh_entries(&all).await {
            Ok((entries, clock)) => {
                for (names, entry) in all.iter().zip(entries) {
                    self.record_clock(names, clock);
                    if entry != Refreshed::Kept {
                        self.ask_now(names);
                    }
                }
            }
            // An entry that ends meanwhile is there again with the next request of its waiter.
            Err(error) => tracing::debug!(
                error = format_args!("{error:#}"),
                "could not refresh entries in queues"
            ),
        }
    }
}
