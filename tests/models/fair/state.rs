//! What there is: the lock's hash, its queue, three clients with their waiters, and what is on its
//! way between them.

pub(crate) use crate::{CLIENTS, HANDLES, Set, Since, bit, bits};

/// Behind the handles of a client, of one caller each, the owner of a grant, which no handle is. Each grant has another one; what is still
/// on its way of one that has ended finds nothing, so the model settles it when the grant ends.
pub(crate) const GRANT: usize = HANDLES;

/// What a client relies on. The one assumption about time: *all that a client believes on the
/// strength of a key has ended before the key's TTL ends*. For a grant, the deadline counts from
/// the time of the server that its message says (`src/protocol/grant.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hold {
    pub(crate) valid: bool,
    /// Its guard has gone; of a grant: it is to be released.
    pub(crate) leaving: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    #[default]
    None,
    /// The first try, outside the wait queue.
    Trying,
    Waiting,
    Asking,
    /// It has the lock when Redis has confirmed a hand-off.
    Awaiting,
    /// It has the lock by a hand-off, and was not polled yet.
    Handed,
}

/// What a request says of its client's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Entry {
    /// It is that of the waiter that came then, whether or not that one has just come and so hears
    /// nothing yet.
    Of(Since, bool),
    /// Nobody waits, of those that came before the next one.
    Left(Since),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire { since: Since, new: bool },
    Release { entry: Entry },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    Granted,
    Refused,
    /// The same, because of a grant to the client itself.
    OwnGrant,
    Released,
    /// The owner held nothing.
    Nothing,
}

/// A request for one owner, whose permit is taken meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InFlight {
    /// An acquire that was dropped is on the connection before this, its undo: how old it was.
    pub(crate) ahead: Since,
    pub(crate) request: Request,
    /// `None`: on its way to the server.
    pub(crate) reply: Option<Reply>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    /// Calls that it may still begin.
    pub(crate) calls: u8,
    pub(crate) call: Call,
    /// Its position in the client's wait queue, from one; zero if it is not there.
    pub(crate) position: u8,
    pub(crate) since: Since,
    pub(crate) hold: Option<Hold>,
    pub(crate) in_flight: Option<InFlight>,
    /// Not of the library: it has asked for an entry, and did nothing by which it could lose it.
    pub(crate) stands: bool,
    /// Not of the library: those that stood when it came. None of them may be passed over.
    pub(crate) behind: Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Sent {
    /// Kept back until the waiter has taken the lock.
    No,
    OnItsWay,
    Done(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HandOff {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) entry: Entry,
    pub(crate) sent: Sent,
}

/// Who waits in other clients, as a grant or a hand-off said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OldestForeignWaiter {
    pub(crate) oldest: Since,
    /// The first that came after the answer.
    pub(crate) answered: Since,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) up: bool,
    /// It can be granted the lock.
    pub(crate) grants: bool,
    pub(crate) owners: [Owner; HANDLES + 1],
    pub(crate) hand_off: Option<HandOff>,

    // What the server knows of it.
    /// Its entry in the queue: when its oldest waiter came.
    pub(crate) entry: Since,
    /// That waiter has just come: it is notified, and asks soon.
    pub(crate) is_new: bool,
    /// The term, or the grace, of its entry has ended.
    pub(crate) lapsed: bool,
    pub(crate) subscribed: bool,

    // Messages that are on their way.
    pub(crate) ask: bool,
    /// It is to ask when the lease or the grace of another one has ended.
    pub(crate) ask_later: bool,
    pub(crate) granted: bool,
    /// It knows of the grant, and takes no other message about it.
    pub(crate) heard: bool,
    /// A bug: the same of a grant that has ended.
    pub(crate) late: bool,

    // The wait queue.
    /// The head asks.
    pub(crate) due: bool,
    /// The head asks when the lease or the grace that it knows of has ended.
    pub(crate) timer: bool,
    pub(crate) clock: bool,
    pub(crate) taken: bool,
    pub(crate) foreign: Option<OldestForeignWaiter>,
    /// The entry is to be given up, ...
    pub(crate) leaves: bool,
    /// ... and the request for that is on its way, which is not about one that comes from then on.
    pub(crate) leaving: Option<Since>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) client: usize,
    pub(crate) owner: usize,
    pub(crate) has_ttl: bool,
    /// What the script said of the other clients.
    pub(crate) oldest: Since,
    /// Not of the library: those that stood then.
    pub(crate) stood: Set,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) key: Option<Key>,
    /// The client that was notified, and has yet to come.
    pub(crate) notified: Option<usize>,
    pub(crate) clients: [Client; CLIENTS],
    /// Faults that may still happen.
    pub(crate) faults: u8,
    /// Not of the library: a waiter was passed over.
    pub(crate) passed_over: bool,
    /// Not of the library: what would tell a waiter of a free lock was lost.
    pub(crate) message_lost: bool,
    /// Not of the library: so was what would tell a client of the grant.
    pub(crate) grant_lost: bool,
}

impl Owner {
    pub(crate) fn relies(&self) -> bool {
        self.hold.is_some_and(|hold| hold.valid && !hold.leaving)
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.hold.is_some_and(|hold| hold.leaving)
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self.call, Call::Trying | Call::Waiting | Call::Asking)
    }

    pub(crate) fn wait_ends(&mut self, call: Call) {
        (self.call, self.stands, self.behind) = (call, false, 0);
    }
}

crate::wait_queue!(Client, owners);

impl Client {
    pub(crate) fn head_calls(&self, call: Call) -> bool {
        self.head().is_some_and(|head| self.owners[head].call == call)
    }

