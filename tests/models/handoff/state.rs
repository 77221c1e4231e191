//! What there is: the lock's hash, two clients with their owners, and what is under way.
//!
//! Whatever tells one owner from another is in its [`Owner`], its field in the hash and its
//! places in the queues included. So owners that are the same are interchangeable, and so are
//! clients: a state is sorted, and all orders of them are one state.

use std::hash::{Hash, Hasher};

/// The owners of one client. One without calls is as good as none.
pub(crate) const OWNERS: usize = 4;

/// How long a hold is valid, without a clock.
///
/// A deadline counts from before its request was sent and the server's TTL from when the script
/// ran, and the deadline has a margin on top. So *a deadline passes before a TTL ends that was
/// set later for a lease at least as long*. A hold that was handed off and is not confirmed is
/// valid no longer than any hold before it in the handoff queue: `long` is the shortest lease of
/// those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// A lease that bounds its deadline is long, or all are short.
    pub(crate) long: bool,
    /// The deadline has not passed, and Redis has not reported that the hold is gone.
    pub(crate) valid: bool,
    /// The key's TTL reaches beyond the deadline.
    pub(crate) covered: bool,
    /// Redis has confirmed it.
    pub(crate) confirmed: bool,
    /// Its guard has gone.
    pub(crate) leaving: bool,
}

/// The call that a user of the owner awaits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Call {
    #[default]
    None,
    /// The first try, outside the wait queue.
    Trying,
    Waiting,
    /// The head of the wait queue has a request under way.
    Asking,
    /// A waiter has the lock, by a hand-off, and may not have noticed yet.
    Handed,
    /// Not of the library: such a waiter was dropped, and what it had is not away yet.
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted(Hold),
    Refused,
    Released,
    /// The owner held nothing.
    Nothing,
}

/// A request for one owner. The owner's exchange permit is taken meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    /// An acquire that was dropped is on the connection before this, its undo.
    pub(crate) ahead: bool,
    /// `None`: on its way to the server.
    pub(crate) reply: Option<Reply>,
    /// A fault is meant to meet it, and has been counted.
    pub(crate) slow: bool,
}

/// A handle. Its permit is free if it has no exchange and is not in the handoff queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The lease of its calls.
    pub(crate) long: bool,
    /// Calls that it may still begin.
    pub(crate) calls: u8,
    pub(crate) call: Call,
    pub(crate) hold: Option<Hold>,
    /// Redis may count a hold for it.
    pub(crate) server: bool,
    /// A release or a hand-off of its hold was queued or sent, and Redis has not confirmed it.
    pub(crate) freeing: bool,
    /// The background has a release to send.
    pub(crate) pending: bool,
    pub(crate) exchange: Option<Exchange>,
    /// Its place in the client's wait queue, from one; zero if it is not there.
    pub(crate) place: u8,
    /// The same in the client's handoff queue. The first has the lock in Redis.
    pub(crate) queued: u8,
    /// It has a field in the hash.
    pub(crate) field: bool,
    /// Requests on a stale connection, which the server may still execute.
    pub(crate) late_acquire: bool,
    pub(crate) late_release: bool,
    /// Its place in a hand-off that is on a stale connection.
    pub(crate) late_handoff: u8,
}

/// The hand-off that is under way: the first steps of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) steps: u8,
    /// Whether Redis found an owner that had the lock. `None`: on its way to the server.
    pub(crate) done: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) up: bool,
    pub(crate) owners: [Owner; OWNERS],

    pub(crate) sent: Option<Sent>,
    /// Steps of the longest hand-off that was sent and not answered.
    pub(crate) unanswered: u8,
    /// Not of the library: one of those was executed.
    pub(crate) executed: bool,

    // The wait queue. A client that waits is subscribed.
    /// The head asks at once.
    pub(crate) wake: bool,
    /// The lease that the head knows of has ended or was changed, so the time at which it asks
    /// by itself comes.
    pub(crate) due: bool,
    /// The subscription outlives the last waiter: the next call may join the queue without a try.
    pub(crate) lingers: bool,
    /// A lease ended, which publishes nothing.
    pub(crate) expired: bool,
    /// Not of the library: this client was the last to release, after hand-offs.
    pub(crate) ran: bool,
    /// All of the above, as it was [sorted](Self::sort).
    pub(crate) bits: ([u64; OWNERS], u64),
}

/// What the hash has beside its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) has_ttl: bool,
    /// The lease that set the TTL.
    pub(crate) long: bool,
    /// Not of the library: it was handed off.
    pub(crate) handed: bool,
    /// Not of the library: a waiter has it that another client released it to, after hand-offs.
    pub(crate) after_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) key: Option<Key>,
    pub(crate) clients: [Client; 2],
    /// Faults that may still happen.
    pub(crate) faults: u8,
    /// Not of the library: an owner was reported lost whose hand-off was executed.
    pub(crate) false_loss: bool,
}

impl Owner {
    /// It has a hold that its user relies on.
    pub(crate) fn relies(&self) -> bool {
        self.hold.is_some_and(|hold| hold.valid && !hold.leaving)
    }

    pub(crate) fn holds(&self) -> bool {
        self.hold.is_some_and(|hold| !hold.leaving)
    }

    /// `Account::owed`.
    pub(crate) fn owes(&self) -> bool {
        self.server && !self.relies()
    }

    /// `Account::released`.
    pub(crate) fn released(&mut self) {
        self.server = false;
        self.freeing = false;
        self.hold = self.hold.filter(|hold| !hold.leaving);
    }

