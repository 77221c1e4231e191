//! Where a refused call waits: the driver over the [`board`], which decides.
//!
//! Subscriptions live on the connection of the client's own thread (see [`crate::connection`]).
//! They could share the callers' connection; they do not, because then each runtime would need
//! its own subscription to the same channel, and a wake-up for a waiter in one runtime would
//! wait behind the blocked threads of another.
//!
//! Nothing is woken while the board's mutex is held, and it is never held across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[cfg(not(test))]
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::clock;
use crate::connection::{Link, Push};
use crate::error::ErrorKind;
use crate::protocol::Names;

mod board;
use board::{Board, Plan, Step, Ticket, Wakes};

// The same, and a place where the tests' scheduler may let another task run.
#[cfg(test)]
use tests::Mutex;

/// After a subscription failed, the next try.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(1);

/// Everybody of one client who waits for a lock.
#[derive(Default)]
pub(crate) struct Waiters {
    board: Mutex<Board>,
    /// The driver has something to tell Redis.
    changed: Notify,
    /// The number of the connection that has the subscriptions.
    on: AtomicU64,
}

/// How long to wait, and for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// When the wait is over; `None` for never.
    pub(crate) until: Option<Instant>,
    /// How long an outage of Redis may last.
    pub(crate) outage: Option<Duration>,
}

/// What came while parked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask Redis, and tell the place what came of it.
    Ask,
    /// The wait is over. The flag says that Redis is out of reach: nobody knows whether the lock
    /// is busy.
    TimedOut {
        in_outage: bool,
    },
    /// The outage has lasted too long.
    OutOfReach,
    Closed,
}

impl Waiters {
    /// Whether a call for this lock stands in line at once, without a try of its own: others of
    /// this client wait already, and Redis can be reached.
    pub(crate) fn stands_in_line(&self, names: &Names) -> bool {
        let board = self.board.lock();
        board.outage().is_none() && board.has_line(&names.channel)
    }

    /// Whether Redis has been out of reach for those who wait, as far as is known.
    pub(crate) fn in_outage(&self) -> bool {
        self.board.lock().outage().is_some()
    }

    /// Redis has answered a call outside the line that asked at that moment: an outage that nobody
    /// saw end is over.
    pub(crate) fn answered(&self, asked: Instant) {
        self.board.lock().answered(asked);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.board.lock().closed
    }

    /// Stands in line for a lock until the place is dropped.
    pub(crate) fn join<'a>(&'a self, names: &'a Names, left: Option<Duration>) -> Place<'a> {
        let wake = Arc::new(Notify::new());
        let now = clock::now();
        let (ticket, news) =
            self.board.lock().join(&names.channel, &names.key, left, wake.clone(), now);
        if news {
            self.changed.notify_one();
        }
        Place { waiters: self, names, wake, ticket }
    }

    /// Everybody who waits is told that the client is closed.
    pub(crate) fn close(&self) {
        let wakes = self.board.lock().close();
        notify(wakes);
        self.changed.notify_one();
    }

    /// Keeps the subscriptions as the board wants them. Ends when nothing can want any more.
    pub(crate) async fn keep_subscribed(&self, link: &Link, command_timeout: Duration) {
        loop {
            let Plan { subscribe, unsubscribe, .. } = self.changes().await;
            let wire = link.subscriber().await;
            if self.moves_to(wire.number()) {
                continue;
            }
            let asked = clock::now();
            let deadline = asked + command_timeout;
            match link.resubscribe(&wire, &subscribe, &unsubscribe, deadline).await {
                Ok(()) => self.subscribed(&subscribe),
                Err(error) => {
                    tracing::warn!(%error, "waiters go by time alone until a subscription works");
                    self.board.lock().not_subscribed(&subscribe);
                    if error.kind() != ErrorKind::Unavailable {
                        self.answered(asked);
                        tokio::time::sleep(SUBSCRIBE_AGAIN).await;
                    }
                }
            }
        }
    }

    /// Waits until there is something to tell Redis.
    async fn changes(&self) -> Plan {
        loop {
            let plan = self.board.lock().plan(clock::now());
            if !plan.subscribe.is_empty() || !plan.unsubscribe.is_empty() {
                return plan;
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = sleep_until(plan.next) => {}
            }
        }
    }

