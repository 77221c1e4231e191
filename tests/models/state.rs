//! What there is: the key, three clients, and what is on its way between them.
//!
//! A state is as small as it can be, because all of them are visited. Time is not counted: see
//! [`Term`].

/// A lease, as far as it matters which of two is the longer and who is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lease {
    pub(crate) watched: bool,
    pub(crate) long: bool,
}

/// For how long one grant is believed, without a clock.
///
/// A deadline counts from before its request was sent and the server's TTL from when the script
/// ran, and the deadline has a margin on top. So whatever the figures are, *the deadline of a term
/// passes before a TTL ends that was set for this term, or for one as long that began later*.
/// That is the one assumption about clocks, and `covered` says whether it speaks of this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term {
    pub(crate) lease: Lease,
    /// The deadline has not passed, and no answer has said that the hold is gone.
    pub(crate) believed: bool,
    /// The key's TTL reaches beyond the deadline.
    pub(crate) covered: bool,
}

/// The hash: one field, and a TTL or (never) none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// The field: a client has one handle, whose number never changes but under one remedy.
    pub(crate) client: u8,
    pub(crate) number: u8,
    pub(crate) count: u8,
    pub(crate) has_ttl: bool,
}

/// A script's call. `number` is the owner's, next to the client that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire {
        number: u8,
        count: u8,
        lease: Lease,
    },
    /// `promise` is the longest lease of a hold that stays.
    Release {
        number: u8,
        count: u8,
        promise: Option<Lease>,
    },
    Renew {
        number: u8,
        lease: Lease,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    Granted(Term),
    Refused,
    Gone,
    /// Of a release: the owner held nothing.
    Nothing,
    /// Of a release: fewer holds, or none, are left.
    Released,
    Renewed,
    NotRenewed,
}

/// A request that its sender waits for, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InFlight {
    /// An acquire that was given up and is on the connection before this, its undo.
    pub(crate) ahead: Option<Request>,
    pub(crate) request: Request,
    /// `None`: on its way to the server.
    pub(crate) reply: Option<Reply>,
    /// An earlier sending was never answered.
    pub(crate) repeated: bool,
    /// It undoes an acquire that was given up.
    pub(crate) undo: bool,
    /// A fault is meant to come before it is answered, and has been counted.
    pub(crate) slow: bool,
}

/// The call that a user of the client awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subscription {
    Off,
    /// SUBSCRIBE, or its answer, is on its way.
    Asked,
    Live,
}

/// Why no message woke a waiter of a free lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Missed {
    Nothing,
    /// An expiry publishes nothing.
    Expiry,
    Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Health {
    Up,
    Crashed { holding: bool },
}

/// One client: a process with one handle, and its two connections. The callers' connection
/// carries [`Client::in_flight`], the connection of its own thread renewals and the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) health: Health,
    /// Calls and renewals that it may still begin.
    pub(crate) calls: u8,
    pub(crate) renewals: u8,
    pub(crate) call: Call,

    // What the client knows of its holds (`src/possession.rs`).
    pub(crate) number: u8,
    pub(crate) live: [Option<Term>; 2],
    /// The highest count that Redis may hold for it.
    pub(crate) server: u8,
    /// A release of everything was sent and never answered.
    pub(crate) freeing: bool,
    /// The background is to release what is pending.
    pub(crate) to_release: bool,
    /// A request of the present owner number was never answered.
    pub(crate) unanswered: bool,

    // On the callers' connection.
    pub(crate) in_flight: Option<InFlight>,
    /// Requests of connections that were given up, and which the server may still get.
    pub(crate) late: [Option<Request>; 4],

    // On the connection of its own thread.
    pub(crate) renewal: Option<InFlight>,
    /// Whether the renewal is about the present possession.
    pub(crate) same_possession: bool,
    pub(crate) subscription: Subscription,
    /// A message is on its way. Two count as one: who asks for the first knows of both.
    pub(crate) message: bool,

    // Its waiter (`src/wait/queue.rs`).
    /// To ask at once.
    pub(crate) again: bool,
    /// The lease of which the last refusal spoke has ended or was changed, so its end, as the
    /// waiter knows it, comes.
    pub(crate) due: bool,
    pub(crate) missed: Missed,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    pub(crate) key: Option<Key>,
    pub(crate) clients: [Client; 3],
    /// Faults that may still happen.
    pub(crate) faults: u8,
}

