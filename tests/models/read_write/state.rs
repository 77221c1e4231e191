//! What there is: the lock's hash and its queue, three clients with two handles each, and what is on its
//! way between them.

pub(crate) use crate::{CLIENTS, HANDLES, Set, Since, bit, bits};

/// The owners of a client: each handle is one to write, and all of them together are one to read. Behind
/// them the owner of a possession that has ended, whose request is executed late.
pub(crate) const READ: usize = HANDLES;
pub(crate) const STRAY: usize = READ + 1;
pub(crate) const OWNERS: usize = STRAY + 1;

/// What a call wants, what a field of the hash is for, and the mode of the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    #[default]
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    #[default]
    None,
    Waiting,
    Asking,
    /// It asks outside the wait queue, because its handle reads or writes already.
    Inside,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle {
    /// The calls that it may still begin.
    pub(crate) plan: &'static [Kind],
    pub(crate) call: Call,
    pub(crate) wants: Kind,
    /// Its position in the client's wait queue, from one; zero if it is not there.
    pub(crate) position: u8,
    pub(crate) since: Since,
    /// Its guards.
    pub(crate) reads: u8,
    pub(crate) writes: bool,
    /// Not of the library: Redis has heard of it, and it did nothing by which it could lose its entry.
    pub(crate) stands: bool,
    /// Not of the library: those of other clients that stood when it came.
    pub(crate) behind: Set,
}

/// What a request says of its client's entry in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Says {
    Nothing,
    Waits {
        since: Since,
        wants: Turn,
        /// When its first writer came.
        writer: Since,
    },
    /// No call waits, of those that came before the next one.
    Left(Since),
}

/// What becomes of a client that has its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Turn {
    /// It hears nothing yet, and asks soon.
    #[default]
    Arriving,
    Reads,
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Acquire {
    pub(crate) handle: usize,
    pub(crate) says: Says,
    /// Its client reads already, as far as it knows.
    pub(crate) nested: bool,
    /// A nested hold that waits for its turn like a first one.
    pub(crate) in_turn: bool,
    /// It is to stand beside the other owner of its handle.
    pub(crate) beside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire(Acquire),
    Release(Says),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reply {
    /// When the oldest writer of other clients came, as far as it makes a difference.
    Granted(Since),
    Refused,
    /// What it was to stand on is not there.
    Gone,
    Released,
    /// The owner had nothing.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    /// `None`: on its way to the server.
    pub(crate) reply: Option<Reply>,
}

/// What a client knows of one of its possessions. The one assumption about time: *all that a client
/// believes on the strength of a lease has ended before the lease ends in Redis*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    pub(crate) valid: bool,
    /// Redis may have it: it is released when its last guard has gone.
    pub(crate) counted: bool,
    pub(crate) in_flight: Option<InFlight>,
}

/// A field of the hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Field {
    pub(crate) there: bool,
    /// Its lease has not ended: of a reader, its marker is there.
    pub(crate) lease: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Late {
    pub(crate) owner: usize,
    pub(crate) request: Acquire,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) up: bool,
    pub(crate) handles: [Handle; HANDLES],
    pub(crate) owners: [Owner; READ + 1],

    // What the server knows of it.
    pub(crate) fields: [Field; OWNERS],
    /// What the stray owner wanted.
    pub(crate) stray: Kind,
    /// Its entry in the queue: when its oldest waiter came, and its first writer.
    pub(crate) entry: Since,
    pub(crate) writer: Since,
    pub(crate) turn: Turn,
    /// The term, or the grace, of its entry has ended.
    pub(crate) lapsed: bool,
    pub(crate) subscribed: bool,

    // Messages that are on their way.
    pub(crate) ask: bool,
    /// It is to ask when a lease or the grace of another one has ended.
    pub(crate) ask_later: bool,
    /// A request that was sent again, and is executed once more at any time.
    pub(crate) late: Option<Late>,

    // The wait queue.
    /// The head asks.
    pub(crate) due: bool,
    /// The head asks when the lease or the term that it knows of has ended.
    pub(crate) timer: bool,
    /// There is an entry, as far as the client knows.
    pub(crate) taken: bool,
    /// The entry is to be given up, ...
    pub(crate) leaves: bool,
    /// ... and the request for that is on its way, which is not about one that comes from then on.
    pub(crate) leaving: Option<Since>,

    // The readers.
    /// No other client waited to write when Redis granted a reader last.
    pub(crate) open: bool,
    /// The handle whose writer may be beside the readers.
    pub(crate) beside: Option<usize>,
    /// Not of the library: those that stood then.
    pub(crate) stood: Set,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// `None`: the lock is free.
    pub(crate) mode: Option<Kind>,
    /// The client that was notified, and has yet to come.
    pub(crate) notified: Option<usize>,
    pub(crate) clients: [Client; CLIENTS],
    /// Faults that may still happen.
    pub(crate) faults: u8,

    // Not of the library: what has happened that must not.
    pub(crate) passed_writer: bool,
    pub(crate) passed_reader: bool,
    /// One that reads or writes was not let in to read.
    pub(crate) shut_out: bool,
    /// Dead readers alone have kept a writer out that looked at them.
    pub(crate) kept_by_dead: bool,
    /// Not of the library: a message was lost, or something has ended by itself, which says nothing.
    pub(crate) silent: bool,
}

impl Handle {
    pub(crate) fn waits(&self) -> bool {
        self.position > 0
    }

