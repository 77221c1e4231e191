//! The driver of this client's places in the queues that Redis keeps. [`super::queue::places`]
//! knows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::futures::Notified;
use tokio::task::JoinSet;

use crate::clock;
use crate::protocol::{Elsewhere, Grant, Names, Refreshed, ServerClock, Session, TurnMessage};
use crate::transport::Router;

use super::queue::LONGEST_PARK;
use super::{Registration, Waiter, Waiters, wake};

/// Places in one request.
const BATCH: usize = 100;

impl Waiters {
    /// A request brings the place of this client to Redis: since when its oldest waiter has waited.
    pub(crate) fn brings_place(&self, names: &Names) -> Option<Instant> {
        let oldest = self.queues.lock().brings_place(names.channel(), names.key());
        oldest.map(|waiter| waiter.since)
    }

    /// This client has the lock, and Redis said who waits in others.
    pub(crate) fn heard(&self, names: &Names, elsewhere: Option<Elsewhere>) {
        if let Some(elsewhere) = elsewhere {
            self.queues.lock().heard(names.channel(), names.key(), elsewhere);
        }
    }

    /// A call that is not in the queue yet asks for a place.
    pub(crate) fn first_place_begins(&self, names: &Names) {
        *self.first_places.lock().entry(names.channel().into()).or_default() += 1;
    }

    /// It has the lock, or is in the queue, or went.
    pub(crate) fn first_place_ends(&self, names: &Names) {
        let mut places = self.first_places.lock();
        if let Some(left) = places.get_mut(names.channel()) {
            *left -= 1;
            if *left == 0 {
                places.remove(names.channel());
            }
        }
    }

    /// It went.
    pub(crate) fn first_place_left(&self, names: &Names) {
        self.first_place_ends(names);
        self.queues.lock().first_place_left(names.channel(), names.key());
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

    /// Whether a call for this lock has asked for a place, and waits.
    pub(crate) fn has_place(&self, names: &Names) -> bool {
        self.first_places.lock().contains_key(names.channel())
            || self.queues.lock().has_place(names.channel(), names.key())
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
                by_slot.entry(router.slot_of(head.owner.names.key())).or_default().push(head);
            }
            let mut refreshes = JoinSet::new();
            for heads in by_slot.values().flat_map(|heads| heads.chunks(BATCH)) {
                let (waiters, router, heads) = (self.clone(), router.clone(), heads.to_vec());
                refreshes.spawn(async move { waiters.refresh(&router, &heads, patience).await });
            }
            while refreshes.join_next().await.is_some() {}
        }
    }

    async fn refresh(&self, router: &Router, heads: &[Arc<Waiter>], patience: Duration) {
        let all: Vec<&Names> = heads.iter().map(|head| &head.owner.names).collect();
        let mut call = Session::new(router, clock::now() + patience);
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

impl Registration<'_> {
    /// Whether the next request moves this client's place: an older waiter may have left.
    pub(crate) fn moves_place(&self) -> bool {
        self.waiters.queues.lock().moves_place(self.channel(), self.ticket)
    }
}