    /// `Account::gone`.
    pub(crate) fn gone(&mut self) {
        self.server = false;
        self.freeing = false;
        self.hold = None;
    }

    /// The hold, granted already or on its way back.
    pub(crate) fn holds_mut(&mut self) -> impl Iterator<Item = &mut Hold> {
        let reply = self.exchange.as_mut().and_then(|exchange| exchange.reply.as_mut());
        let granted = reply.and_then(|reply| match reply {
            Reply::Granted(hold) => Some(hold),
            _ => None,
        });
        self.hold.iter_mut().chain(granted)
    }

    pub(crate) fn is_late(&self) -> bool {
        self.late_acquire || self.late_release || self.late_handoff > 0
    }
}

impl Client {
    /// The wait queue's first.
    pub(crate) fn head(&self) -> Option<usize> {
        self.owners.iter().position(|owner| owner.place == 1)
    }

    pub(crate) fn waiting(&self) -> u8 {
        self.owners.iter().map(|owner| owner.place).max().unwrap_or(0)
    }

    pub(crate) fn in_handoff(&self) -> u8 {
        self.owners.iter().map(|owner| owner.queued).max().unwrap_or(0)
    }

    /// Who has that place in the handoff queue.
    pub(crate) fn queued(&self, place: u8) -> Option<usize> {
        self.owners.iter().position(|owner| place > 0 && owner.queued == place)
    }

    pub(crate) fn is_late(&self) -> bool {
        self.owners.iter().any(Owner::is_late)
    }

    pub(crate) fn has_field(&self) -> bool {
        self.owners.iter().any(|owner| owner.field)
    }

    pub(crate) fn join(&mut self, o: usize) {
        self.owners[o].place = self.waiting() + 1;
        self.owners[o].call = Call::Waiting;
    }

    pub(crate) fn leave(&mut self, o: usize) {
        let place = std::mem::take(&mut self.owners[o].place);
        let behind = |owner: &&mut Owner| place > 0 && owner.place > place;
        self.owners.iter_mut().filter(behind).for_each(|owner| owner.place -= 1);
    }

    /// The server has closed the stale connections: what it has not executed it never will.
    pub(crate) fn close_stale(&mut self) {
        for owner in &mut self.owners {
            (owner.late_acquire, owner.late_release, owner.late_handoff) = (false, false, 0);
        }
    }
}

impl State {
    /// Every client that waits learns, in its own time, that the lease has changed.
    pub(crate) fn lease_changed(&mut self) {
        for client in &mut self.clients {
            client.due |= client.waiting() > 0 || client.lingers;
        }
    }
}

// What tells states apart, in few numbers, because a state is sorted and hashed for every
// transition.

fn flag(flag: bool, at: u32) -> u64 {
    u64::from(flag) << at
}

impl Hold {
    /// 6 bits.
    fn bits(self) -> u64 {
        let state = flag(self.long, 0) | flag(self.valid, 1) | flag(self.covered, 2);
        state | flag(self.confirmed, 3) | flag(self.leaving, 4) | flag(true, 5)
    }
}

impl Exchange {
    /// 12 bits.
    fn bits(self) -> u64 {
        let reply = match self.reply {
            None => 1,
            Some(Reply::Granted(hold)) => 2 | hold.bits() << 3,
            Some(Reply::Refused) => 3,
            Some(Reply::Released) => 4,
            Some(Reply::Nothing) => 5,
        };
        let release = matches!(self.request, Request::Release);
        reply | flag(release, 9) | flag(self.ahead, 10) | flag(self.slow, 11)
    }
}

impl Owner {
    pub(crate) fn bits(&self) -> u64 {
        let hold = match self.hold {
            Some(hold) => hold.bits(),
            None => 0,
        };
        let exchange = match self.exchange {
            Some(exchange) => exchange.bits(),
            None => 0,
        };
        let late = u64::from(self.late_handoff) << 27
            | flag(self.late_acquire, 30)
            | flag(self.late_release, 31);
        hold | exchange << 6
            | u64::from(self.place) << 18
            | u64::from(self.queued) << 21
            | u64::from(self.calls) << 24
            | late
            | (self.call as u64) << 32
            | flag(self.long, 35)
            | flag(self.server, 36)
            | flag(self.freeing, 37)
            | flag(self.pending, 38)
            | flag(self.field, 39)
    }
}

impl Client {
    /// Owners that are the same are interchangeable.
    pub(crate) fn sort(&mut self) {
        let mut bits = self.owners.map(|owner| owner.bits());
        for last in (1..OWNERS).rev() {
            for at in 0..last {
                if bits[at] > bits[at + 1] {
                    bits.swap(at, at + 1);
                    self.owners.swap(at, at + 1);
                }
            }
        }
        let sent = match self.sent {
            None => 0,
            Some(Sent { steps, done: None }) => 1 | u64::from(steps) << 2,
            Some(Sent { steps, done: Some(done) }) => 2 | u64::from(done) | u64::from(steps) << 2,
        };
        let rest = sent
            | u64::from(self.unanswered) << 5
            | flag(self.executed, 8)
            | flag(self.wake, 9)
            | flag(self.due, 10)
            | flag(self.lingers, 11)
            | flag(self.expired, 12)
            | flag(self.ran, 13)
            | flag(self.up, 14);
        self.bits = (bits, rest);
    }
}

impl Hash for Client {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.bits.hash(hasher);
    }
}
