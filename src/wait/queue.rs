//! The waiters of one client for one lock: pure state.
//!
//! 1. **Only the head asks Redis.** The others wait behind it in the order in which they came, and cost Redis nothing.
//! 2. **Subscribe, ask again, then park.** A head asks at once, and again as soon as its channel has become
//!    live, also after a cut. Before that it relies on no message, only on its due time.
//! 3. **A wake-up is a notification to the queue**, not to the waiter that it woke. If that one leaves before it has
//!    asked, or while it asks, the next one asks at once. What comes while a request is under way is kept with the
//!    request ([`Request::again_at`](call::Request)), because the answer may be older.
//! 4. A parked head is due when the holder's lease could have ended, and never later than [`LONGEST_PARK`], since a
//!    message can get lost. A lease that gets shorter moves the due time: another client announces it by a message.
//! 5. When this client defers to others, the head asks only when they have had their turns: the [`Order`] knows. A call
//!    that comes meanwhile, and whose wait ends before that, asks in the middle of its wait.
//! 6. A lock that is handed off inside the client goes to the head of its queue. A head that is asking Redis cannot
//!    take it; while it asks for the first two times, the waiter behind it can. The next head learns when it is due only
//!    after a request to Redis ([`WaitQueue::record_heard_hand_off`]), if the new lease is longer than that takes.
//! 7. **A call that is never polled again holds up no other with its first request.** After the [`first_request_limit`] of
//!    the queue the waiter behind it is the head, until that request is over. A waiter sets the timer for that when it
//!    parks, if the one before it is asking then.
//!
//! [`LONGEST_PARK`]: super::change::LONGEST_PARK
//! [`first_request_limit`]: WaitQueue::first_request_limit

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::change::{Context, EntryTicket, Holder, NextWaiter, Stay, Ticket, WaitStep};
use super::order::{Order, ShortWait};
use super::reach::Reach;
mod call;
mod handoff;
mod readers;
mod waiting;
use call::{QueuedCall, Request};

pub(super) struct WaitQueue<W> {
    /// The calls that wait, in the order of their tickets.
    calls: VecDeque<QueuedCall<W>>,
    /// How many of these calls are asking: the head, as a rule, or none.
    asking: usize,
    /// When the head asks next.
    due: Instant,
    /// What a hand-off set `due` to, or the request by which Redis heard of one since: what Redis hears next replaces
    /// it.
    due_of_hand_off: Option<Instant>,
    /// The waiter that came while this client defers to others, until it asks.
    short_wait: Option<(Ticket, ShortWait)>,
    pub(super) order: Order,
    pub(super) reach: Reach,
    pub(super) holder: Option<Holder>,
    /// How long the first request of a waiter may keep those behind it from asking.
    first_request_limit: Duration,
}

