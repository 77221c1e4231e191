//! Requests that share a call: many names in one run of a script cost the server, and this
//! process, far less than one name each.
//!
//! 1. **Nothing waits for company.** A request on a connection with hardly any under way is sent
//!    at once, by its own task. Else it takes a seat, and what has one leaves as soon as the tasks
//!    have run that were ready to run by then. No answer is waited for, and no timer.
//! 2. **A call is short.** It carries at most [`MOST`] requests.
//! 3. **Each is judged on its own**, by the script. A call that is refused as a whole, because
//!    the user may not use one of its keys, say, is as if nobody had shared it: each request is
//!    sent again, alone.
//! 4. **A call is one sending on one connection**, and a second one if the server did not know the
//!    script: without the requests whose deadlines have passed. Sending again is up to each
//!    request, so one whose caller has gone is never sent again, nor at all if it had not left by
//!    then. What did leave is over before its undo is sent: the undo waits for the seat.
//!
//! A line belongs to a connection, so all keys of a call are on one server. In a cluster they
//! have to be in one slot, too: there a call carries those who are.
//!
//! The mutexes of the line and of a seat are never held together, and nobody is woken under one.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Arg, Cmd, RedisError, RedisResult, Script, Value};

use super::Wire;
use super::error_class::{
    ErrorClass, classify, is_ask, is_cross_node, is_forbidden, is_unknown_script,
};
use crate::clock;
use crate::turn::turn;

/// With fewer calls under way a seat would cost more than it saves.
const FEW: usize = 2;

/// So many names take about a tenth of a millisecond of the server's time.
const MOST: usize = 32;

/// How a script is called that does the work of many: which, by which name it knows this request,
/// and how many of its arguments are keys.
#[derive(Clone, Copy)]
pub(crate) struct Together {
    pub(crate) script: &'static Script,
    pub(crate) verb: &'static str,
    pub(crate) keys: usize,
    /// In a cluster only what is in one slot can be in one call.
    pub(crate) slot: Option<u16>,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Told {
    Answer(RedisResult<Value>),
    /// It has to be sent without company. The flag says whether it may have been executed.
    Alone {
        sent: bool,
    },
    /// Its deadline has passed. The flag says whether it may have been executed.
    Silence {
        sent: bool,
    },
}

/// The requests of one connection that share calls.
#[derive(Default)]
pub(super) struct Line {
    under_way: AtomicUsize,
    seats: Mutex<Vec<Arc<Seat>>>,
}

/// A request that was sent at once, while it is under way.
pub(super) struct UnderWay<'a>(&'a Line);