    pub(crate) fn join(&mut self, o: usize) {
        self.owners[o].position = self.waiting() + 1;
        self.owners[o].call = Call::Waiting;
        self.due |= self.waiting() == 1 && self.subscribed;
    }

    pub(crate) fn is_in_hand_off(&self, o: usize) -> bool {
        self.hand_off.is_some_and(|hand_off| hand_off.from == o || hand_off.to == o)
    }

    /// Whether a grant of this client will reach a waiter or go back.
    pub(crate) fn has_grant(&self) -> bool {
        let grant = &self.owners[GRANT];
        let goes_back = grant.in_flight.is_some_and(|in_flight| in_flight.reply.is_none());
        let goes_on = self.is_in_hand_off(GRANT) || self.granted || goes_back;
        self.up && (goes_on || grant.hold.is_some())
    }

    /// Whether the key goes without its TTL.
    pub(crate) fn gives_back(&self, owner: usize) -> bool {
        if owner == GRANT {
            return self.has_grant();
        }
        let owner_has = |owner: &Owner| owner.hold.is_some() || owner.in_flight.is_some();
        self.up && (owner_has(&self.owners[owner]) || self.is_in_hand_off(owner))
    }

    /// Whether its entry is that of a waiter, or is about to go.
    pub(crate) fn keeps_entry(&self) -> bool {
        let asks = |owner: &Owner| owner.waits() || owner.in_flight.is_some();
        let goes = self.leaves || self.leaving.is_some() || self.hand_off.is_some();
        self.up && (self.taken || goes || self.owners.iter().any(asks))
    }

    /// Whether it makes a difference if it crashes.
    pub(crate) fn is_busy(&self) -> bool {
        let busy = |owner: &Owner| {
            owner.call != Call::None || owner.hold.is_some() || owner.in_flight.is_some()
        };
        self.entry > 0 || self.subscribed || self.owners.iter().any(busy)
    }

    /// Whether a client that was notified comes for the lock.
    pub(crate) fn comes(&self) -> bool {
        // It asks as soon as it is subscribed.
        let subscribes = !self.subscribed && self.oldest().is_some();
        self.up && (self.ask || self.due || subscribes || self.head_calls(Call::Asking))
    }

    fn each_since(&mut self, each: &mut impl FnMut(&mut Since)) {
        each(&mut self.entry);
        self.foreign.iter_mut().for_each(|foreign| each(&mut foreign.oldest));
        for owner in &mut self.owners {
            each(&mut owner.since);
            if let Some(in_flight) = &mut owner.in_flight {
                each(&mut in_flight.ahead);
                if let Request::Acquire { since, .. } = &mut in_flight.request {
                    each(since);
                }
            }
        }
        for entry in self.entries() {
            if let Entry::Of(since, _) = entry {
                each(since);
            }
        }
    }

    /// What requests on their way say of its entry.
    fn entries(&mut self) -> impl Iterator<Item = &mut Entry> {
        let released = self.owners.iter_mut().filter_map(|owner| match &mut owner.in_flight {
            Some(InFlight { request: Request::Release { entry }, .. }) => Some(entry),
            _ => None,
        });
        released.chain(self.hand_off.as_mut().map(|hand_off| &mut hand_off.entry))
    }

    /// The numbers of those that came before are lower, and of those that come from now on are not.
    fn each_next(&mut self, each: &mut impl FnMut(&mut Since)) {
        self.foreign.iter_mut().for_each(|foreign| each(&mut foreign.answered));
        self.leaving.iter_mut().for_each(&mut *each);
        for entry in self.entries() {
            if let Entry::Left(next) = entry {
                each(next);
            }
        }
    }

    /// Who stands for this client in the queue: the first in the wait queue that awaits no hand-off, or
    /// else a call in its first try.
    pub(crate) fn oldest(&self) -> Option<usize> {
        let waits = |owner: &Owner| owner.position > 0 && owner.call != Call::Awaiting;
        let in_queue = (0..HANDLES).filter(|o| waits(&self.owners[*o]));
        let tries = || self.owners.iter().position(|owner| owner.call == Call::Trying);
        in_queue.min_by_key(|o| self.owners[*o].position).or_else(tries)
    }
}

crate::queued!(State, owners: Owner);

impl State {
    /// Those that stand and wait.
    pub(crate) fn standing(&self) -> Set {
        self.those(|owner| owner.stands && owner.waits())
    }

    pub(crate) fn has(&self, c: usize, o: usize) -> bool {
        self.key.is_some_and(|key| (key.client, key.owner) == (c, o))
    }

    fn each_since(&mut self, each: &mut impl FnMut(&mut Since)) {
        self.key.iter_mut().for_each(|key| each(&mut key.oldest));
        self.clients.iter_mut().for_each(|client| client.each_since(each));
    }

    /// Nobody passes over one that does not wait.
    pub(crate) fn forget_others(&mut self) {
        let waiting = self.those(Owner::waits);
        self.key.iter_mut().for_each(|key| key.stood &= waiting);
        for owner in self.clients.iter_mut().flat_map(|client| &mut client.owners) {
            owner.behind &= waiting;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.clients.swap(a, b);
        let swapped = crate::swapped(a, b);
        if let Some(key) = &mut self.key {
            key.client = swapped(key.client);
            crate::swap_bits(&mut key.stood, swapped);
        }
        self.notified = self.notified.map(swapped);
        for owner in self.clients.iter_mut().flat_map(|client| &mut client.owners) {
            crate::swap_bits(&mut owner.behind, swapped);
        }
    }
}