impl<W> WaitQueue<W> {
    pub(super) fn new(order: Order, first_request_limit: Duration, now: Instant) -> Self {
        let reach = Reach::Unknown(now);
        Self {
            calls: VecDeque::new(),
            asking: 0,
            due: now,
            due_of_hand_off: None,
            short_wait: None,
            order,
            reach,
            holder: None,
            first_request_limit,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.position(ticket).is_ok()
    }

    pub(super) fn waiters(&self) -> impl Iterator<Item = &Arc<W>> {
        self.calls.iter().filter_map(|call| call.waiter.as_ref())
    }

    /// The waiter with that ticket, if it can be woken.
    pub(super) fn waiter(&self, ticket: Ticket) -> Option<&Arc<W>> {
        self.calls.get(self.position(ticket).ok()?)?.waiter.as_ref()
    }

    /// Adds a waiter behind those with a lower ticket. `is_live`: the channel is live.
    pub(super) fn join(
        &mut self,
        ticket: Ticket,
        waiter: Option<Arc<W>>,
        Stay { since, until }: Stay,
        is_live: bool,
        cx: &mut Context<W>,
    ) {
        let now = cx.at.now;
        if self.calls.is_empty() {
            if !is_live {
                self.reach = Reach::Unknown(now);
            }
            // In an outage no message comes.
            let known = (is_live && !self.reach.in_outage(now)).then_some(self.due);
            self.due = self.order.first_asks_at(known, now);
            self.short_wait = self.order.short_wait(until, now).map(|wait| (ticket, wait));
            self.due_of_hand_off = None;
        } else if self.reach.in_outage(now)
            && self.head(now).is_some_and(|head| head.asking.is_none())
        {
            // A call that begins in an outage has a try, like any other.
            self.ask_at(now, cx);
        }
        let call = QueuedCall { ticket, since, waiter, asking: None, requests: 0 };
        let (Ok(at) | Err(at)) = self.position(ticket);
        self.calls.insert(at, call);
        cx.waiting += 1;
        if at + 1 < self.calls.len() && self.is_head(ticket, now) {
            self.ask_now(cx); // What was known was for the head before it.
        }
    }

    /// A waiter parks: from here on it can be woken.
    pub(super) fn park(&mut self, ticket: Ticket, waiter: &Arc<W>) {
        if let Some(call) = self.call(ticket) {
            call.waiter.get_or_insert_with(|| waiter.clone());
        }
    }

    pub(super) fn step(&mut self, ticket: Ticket, now: Instant) -> WaitStep {
        let short = self.short_wait.filter(|(short, _)| *short == ticket);
        let due = short.map_or(self.due, |(_, wait)| wait.due(self.due));
        if !self.is_head(ticket, now) {
            let before = self.before(ticket).next_back();
            let passed_at = before.and_then(QueuedCall::first_request);
            let passed_at = passed_at.map(|asking| asking + self.first_request_limit);
            return WaitStep::Park(passed_at.filter(|at| *at > now));
        }
        let Some(call) = self.call(ticket).filter(|call| call.asking.is_none()) else {
            return WaitStep::Park(None);
        };
        if due > now {
            return WaitStep::Park(Some(due));
        }
        call.asking = Some(Request { sent: now, again_at: None });
        self.short_wait = self.short_wait.filter(|(short, _)| *short != ticket);
        self.asking += 1;
        self.order.set_entry_asked_for(true);
        WaitStep::Ask
    }

    /// Redis refused that waiter; the holder's lease could end after `remaining`.
    pub(super) fn record_refusal(
        &mut self,
        ticket: Ticket,
        remaining: Option<Duration>,
        cx: &mut Context<W>,
    ) {
        let now = cx.at.now;
        let was_passed = self.position(ticket).is_ok_and(|at| self.is_passed(&self.calls[at], now));
        let again_at = self.record_answer(ticket, cx);
        let due = self.order.record_refusal(remaining, now);
        // Redis may have taken its request for late, and so the entry is not that of this one.
        let is_its_own = self.order.brought().is_some_and(|(waiter, _)| waiter == ticket);
        let asks = was_passed && !is_its_own && self.order.is_queue_of_redis();
        let due = if asks { now } else { due };
        if self.is_head(ticket, now) {
            self.due = again_at.into_iter().fold(due, Instant::min);
        }
    }

    /// Redis did not answer that waiter, which asks again after `pause` or on a new connection. False if it
    /// joined, at `joined`, when Redis was silent already: then it does not wait for the end of that.
    pub(super) fn record_failure(
        &mut self,
        ticket: Ticket,
        joined: Instant,
        pause: Duration,
        cx: &mut Context<W>,
    ) -> bool {
        let now = cx.at.now;
        if self.reach.record_failure(now) {
            // Those that do not ask had no limit until now.
            cx.effects.wake.extend(self.waiters().cloned());
        }
        let again_at = self.end_request(ticket).and_then(|request| request.again_at);
        if self.is_head(ticket, now) {
            self.due = again_at.into_iter().fold(now + pause, Instant::min);
        }
        !self.reach.is_silent_since(joined)
    }

    /// The waiter with that ticket has the lock, for `lease` unless the lease is renewed, and leaves.
    pub(super) fn record_grant(&mut self, ticket: Ticket, lease: Duration, cx: &mut Context<W>) {
        if !self.has(ticket) {
            return;
        }
        let again_at = self.record_answer(ticket, cx);
        let recheck = again_at.is_some_and(|at| at <= cx.at.now);
        self.due = self.order.record_grant(lease, recheck, &mut cx.at);
        let was_head = self.is_head(ticket, cx.at.now);
        self.remove(ticket, cx);
        if !was_head {
            // It came in front of this one, and has no newer answer.
            self.ask_at(self.due, cx);
        }
    }

    /// The waiter leaves without the lock. False if it has left already. `hinders`: the next one may have it now.
    pub(super) fn leave(&mut self, ticket: Ticket, hinders: bool, cx: &mut Context<W>) -> bool {
        let Some(call) = self.call(ticket) else { return false };
        let had_to_ask = hinders || call.asking.is_some();
        if self.is_head(ticket, cx.at.now) && had_to_ask {
            self.due = self.order.deferred_until(cx.at.now).unwrap_or(cx.at.now);
        }
        self.remove(ticket, cx);
        true
    }

    /// If that was the head, the reason to ask is that of the new one. If it was to look when the first request of the one
    /// before it takes too long, the one behind it looks now.
    fn remove(&mut self, ticket: Ticket, cx: &mut Context<W>) {
        let was_head = self.is_head(ticket, cx.at.now);
        if let Ok(at) = self.position(ticket) {
            let gone = self.calls.remove(at);
            let before = at.checked_sub(1).and_then(|before| self.calls.get(before));
            if before.is_some_and(|before| before.first_request().is_some()) {
                let behind = self.calls.get(at).and_then(|behind| behind.waiter.clone());
                cx.effects.wake.extend(behind);
            }
            self.asking -= usize::from(gone.is_some_and(|gone| gone.asking.is_some()));
            cx.waiting -= 1;
        }
        if was_head {
            self.ask_at(self.due, cx);
        }
    }

    /// A message came, which says to ask `after` that time.
    pub(super) fn record_message(&mut self, after: Duration, cx: &mut Context<W>) {
        let due = self.order.record_message(after, self.due, &cx.at);
        self.ask_at(due, cx);
    }

    /// The channel is live: the head asks now (invariant 2), unless this client defers.
    pub(super) fn record_subscribed(&mut self, cx: &mut Context<W>) {
        self.record_reached(cx.at.now, cx);
        self.ask_now(cx);
    }

    /// The client is not subscribed any more, if it `was`.
    pub(super) fn record_unsubscribed(&mut self, was: bool, cx: &mut Context<W>) {
        if self.order.record_unsubscribed(was) {
            self.ask_at(cx.at.now, cx);
        }
    }

    /// The connection was cut on which this client was subscribed, if it `was`.
    pub(super) fn record_cut(&mut self, was: bool, cx: &mut Context<W>) {
        if !self.calls.is_empty() {
            self.reach.record_failure(cx.at.now);
            cx.effects.wake.extend(self.waiters().cloned());
        }
        self.record_unsubscribed(was, cx);
    }

    /// The head asks, except where this client defers to others.
    pub(super) fn ask_now(&mut self, cx: &mut Context<W>) {
        let deferral = self.order.deferred_until(cx.at.now);
        self.ask_at(deferral.unwrap_or(cx.at.now), cx);
    }

    /// The head asks at `due`. If its request is under way, or that of another one, which may be the head by then, the
    /// answer may be older than the reason.
    pub(super) fn ask_at(&mut self, due: Instant, cx: &mut Context<W>) {
        let now = cx.at.now;
        self.due = due;
        let asking = self.calls.iter_mut().filter(|call| call.asking.is_some());
        asking.take(self.asking).for_each(|call| call.asks_again_at(due, now));
        cx.effects.wake.extend(self.head(now).and_then(|head| head.waiter.clone()));
    }

    /// The next caller, if no waiter is left, asks at `due`.
    pub(super) fn ask_if_empty_at(&mut self, due: Instant) {
        if self.calls.is_empty() {
            self.due = due;
        }
    }

    /// The next waiter for a lock that this client has (invariant 6).
    pub(super) fn next_waiter(&self, now: Instant) -> Option<NextWaiter<'_, W>> {
        let mut counting = self.counting(now);
        let head = counting.next()?;
        let passes = self.order.lets_pass() && head.can_be_passed();
        let next = if passes { counting.next()? } else { head };
        let waiter = next.waiter.as_ref().filter(|_| next.asking.is_none())?;
        Some(NextWaiter { ticket: next.ticket, waiter, passes })
    }

