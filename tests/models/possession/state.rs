//! What there is: the lock's key, two clients with their handles and possessions, and what is under
//! way.
//!
//! What Redis has of a possession is in its [`Slot`], so the position of a slot says nothing, and slots
//! are sorted. A slot is used again as soon as nothing in the state speaks of its possession. That
//! makes no difference to an id that is drawn afresh: no request is left that could name both.

use std::hash::{Hash, Hasher};

use super::Role;

/// The handles of a client, and the possessions that it may have to do with at a time.
pub(crate) const HANDLES: usize = 3;
pub(crate) const SLOTS: usize = 4;
/// The stale requests of a possession that the server may still execute.
pub(crate) const LATE: usize = 4;

/// Until when something is valid, without a clock.
///
/// A deadline counts from before its request was sent and the server's TTL from when the script ran,
/// and the deadline has a margin on top. So *a deadline passes before a TTL ends that was set later
/// for a lease at least as long*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Deadline {
    /// It is as far away as a long lease at most, or as a short one.
    pub(crate) long: bool,
    /// It has not passed, and no request has found that the possession is gone.
    pub(crate) valid: bool,
    /// The key's TTL reaches beyond it.
    pub(crate) covered: bool,
}

/// A guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hold {
    /// Its own lease: a long one is the default, which the watchdog renews.
    pub(crate) long: bool,
    pub(crate) until: Deadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Acquire,
    Release,
    Update,
    Renew,
}

/// A script's call, with the count to reach and a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) count: u8,
    pub(crate) long: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    /// Executed: until when the key has the possession at least, and the first token of a block.
    Done(Deadline, u8),
    /// The key does not have the possession: gone, or refused.
    Gone,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    /// An acquire that was dropped is on the connection before this, its undo.
    pub(crate) ahead: Option<Request>,
    /// `None`: on its way to the server.
    pub(crate) reply: Option<Reply>,
    /// A fault is meant to meet it, and has been counted.
    pub(crate) slow: bool,
    /// The holder for which it was sent is still inside.
    pub(crate) current: bool,
    /// The unlocks that it confirms: see [`Slot::awaits`].
    pub(crate) confirms: Option<bool>,
}

/// One possession.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    /// The hold count in the hash; zero if the key is not this possession's.
    pub(crate) redis: u8,
    /// Not of the library: the key was deleted under it.
    pub(crate) robbed: bool,
    /// The handle that is inside, or was last.
    pub(crate) inside: u8,
    /// It has the lock by a hand-off, and may not have noticed yet.
    pub(crate) unclaimed: bool,
    pub(crate) holds: [Option<Hold>; 2],
    /// The highest count that Redis may have.
    pub(crate) counted: u8,
    /// A release of everything was sent, and Redis has not confirmed it.
    pub(crate) release_unanswered: bool,
    /// It is lost.
    pub(crate) over: bool,
    /// What Redis has confirmed of it, or less if a shorter lease is under way.
    pub(crate) until: Deadline,
    /// The lease that Redis was asked for last, and that of the first hold of the handle inside.
    pub(crate) asked: bool,
    pub(crate) first: bool,
    /// Redis has yet to hear of the lease of the handle inside.
    pub(crate) unwritten: bool,
    /// It was handed off.
    pub(crate) handed: bool,
    /// Unlocks wait for a request that is sent from now on, and the key was there as the hold of each
    /// of them ended.
    pub(crate) awaits: Option<bool>,
    /// The permit is taken.
    pub(crate) in_flight: Option<InFlight>,
    /// The watchdog takes no permit.
    pub(crate) renewal: Option<InFlight>,
    /// Requests on stale connections, which the server may still execute.
    pub(crate) late: [Option<Request>; LATE],
    /// The next token of the block, and how many it has.
    pub(crate) tokens: (u8, u8),
}

/// The call that a user of a handle awaits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    #[default]
    None,
    Waiting,
    /// A request of it is under way.
    Asking,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle {
    pub(crate) role: Role,
    /// Calls that it may still begin.
    pub(crate) calls: u8,
    pub(crate) call: Call,
    /// Its position in the wait queue, from one; zero if it is not there.
    pub(crate) position: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) up: bool,
    pub(crate) handles: [Handle; HANDLES],
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) renewals: u8,
    /// The head of the wait queue asks at once.
    pub(crate) wake: bool,
    /// The lease that the waiters know of is a long one.
    pub(crate) knows_long: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) clients: [Client; 2],
    /// The lease that set the key's TTL.
    pub(crate) long: bool,
    /// The last token that Redis drew.
    pub(crate) drawn: u8,
    /// Faults that may still happen.
    pub(crate) faults: u8,
    /// Not of the library: the last token that a hold has got, whether one got a smaller one or the
    /// same, and whether an `unlock` was wrong to say `Ok`.
    pub(crate) token: u8,
    pub(crate) token_again: bool,
    pub(crate) false_ok: bool,
}