impl Client {
    pub(crate) fn new(calls: u8, renewals: u8) -> Self {
        Self {
            health: Health::Up,
            calls,
            renewals,
            call: Call::None,
            number: 0,
            live: [None; 2],
            server: 0,
            freeing: false,
            to_release: false,
            unanswered: false,
            in_flight: None,
            late: [None; 4],
            renewal: None,
            same_possession: false,
            subscription: Subscription::Off,
            message: false,
            again: false,
            due: false,
            missed: Missed::Nothing,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.health == Health::Up
    }

    pub(crate) fn believes(&self) -> bool {
        self.live.iter().flatten().any(|term| term.believed)
    }

    pub(crate) fn holds(&self) -> u8 {
        self.live.iter().flatten().count() as u8
    }

    /// `HoldState::pending`: the count to lower to, and the longest lease of a hold that stays.
    pub(crate) fn pending(&self) -> Option<(u8, Option<Lease>)> {
        let believed = self.live.iter().flatten().filter(|term| term.believed);
        let promise = believed.map(|term| term.lease).max_by_key(|lease| lease.long);
        let count = if promise.is_some() { self.holds() } else { 0 };
        (self.server > count).then_some((count, promise))
    }

    /// `Possession::lose`.
    pub(crate) fn gone(&mut self) {
        self.server = 0;
        self.freeing = false;
        self.same_possession = false;
        self.live = [None; 2];
    }

    pub(crate) fn leave_queue(&mut self) {
        self.call = Call::None;
        self.subscription = Subscription::Off;
        self.message = false;
        self.again = false;
        self.due = false;
        self.missed = Missed::Nothing;
    }

    /// Redis has refused it and will not be asked again before something has changed.
    pub(crate) fn waits_for_a_change(&self) -> bool {
        let reply = self.in_flight.and_then(|in_flight| in_flight.reply);
        self.call == Call::Parked || reply == Some(Reply::Refused)
    }

    /// Terms that a TTL may cover: of guards, and of grants on their way back.
    pub(crate) fn terms(&mut self) -> impl Iterator<Item = &mut Term> {
        let reply = self.in_flight.as_mut().and_then(|in_flight| in_flight.reply.as_mut());
        let granted = reply.and_then(|reply| match reply {
            Reply::Granted(term) => Some(term),
            _ => None,
        });
        self.live.iter_mut().flatten().chain(granted)
    }

    /// Something that was sent on a connection which was given up.
    pub(crate) fn add_late(&mut self, request: Request) {
        let free = self.late.iter_mut().find(|late| late.is_none());
        *free.expect("BUG: more late requests than faults can leave") = Some(request);
    }

    /// The callers' connections that were given up are closed. Renewals came on another.
    pub(crate) fn kill_late(&mut self) {
        let late = std::mem::take(&mut self.late).into_iter().flatten();
        let renewals = late.filter(|request| matches!(request, Request::Renew { .. }));
        renewals.for_each(|request| self.add_late(request));
    }

    pub(crate) fn pop_late(&mut self) -> Option<Request> {
        let first = self.late[0].take();
        self.late.rotate_left(1);
        first
    }
}

impl State {
    /// Each waiter learns, in its own time, that the lease has changed of which its refusal
    /// spoke.
    pub(crate) fn lease_changed(&mut self) {
        for client in &mut self.clients {
            client.due |= client.waits_for_a_change();
        }
    }

    pub(crate) fn count_of(&self, client: usize) -> u8 {
        let key = self.key.filter(|key| usize::from(key.client) == client);
        key.map_or(0, |key| key.count)
    }
}