    /// The waiter that stands for this client in a queue that Redis keeps, or the one `behind` it, and when it came.
    pub(super) fn oldest(&self, behind: bool, now: Instant) -> Option<(Ticket, Instant)> {
        let call = self.counting(now).nth(usize::from(behind))?;
        Some((call.ticket, call.since))
    }

    /// Whether an entry in the queue that Redis keeps is left with no waiter. From here on there is none.
    pub(super) fn gives_entry_up(&mut self) -> bool {
        self.is_empty() && self.order.own_entry().is_some_and(|own| own.set_asked_for(false))
    }

    /// A ticket that no entry exceeds that is to be given up, of all up to `last`. `None` if a waiter has asked for one.
    pub(super) fn last_to_leave(&self, last: EntryTicket) -> Option<EntryTicket> {
        // A waiter that has yet to ask has one if the request about a hand-off to the one before has brought it.
        let stays = self.order.brought().filter(|(waiter, _)| self.has(*waiter));
        (!self.order.has_entry()).then_some(stays.map_or(last, |(_, ticket)| ticket - 1))
    }

    /// The client closes. `Some` if its entry in a queue that Redis keeps is to be given up: the head, if that has parked.
    pub(super) fn close(&mut self, now: Instant) -> Option<Option<Arc<W>>> {
        let has_entry = self.order.has_entry();
        self.order.set_entry_asked_for(has_entry && self.asks_first());
        has_entry.then(|| self.head(now).and_then(|head| head.waiter.clone()))
    }

