//! What there is: the key, three clients, and what is on its way between them.
//!
//! A state is as small as it can be, because all of them are visited. Time is not counted: see
//! [`Term`].

/// For how long one grant is believed, without a clock.
///
/// A deadline counts from before its request was sent and the server's TTL from when the script
/// ran, and the deadline has a margin on top. So whatever the figures are, *the deadline of a term
/// passes before a TTL ends that was set for this term*. That is the one assumption about clocks, and
/// `covered` says whether it speaks of this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term {
    /// The deadline has not passed, and no answer has said that the hold is gone.
    pub(super) believed: bool,
    /// The key's TTL reaches beyond the deadline.
    pub(super) covered: bool,
}

/// The hash: one field, that of a client's possession, and a TTL or (never) none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) client: u8,
    pub(super) has_ttl: bool,
}

/// A script's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    Acquire,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reply {
    Granted(Term),
    Refused,
    /// Whether or not there was a hold.
    Released,
}

/// A request that its sender waits for, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InFlight {
    /// An acquire that was dropped is on the connection before this, its undo.
    pub(super) ahead: bool,
    pub(super) request: Request,
    /// `None`: on its way to the server.
    pub(super) reply: Option<Reply>,
    /// An earlier sending was never answered.
    pub(super) repeated: bool,
    /// It undoes an acquire that was dropped.
    pub(super) undo: bool,
    /// A fault is meant to come before it is answered, and has been counted.
    pub(super) slow: bool,
}

impl InFlight {
    pub(super) fn new(request: Request) -> Self {
        Self { ahead: false, request, reply: None, repeated: false, undo: false, slow: false }
    }
}

/// The call that a user of the client awaits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Call {
    #[default]
    None,
    /// The first try.
    Trying,
    Parked,
    /// Parked before, and asking again.
    Asking {
        by_time: bool,
    },
}

/// A subscription, as the wait queues and the server together know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Subscription {
    #[default]
    Off,
    /// SUBSCRIBE, or its answer, is on its way.
    Asked,
    Live,
}

/// Why no message woke a waiter of a free lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Missed {
    #[default]
    Nothing,
    /// An expiry publishes nothing.
    Expiry,
    Message,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Health {
    #[default]
    Up,
    Crashed {
        holding: bool,
    },
}

/// One client: a process with one handle that locks once, and its two connections. The callers'
/// connection carries [`Client::in_flight`], the connection of its own thread the subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Client {
    pub(super) health: Health,
    /// It has yet to call.
    pub(super) calls: bool,
    pub(super) call: Call,

    // What the client knows of its possession (`src/possession.rs`).
    pub(super) hold: Option<Term>,
    /// Redis may have the possession.
    pub(super) counted: bool,
    /// The background is to release what is pending.
    pub(super) to_release: bool,

    // On the callers' connection.
    pub(super) in_flight: Option<InFlight>,
    /// Requests of a client that has crashed, which the server may still get.
    pub(super) late: [Option<Request>; 2],

    // On the connection of its own thread.
    pub(super) subscription: Subscription,
    /// A message is on its way. Two count as one: who asks for the first knows of both.
    pub(super) message: bool,

    // Its waiter (`src/wait/queue.rs`).
    /// To ask at once.
    pub(super) again: bool,
    /// The lease of which the last refusal spoke has ended or was changed, so its end, as the
    /// waiter knows it, comes.
    pub(super) due: bool,
    pub(super) missed: Missed,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct State {
    pub(super) key: Option<Key>,
    pub(super) clients: [Client; 3],
    /// Faults that may still happen.
    pub(super) faults: u8,
}

impl Client {
    pub(super) fn new(calls: bool) -> Self {
        Self { calls, ..Self::default() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.health == Health::Up
    }

    pub(super) fn believes(&self) -> bool {
        self.hold.is_some_and(|term| term.believed)
    }

    /// `HoldState::pending`: Redis may have a possession that no guard believes in.
    pub(super) fn is_pending(&self) -> bool {
        self.counted && !self.believes()
    }

    pub(super) fn leave_queue(&mut self) {
        (self.call, self.subscription, self.missed) = Default::default();
        (self.message, self.again, self.due) = Default::default();
    }

    /// Redis has refused it and will not be asked again before something has changed.
    pub(super) fn waits_for_a_change(&self) -> bool {
        let reply = self.in_flight.and_then(|in_flight| in_flight.reply);
        self.call == Call::Parked || reply == Some(Reply::Refused)
    }

    /// Terms that a TTL may cover: of a guard, and of a grant on its way back.
    pub(super) fn terms(&mut self) -> impl Iterator<Item = &mut Term> {
        let reply = self.in_flight.as_mut().and_then(|in_flight| in_flight.reply.as_mut());
        let granted = reply.and_then(|reply| match reply {
            Reply::Granted(term) => Some(term),
            _ => None,
        });
        self.hold.iter_mut().chain(granted)
    }

    /// Something that was sent by a client which has crashed.
    pub(super) fn add_late(&mut self, request: Request) {
        let free = self.late.iter_mut().find(|late| late.is_none());
        *free.expect("BUG: more late requests than a crash can leave") = Some(request);
    }

    pub(super) fn pop_late(&mut self) -> Option<Request> {
        let first = self.late[0].take();
        self.late.rotate_left(1);
        first
    }
}

impl State {
    /// Each waiter learns, in its own time, that the lease has changed of which its refusal
    /// spoke.
    pub(super) fn lease_changed(&mut self) {
        for client in &mut self.clients {
            client.due |= client.waits_for_a_change();
        }
    }

    pub(super) fn is_of(&self, client: usize) -> bool {
        self.key.is_some_and(|key| usize::from(key.client) == client)
    }
}
