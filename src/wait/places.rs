//! The driver of this client's places in the queues that Redis keeps. [`super::queue::places`]
//! knows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::futures::Notified;
use tokio::task::JoinSet;

use crate::clock;
use crate::config::Config;
use crate::host::here;
use crate::protocol::{
    Grant, Names, OldestForeignWaiter, QueueEntry, Refreshed, ServerClock, Session, TurnMessage,
    TurnMode,
};
use crate::transport::Router;

use super::queue::{LONGEST_PARK, Oldest, Ticket};
use super::{Waiter, Waiters, wake};

/// Places in one request.
const BATCH: usize = 100;

impl Waiters {
    /// This client's entry in the queue that Redis keeps of that lock, for a request that brings it there: that
    /// of the oldest waiter, or of the one behind the oldest, which is about to have the lock.
    pub(crate) fn queue_entry(&self, names: &Names, config: &Config, behind: bool) -> QueueEntry {
        let none = QueueEntry::none(config);
        let mut queues = self.queues.lock();
        match queues.oldest(names.channel(), names.key(), behind, clock::now()) {
            Oldest::Head(ticket, head) => {
                let mode = TurnMode::of(queues.is_live(names.channel()), config.takes_grants());
                QueueEntry { since: Some(head.since), ticket, mode, ..none }
            }
            Oldest::Comes(ticket, since) => QueueEntry { since: Some(since), ticket, ..none },
            Oldest::Left(ticket) => QueueEntry { ticket, ..none },
        }
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(crate) fn heard(&self, names: &Names, elsewhere: Option<OldestForeignWaiter>) {
        if let Some(elsewhere) = elsewhere {
            self.queues.lock().heard(names.channel(), names.key(), elsewhere);
        }
    }

    /// A call that is not in the queue yet asks for a place.
    pub(crate) fn first_place_begins(&self, names: &Names, since: Instant) -> Ticket {
        self.queues.lock().first_place_begins(names.key(), since)
    }

    /// It has the lock for `lease`, so that this client has no place.
    pub(crate) fn first_place_granted(&self, names: &Names, number: Ticket, lease: Duration) {
        let mut queues = self.queues.lock();
        queues.first_place_ends(names.key(), number);
        let wakes = queues.granted_first(names.channel(), names.key(), lease, clock::now());
        drop(queues);
        wake(wakes);
    }

    /// It is in the queue, or went.
    pub(crate) fn first_place_ends(&self, names: &Names, number: Ticket) {
        self.queues.lock().first_place_ends(names.key(), number);
    }

    /// The server said its time in an answer about this lock.
    pub(crate) fn heard_clock(&self, names: &Names, clock: Option<ServerClock>) {
        if let Some(clock) = clock {
            self.queues.lock().set_clock(names.channel(), names.key(), clock);
        }
    }

    /// A message came on a channel. Returns the lock that Redis has granted to this client with it.
    pub(super) fn message(&self, channel: &str, payload: &[u8]) -> Option<Grant> {
        let (message, now) = (TurnMessage::of(payload), clock::now());
        let mut queues = self.queues.lock();
        match message {
            TurnMessage::Ask(after) => {
                let wakes = queues.told(channel, after.min(LONGEST_PARK), now);
                drop(queues);
                wake(wakes);
                None
            }
            TurnMessage::Granted { key, at, .. } => {
                let clock = queues.granted_at(channel, key, at)?;
                message.into_grant(channel, clock, now)
            }
        }
    }

    /// Completes when a waiter in a queue that Redis keeps has asked, has taken the lock that was handed to
    /// it, or has left.
    pub(crate) fn progress(&self) -> Notified<'_> {
        self.progress.notified()
    }

    /// Whether the head of this lock's queue asks Redis just now.
    pub(crate) fn head_asks(&self, names: &Names) -> bool {
        self.queues.lock().head_asks(names.channel(), names.key())
    }

    /// Whether this client has a place, and no waiter. From here on it has none.
    pub(crate) fn gives_place_up(&self, names: &Names) -> bool {
        self.queues.lock().gives_place_up(names.channel(), names.key())
    }

    /// The number of the last waiter that has left. `None` if another one has asked for a place.
    pub(crate) fn leaves_queue(&self, names: &Names) -> Option<Ticket> {
        self.queues.lock().leaves_queue(names.channel(), names.key(), clock::now())
    }

    /// The head of this lock's queue asks now, because it may have no place.
    pub(crate) fn asks_for_place(&self, names: &Names) {
        let now = clock::now();
        let wakes = self.queues.lock().asks_for_place(names.channel(), names.key(), now);
        wake(wakes);
    }

    /// Keeps all places of this client until it is dropped: one request every `period` for up to
    /// [`BATCH`] of them, in a cluster for those of a slot. A request may take `patience`. None waits
    /// for another: a server that hangs must not cost the places at the others.
    pub(crate) async fn keep_places(
        self: &Arc<Self>,
        router: &Arc<Router>,
        period: Duration,
        patience: Duration,
    ) {
        let patience = patience.min(period);
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
            let mut by_slot: BTreeMap<Option<u16>, Vec<Arc<Waiter>>> = BTreeMap::new();
            for head in self.queues.lock().heads_with_places() {
                by_slot.entry(router.slot_of(head.handle.names.key())).or_default().push(head);
            }
            let mut refreshes = JoinSet::new();
            for heads in by_slot.values().flat_map(|heads| heads.chunks(BATCH)) {
                let (waiters, router, heads) = (self.clone(), router.clone(), heads.to_vec());
                let refresh = async move { waiters.refresh(&router, &heads, patience).await };
                refreshes.spawn(here(refresh));
            }
            while refreshes.join_next().await.is_some() {}
        }
    }

    async fn refresh(&self, router: &Router, heads: &[Arc<Waiter>], patience: Duration) {
        let all: Vec<&Names> = heads.iter().map(|head| &*head.handle.names).collect();
        let mut call = Session::new(router, clock::now() + patience);
        call.patience = patience;
        match call.refresh_places(&all).await {
            Ok((places, clock)) => {
                for (names, place) in all.iter().zip(places) {
                    self.heard_clock(names, clock);
                    if place != Refreshed::Kept {
                        self.asks_for_place(names);
                    }
                }
            }
            // A place that ends meanwhile is there again with the next request of its waiter.
            Err(error) => tracing::debug!(
                error = format_args!("{error:#}"),
                "could not refresh places in queues"
            ),
        }
    }
}