    /// Whether there is nothing in it that has to be remembered.
    pub(super) fn is_unused(&self, now: Instant) -> bool {
        self.calls.is_empty() && self.order.is_forgotten(now)
    }

    pub(super) fn head_asks(&self, now: Instant) -> bool {
        self.head(now).is_some_and(|head| head.asking.is_some())
    }

    /// The waiters, without those at the front whose first request has taken too long (invariant 7).
    fn counting(&self, now: Instant) -> impl Iterator<Item = &QueuedCall<W>> {
        self.calls.iter().skip_while(move |call| self.is_passed(call, now))
    }

    fn is_passed(&self, call: &QueuedCall<W>, now: Instant) -> bool {
        call.first_request().is_some_and(|asking| asking + self.first_request_limit <= now)
    }

    fn head(&self, now: Instant) -> Option<&QueuedCall<W>> {
        self.counting(now).next()
    }

    pub(super) fn is_head(&self, ticket: Ticket, now: Instant) -> bool {
        self.before(ticket).all(|before| self.is_passed(before, now))
    }

    fn before(&self, ticket: Ticket) -> impl DoubleEndedIterator<Item = &QueuedCall<W>> {
        let (Ok(at) | Err(at)) = self.position(ticket);
        self.calls.range(..at)
    }

    fn position(&self, ticket: Ticket) -> Result<usize, usize> {
        self.calls.binary_search_by_key(&ticket, |call| call.ticket)
    }

    fn call(&mut self, ticket: Ticket) -> Option<&mut QueuedCall<W>> {
        let at = self.position(ticket).ok()?;
        self.calls.get_mut(at)
    }

    /// Redis has answered a request, sent at `asked_at`. If that ends a silence, the waiters have other limits.
    pub(super) fn record_reached(&mut self, asked_at: Instant, cx: &mut Context<W>) {
        if self.reach.record_answer(asked_at) && self.calls.len() > 1 {
            cx.effects.wake.extend(self.waiters().cloned());
        }
    }

    /// The request of that waiter is over.
    fn end_request(&mut self, ticket: Ticket) -> Option<Request> {
        let request = self.call(ticket)?.end_request()?;
        self.asking -= 1;
        Some(request)
    }

    /// Redis has answered the request of that waiter. Returns when there is a reason to ask that may be newer.
    fn record_answer(&mut self, ticket: Ticket, cx: &mut Context<W>) -> Option<Instant> {
        let Request { sent, again_at } = self.end_request(ticket)?;
        cx.at.times.record_answer(cx.at.now.saturating_duration_since(sent));
        self.record_reached(sent, cx);
        again_at
    }
}