impl Line {
    /// The right to send a request at once, if hardly any is under way.
    pub(super) fn at_once(&self) -> Option<UnderWay<'_>> {
        if self.under_way.fetch_add(1, Ordering::Relaxed) < FEW {
            return Some(UnderWay(self));
        }
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn vacate(&self) -> Vec<Arc<Seat>> {
        std::mem::take(&mut *self.seats.lock())
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One request's place in a call.
pub(super) struct Seat {
    pub(super) cmd: Cmd,
    together: Together,
    deadline: Instant,
    state: Mutex<State>,
}

enum State {
    /// Not sent, and whoever waits for it.
    Free(Option<Waker>),
    /// On its way.
    Taken(Option<Waker>),
    /// It was never sent: the caller had gone before.
    Left,
    /// `None` if the caller has heard it.
    Over(Option<Told>),
}

impl Seat {
    fn new(cmd: Cmd, together: Together, deadline: Instant) -> Self {
        Self { cmd, together, deadline, state: Mutex::new(State::Free(None)) }
    }

    /// From here on it is sent. False if its caller has gone.
    fn take(&self) -> bool {
        let mut state = self.state.lock();
        match &mut *state {
            State::Free(waker) => {
                *state = State::Taken(waker.take());
                true
            }
            State::Left | State::Taken(_) | State::Over(_) => false,
        }
    }

    fn tell(&self, told: Told) {
        let waker = match &mut *self.state.lock() {
            State::Left | State::Over(_) => return,
            state => match std::mem::replace(state, State::Over(Some(told))) {
                State::Free(waker) | State::Taken(waker) => waker,
                State::Left | State::Over(_) => None,
            },
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The caller does not wait any longer: what has not left stays here.
    fn leave(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Free(_)) {
            *state = State::Left;
        }
    }

    fn is_over(&self) -> bool {
        matches!(*self.state.lock(), State::Left | State::Over(_))
    }

    /// Whether the request will never be sent.
    pub(super) fn is_left(&self) -> bool {
        matches!(*self.state.lock(), State::Left)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Told>> {
        // Dropped when the mutex is free again: it may be all that is left of a task.
        let _before = match &mut *self.state.lock() {
            State::Left => return Poll::Ready(None),
            State::Over(told) => return Poll::Ready(told.take()),
            State::Free(waker) | State::Taken(waker) => waker.replace(cx.waker().clone()),
        };
        Poll::Pending
    }

    /// What becomes of the request. Whoever drops this leaves the seat.
    pub(super) async fn told(&self) -> Told {
        let caller = Caller(self);
        caller.0.over().await.unwrap_or(Told::Silence { sent: true })
    }

    /// Waits until the request has been answered, or never will be. What became of it is for the
    /// first who asks.
    pub(super) async fn over(&self) -> Option<Told> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

/// A caller who waits in a seat.
struct Caller<'a>(&'a Seat);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Wire {
    /// Gives a request a seat in the next call on this connection.
    pub(super) fn seat(&self, cmd: Cmd, together: Together, deadline: Instant) -> Arc<Seat> {
        let seat = Arc::new(Seat::new(cmd, together, deadline));
        let mut seats = self.line().seats.lock();
        seats.push(seat.clone());
        if seats.len() == 1 {
            drop(seats);
            let carrier = Carrier::new(self.clone(), Vec::new());
            tokio::spawn(async move {
                turn().await;
                carrier.set_out().await;
            });
        }
        seat
    }
}

/// Whoever sends a call. If it goes away with its runtime, so do the seats.
struct Carrier {
    wire: Wire,
    /// Empty until it has set out.
    seats: Vec<Arc<Seat>>,
    has_set_out: bool,
    /// Whether what it carries may have been executed.
    sent: AtomicBool,
}

impl Carrier {
    fn new(wire: Wire, seats: Vec<Arc<Seat>>) -> Self {
        wire.line().under_way.fetch_add(1, Ordering::Relaxed);
        let has_set_out = !seats.is_empty();
        Self { wire, seats, has_set_out, sent: AtomicBool::new(false) }
    }

    /// Takes everybody who has a seat, and carries them.
    async fn set_out(mut self) {
        self.has_set_out = true;
        let mut seats = self.wire.line().vacate();
        seats.retain(|seat| seat.take());
        // In the order in which they came, as far as they are in one slot.
        seats.sort_by_key(|seat| seat.together.slot);
        while let Some(last) = seats.last() {
            let slot = last.together.slot;
            let from = seats.partition_point(|seat| seat.together.slot < slot);
            let others = seats.split_off(from.max(seats.len().saturating_sub(MOST)));
            if seats.is_empty() {
                self.seats = others;
                break;
            }
            tokio::spawn(Self::new(self.wire.clone(), others).carry());
        }
        self.carry().await;
    }

    async fn carry(mut self) {
        let Some(first) = self.seats.first() else { return };
        let script = first.together.script;
        loop {
            let Some(answer) = self.ask(script).await else { return };
            match answer {
                Err(error) if is_unknown_script(&error) && self.seats.len() > 1 => {}
                answer => return self.hand_out(answer),
            }
            self.sent.store(false, Ordering::Relaxed);
            match self.in_time(self.wire.teach(script)).await {
                None => return,
                Some(Err(error)) => return self.hand_out(Err(error)),
                // A caller who was told that its request was not executed is not in the next call.
                Some(Ok(())) => {
                    self.hush(clock::now());
                    self.seats.retain(|seat| !seat.is_over());
                }
            }
        }
    }

    /// The answer to all of them in one call. `None` if every deadline passed first.
    async fn ask(&self, script: &Script) -> Option<RedisResult<Value>> {
        let bundle;
        let cmd = match &*self.seats {
            [] => return None,
            [only] => &only.cmd,
            seats => {
                bundle = bundled(script, seats);
                &bundle
            }
        };
        self.sent.store(true, Ordering::Relaxed);
        self.in_time(self.wire.send(cmd)).await
    }

    /// Waits until the last deadline. Each seat is told when its own has passed.
    async fn in_time<T>(&self, asked: impl Future<Output = T>) -> Option<T> {
        let mut asked = pin!(asked);
        while let Some(next) = self.next_deadline() {
            match clock::timeout_at(next, &mut asked).await {
                Ok(answer) => return Some(answer),
                Err(_) => self.hush(clock::now()),
            }
        }
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.seats.iter().filter(|seat| !seat.is_over()).map(|seat| seat.deadline).min()
    }

    /// No answer, for those whose time is up.
    fn hush(&self, now: Instant) {
        for seat in self.seats.iter().filter(|seat| seat.deadline <= now) {
            seat.tell(Told::Silence { sent: self.sent.load(Ordering::Relaxed) });
        }
    }

    fn hand_out(&self, answer: RedisResult<Value>) {
        match answer {
            answer if self.seats.len() == 1 => self.seats[0].tell(Told::Answer(answer)),
            Ok(Value::Array(answers)) if answers.len() == self.seats.len() => {
                for (seat, answer) in self.seats.iter().zip(answers) {
                    seat.tell(Told::Answer(answer.extract_error()));
                }
            }
            // Each may be at another of two nodes: one that is granted where it is not yet would be
            // granted twice.
            Err(error) if is_cross_node(&error) || is_ask(&error) => {
                for seat in &self.seats {
                    seat.tell(Told::Alone { sent: false });
                }
            }
            Err(error) if matches!(classify(&error), ErrorClass::Fatal(_)) => {
                tracing::debug!(%error, "requests that shared a call are sent one by one");
                let sent = !is_forbidden(&error);
                for seat in &self.seats {
                    seat.tell(Told::Alone { sent });
                }
            }
            answer => {
                for seat in &self.seats {
                    seat.tell(Told::Answer(answer.clone()));
                }
            }
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.wire.line().under_way.fetch_sub(1, Ordering::Relaxed);
        // Everybody has been told by now, unless the runtime ends.
        for seat in &self.seats {
            seat.tell(Told::Answer(Err(ended())));
        }
        if !self.has_set_out {
            for seat in self.wire.line().vacate() {
                seat.tell(Told::Alone { sent: false });
            }
        }
    }
}

fn ended() -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the runtime of a shared call has ended").into()
}

/// One command that does what many do: their keys, then what to do for each, and its arguments.
fn bundled(script: &Script, seats: &[Arc<Seat>]) -> Cmd {
    // Behind the verb, the digest and the number of keys.
    const FROM: usize = 3;
    let mut cmd = Cmd::with_capacity(FROM + 7 * seats.len(), 256 * seats.len());
    let keys: usize = seats.iter().map(|seat| seat.together.keys).sum();
    cmd.arg("EVALSHA").arg(script.get_hash()).arg(keys);
    for Seat { cmd: one, together, .. } in seats.iter().map(|seat| &**seat) {
        push(&mut cmd, one.args_iter().skip(FROM).take(together.keys));
    }
    for Seat { cmd: one, together, .. } in seats.iter().map(|seat| &**seat) {
        cmd.arg(together.verb);
        push(&mut cmd, one.args_iter().skip(FROM + together.keys));
    }
    cmd
}

fn push<'a>(cmd: &mut Cmd, args: impl Iterator<Item = Arg<&'a [u8]>>) {
    for arg in args {
        if let Arg::Simple(arg) = arg {
            cmd.arg(arg);
        }
    }
}