/// Most slots are empty.
impl Hash for Client {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let used = self.slots.iter().filter(|slot| **slot != Slot::default());
        used.for_each(|slot| slot.hash(hasher));
        (self.handles, self.up, self.renewals, self.wake, self.knows_long).hash(hasher);
    }
}

impl Deadline {
    pub(crate) fn of(long: bool) -> Self {
        Self { long, valid: true, covered: true }
    }

    /// The later one.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self.valid, other.valid) {
            (true, true) => Self {
                long: self.long || other.long,
                valid: true,
                covered: self.covered && other.covered,
            },
            (true, false) => self,
            _ => other,
        }
    }

    /// This, or one of a lease that begins now.
    pub(crate) fn at_most(self, long: bool) -> Self {
        Self { long: self.long && long, ..self }
    }
}

impl Request {
    /// A request that sets a short lease, whatever it was.
    pub(crate) fn may_shorten(self) -> bool {
        let sets = self.kind == Kind::Update || self.kind == Kind::Release && self.count > 0;
        sets && !self.long
    }
}

impl InFlight {
    pub(crate) fn new(request: Request) -> Self {
        let (ahead, reply, confirms) = (None, None, None);
        Self { request, ahead, reply, slow: false, current: true, confirms }
    }
}

impl Slot {
    pub(crate) fn live(&self) -> u8 {
        self.holds.iter().flatten().count() as u8
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.holds.iter().flatten().any(|hold| hold.until.valid)
    }

    /// The holds to which the count is to sink: guards that are all lost keep nothing in Redis.
    pub(crate) fn kept(&self) -> u8 {
        if self.is_valid() { self.live() } else { 0 }
    }

    pub(crate) fn is_pending(&self) -> bool {
        !self.over && self.counted > self.kept()
    }

    /// All that a TTL may cover.
    pub(crate) fn deadlines(&mut self) -> impl Iterator<Item = &mut Deadline> {
        let all = self.in_flight.iter_mut().chain(&mut self.renewal);
        let replies = all.filter_map(|in_flight| match &mut in_flight.reply {
            Some(Reply::Done(until, _)) => Some(until),
            _ => None,
        });
        let holds = self.holds.iter_mut().flatten().map(|hold| &mut hold.until);
        holds.chain([&mut self.until]).chain(replies)
    }

    /// A request was sent on a connection that was given up.
    pub(crate) fn add_late(&mut self, request: Request) {
        let free = self.late.iter_mut().find(|late| late.is_none());
        *free.expect("BUG: more late requests than faults can leave") = Some(request);
        self.late.sort();
    }

    /// The client, and all who wait for a confirmation, learn that the possession is gone.
    pub(crate) fn lose(&mut self) {
        (self.over, self.counted, self.release_unanswered) = (true, 0, false);
        (self.unwritten, self.awaits) = (false, None);
        self.in_flight.iter_mut().for_each(|in_flight| in_flight.confirms = None);
        self.deadlines().for_each(|until| until.valid = false);
    }
}

crate::wait_queue!(Client, handles);

impl Client {
    /// The head has no request under way.
    pub(crate) fn waits(&self) -> bool {
        self.head().is_some_and(|head| self.handles[head].call == Call::Waiting)
    }

    /// The head asks at once.
    pub(crate) fn join(&mut self, h: usize) {
        self.wake |= self.waiting() == 0;
        self.handles[h].position = self.waiting() + 1;
        self.handles[h].call = Call::Waiting;
    }

    pub(crate) fn call_ends(&mut self, h: usize) {
        self.leave(h);
        self.handles[h].call = Call::None;
    }
}

impl State {
    /// The possession that the key has.
    pub(crate) fn key(&self) -> Option<(usize, usize)> {
        let has = |c: usize| self.clients[c].slots.iter().position(|slot| slot.redis > 0);
        [0, 1].into_iter().find_map(|c| has(c).map(|s| (c, s)))
    }
}