    pub(crate) fn call_ends(&mut self) {
        (self.call, self.wants, self.since) = (Call::None, Kind::Read, 0);
        (self.stands, self.behind) = (false, 0);
    }
}

impl Owner {
    pub(crate) fn may_be_there(&self) -> bool {
        self.counted || self.in_flight.is_some()
    }
}

crate::wait_queue!(Client, handles);

impl Client {
    /// The first in the wait queue that wants to write.
    pub(crate) fn first_writer(&self) -> Option<usize> {
        let writes = |h: &usize| self.handles[*h].waits() && self.handles[*h].wants == Kind::Write;
        (0..HANDLES).filter(writes).min_by_key(|h| self.handles[*h].position)
    }

    /// Whether one of the guards of that owner is there.
    pub(crate) fn has_guard(&self, o: usize) -> bool {
        match o {
            READ => self.handles.iter().any(|handle| handle.reads > 0),
            h => self.handles[h].writes,
        }
    }

    pub(crate) fn reads(&self, h: usize) -> bool {
        self.handles[h].reads > 0 && self.owners[READ].valid
    }

    pub(crate) fn writes(&self, h: usize) -> bool {
        self.handles[h].writes && self.owners[h].valid
    }

    /// Whether a request about that owner may be sent. A handle that asks to write beside its own reader has the
    /// permit of the readers, too.
    pub(crate) fn has_permit(&self, o: usize) -> bool {
        let upgrades = |owner: &Owner| {
            let request = owner.in_flight.map(|in_flight| in_flight.request);
            matches!(request, Some(Request::Acquire(Acquire { beside: true, .. })))
        };
        let upgraded = o == READ && self.owners[..READ].iter().any(upgrades);
        self.owners[o].in_flight.is_none() && !upgraded
    }

    /// Whether a reader of that handle needs no request.
    pub(crate) fn can_join(&self, h: usize) -> bool {
        let is_beside = self.beside.map_or(!self.handles[h].writes, |writer| writer == h);
        self.owners[READ].valid && self.has_guard(READ) && is_beside
    }

    /// Whether its entry is that of a waiter, or is about to go.
    pub(crate) fn keeps_entry(&self) -> bool {
        let asks = self.owners.iter().any(|owner| owner.in_flight.is_some());
        self.up && (self.taken || self.leaves || self.leaving.is_some() || asks)
    }

    /// Whether a client that was notified comes for the lock.
    pub(crate) fn comes(&self) -> bool {
        let asks = self.owners.iter().any(|owner| owner.in_flight.is_some());
        self.up && (self.waiting() > 0 && (self.ask || self.due || !self.subscribed) || asks)
    }

    fn each_since(&mut self, each: &mut impl FnMut(&mut Since)) {
        each(&mut self.entry);
        each(&mut self.writer);
        self.handles.iter_mut().for_each(|handle| each(&mut handle.since));
        for owner in &mut self.owners {
            if let Some(Reply::Granted(oldest)) =
                owner.in_flight.as_mut().and_then(|it| it.reply.as_mut())
            {
                each(oldest);
            }
        }
        for says in self.all_said() {
            if let Says::Waits { since, writer, .. } = says {
                each(since);
                each(writer);
            }
        }
    }

    /// What requests on their way say of its entry.
    fn all_said(&mut self) -> impl Iterator<Item = &mut Says> {
        let requests = self.owners.iter_mut().filter_map(|owner| owner.in_flight.as_mut());
        let said = requests.map(|in_flight| match &mut in_flight.request {
            Request::Acquire(acquire) => &mut acquire.says,
            Request::Release(says) => says,
        });
        said.chain(self.late.as_mut().map(|late| &mut late.request.says))
    }

    /// The numbers of those that came before are lower, and of those that come from now on are not.
    fn each_next(&mut self, each: &mut impl FnMut(&mut Since)) {
        self.leaving.iter_mut().for_each(&mut *each);
        for says in self.all_said() {
            if let Says::Left(next) = says {
                each(next);
            }
        }
    }
}

crate::queued!(State, handles: Handle);

impl State {
    /// The fields of the hash.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (usize, usize, Field)> + '_ {
        let clients = self.clients.iter().enumerate();
        let all =
            clients.flat_map(|(c, client)| (0..OWNERS).map(move |o| (c, o, client.fields[o])));
        all.filter(|(.., field)| field.there)
    }

    /// Those that stand and wait, and want that.
    pub(crate) fn standing(&self, wants: Option<Kind>) -> Set {
        let meant = |handle: &Handle| wants.is_none_or(|wants| wants == handle.wants);
        self.those(|handle| handle.stands && handle.waits() && meant(handle))
    }

    fn each_since(&mut self, each: &mut impl FnMut(&mut Since)) {
        self.clients.iter_mut().for_each(|client| client.each_since(each));
    }

    /// None passes over one that does not wait.
    pub(crate) fn forget_others(&mut self) {
        let waiting = self.those(Handle::waits);
        for client in &mut self.clients {
            client.stood &= waiting;
            client.handles.iter_mut().for_each(|handle| handle.behind &= waiting);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.clients.swap(a, b);
        let swapped = crate::swapped(a, b);
        let swap = |set: &mut Set| crate::swap_bits(set, swapped);
        self.notified = self.notified.map(swapped);
        for client in &mut self.clients {
            swap(&mut client.stood);
            client.handles.iter_mut().for_each(|handle| swap(&mut handle.behind));
        }
    }
}