    /// Whether the connection of that number is another one than before. Then all has to be
    /// planned again: what was subscribed on an earlier connection is not on this one.
    fn moves_to(&self, number: u64) -> bool {
        let before = self.on.swap(number, Ordering::Relaxed);
        let moves = before != 0 && before != number;
        if moves {
            self.cut();
        }
        moves
    }

    fn subscribed(&self, channels: &[Arc<str>]) {
        let wakes = self.board.lock().subscribed(channels, clock::now());
        notify(wakes);
    }

    /// Brings messages to the board. Ends with the last connection.
    pub(crate) async fn listen(&self, link: &Link, pushes: UnboundedReceiver<Push>) {
        let mut pushes = UnboundedReceiverStream::new(pushes);
        while let Some(push) = pushes.next().await {
            match push {
                Push::Message { channel } => self.message(&channel),
                Push::Cut { number } => {
                    link.forget(number);
                    self.was_cut(number);
                }
            }
        }
    }

    fn message(&self, channel: &str) {
        let wakes = self.board.lock().message(channel, clock::now());
        notify(wakes);
    }

    /// The connection of that number was cut.
    fn was_cut(&self, number: u64) {
        if number == self.on.load(Ordering::Relaxed) {
            self.cut();
        }
    }

    fn cut(&self) {
        if seeded!("cut-unnoticed") {
            return;
        }
        let wakes = self.board.lock().cut(clock::now());
        notify(wakes);
        self.changed.notify_one();
    }
}

/// A place in the line for one lock. Dropping it gives the place up, and hands on a wake-up that
/// came and was not used.
pub(crate) struct Place<'a> {
    waiters: &'a Waiters,
    names: &'a Names,
    wake: Arc<Notify>,
    ticket: Ticket,
}

impl Place<'_> {
    /// Parks until it is this waiter's turn to ask, or until there is no point in waiting.
    pub(crate) async fn next(&mut self, patience: Patience) -> Next {
        loop {
            let now = clock::now();
            let (wake_at, outage_over) = {
                let mut board = self.waiters.board.lock();
                if board.closed {
                    return Next::Closed;
                }
                let outage = board.outage();
                if patience.until.is_some_and(|until| until <= now) {
                    return Next::TimedOut { in_outage: outage.is_some() };
                }
                let outage_over =
                    outage.zip(patience.outage).and_then(|(since, most)| since.checked_add(most));
                if outage_over.is_some_and(|over| over <= now) {
                    return Next::OutOfReach;
                }
                match board.step(&self.names.channel, self.ticket, now) {
                    Step::Ask => return Next::Ask,
                    Step::Park(at) => (at, outage_over),
                }
            };
            let at = [wake_at, outage_over, patience.until].into_iter().flatten().min();
            tokio::select! {
                () = self.wake.notified() => {}
                () = sleep_until(at) => {}
            }
        }
    }

    /// Redis said that another owner has the lock, for `left` if nobody renews it.
    pub(crate) fn refused(&mut self, left: Option<Duration>) {
        let now = clock::now();
        self.waiters.board.lock().refused(&self.names.channel, self.ticket, left, now);
    }

    /// Redis could not be asked.
    pub(crate) fn unanswered(&mut self, pause: Duration) {
        let now = clock::now();
        self.waiters.board.lock().unanswered(&self.names.channel, self.ticket, pause, now);
    }

    /// The lock was granted, for `lease` if nobody renews it.
    pub(crate) fn granted(self, lease: Duration) {
        let now = clock::now();
        let channel = &self.names.channel;
        let (wakes, news) = self.waiters.board.lock().granted(channel, self.ticket, lease, now);
        notify(wakes);
        if news {
            self.waiters.changed.notify_one();
        }
        // Its drop finds that it has left already.
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let now = clock::now();
        let (wakes, news) = self.waiters.board.lock().left(&self.names.channel, self.ticket, now);
        notify(wakes);
        if news {
            self.waiters.changed.notify_one();
        }
    }
}

fn notify(wakes: Wakes) {
    for wake in wakes {
        wake.notify_one();
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => clock::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
