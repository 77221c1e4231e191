//! The read-write lock as a model, of which every state is visited: three clients of up to two handles each,
//! which read, write, read again, upgrade and downgrade.
//!
//! It follows `lua/rw_{acquire,release,leave}.lua`, `lua/fair.lua`, `lua/fair_refresh.lua`,
//! `src/acquire/{ask,readers}.rs`, `src/possession/shared.rs`, `src/handle/sides.rs`, `src/read_write/changes.rs`,
//! `src/wait/{entries,handoff,queue}.rs` and `src/wait/queue/readers.rs`.
//!
//! # What is in it
//!
//! One lock: its mode, a field for each owner, and for each of these whether its lease has ended; the queue, in which the
//! entry of a client says when its oldest waiter came, what that wants, and when its first writer came. All readers
//! of a client are one owner, and each handle is one to write. A call waits in the wait queue of its client, joins
//! its readers, or, if its handle reads or writes already, asks at once and is refused at once. So a handle that
//! reads becomes one that writes, and the other way round, by a call that begins before its guard is given back.
//! A reader that has the lock lets those in that stand directly behind it. Redis notifies the client whose turn it is.
//!
//! Faults are counted: a reply is lost and the request sent again; a request is executed once more at any time,
//! when its owner has gone, too; a message is lost, or all with their connection; a lease, a grace or a term
//! ends too soon; a call is dropped; a client crashes.
//!
//! # What is not
//!
//! - What the other models have: hand-offs, here from writer to writer; nested holds that write; renewals, leases of
//!   different lengths, and that the hash lasts as long as the longest of them.
//! - Tokens, the common channel and the clients of Redisson, calls that do not wait.
//! - How long readers join each other. A call that could join may also wait for its turn, as if that time were over.
//! - A handle begins no call while it has a guard that is lost, and its client asks for no reader beside such guards.
//! - The two requests of a writer that looks at markers are one.
//!
//! # Order
//!
//! A waiter *stands* as in the model of the fair lock: once Redis has an entry that says when it came. Of a client
//! that are its oldest waiter and its first writer. A reader that asks must not pass a writer of another client
//! that stood when it came, stands still and is alive; a writer must pass neither a reader nor a writer. One that
//! joins or is let in must not pass a writer that stood when Redis granted the reader that it joins.
//!
//! `WOKEN` says that a waiter that would have the lock if it asked is on its way, or another client is that passes
//! the turn on: it does not wait for a time to come, unless a message was lost or something ended by itself. So a
//! downgrade wakes the readers that wait.

mod checks;
mod client;
mod properties;
mod server;
mod state;
mod steps;

use stateright::Model;

use properties::{INVARIANTS, REACHED};
use state::{Call, Client, HANDLES, Handle, Kind, READ, State, Turn};
use steps::Step;

/// A fault that the library does not have: each shows that the check would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A reader has the lock that a writer has.
    ReaderBesideWriter,
    /// A writer has the lock that readers have.
    WriterAmongReaders,
    /// A writer has the lock that another one has.
    WritersShare,
    /// A reader becomes a writer beside others that read.
    UpgradeAmongOthers,
    /// A writer that looks at the readers takes out those that are alive, too.
    AllAreDead,
    /// ... or none.
    DeadStay,
    /// A marker has no TTL.
    MarkerStays,
    /// A release does not look whose lock it is.
    ReleaseUnchecked,
    /// A reader does not look whether a writer came before it.
    WritersIgnored,
    /// A writer does not look whose turn it is.
    TurnIgnored,
    /// The entry of a client does not say when its first writer came.
    WriterUnwritten,
    /// A reader that has the lock takes the entry with it, although a writer of its client waits.
    EntryGoes,
    /// A reader that has the lock does not pass the turn on.
    TurnStays,
    /// A release notifies no client.
    ReleaseSilent,
    /// The same if readers are left.
    DowngradeSilent,
    /// A client whose writer has left, and that has another waiter, does not pass the turn on.
    NextCallKeepsOut,
    /// A client that leaves the queue does not pass its turn on.
    LeaveSilent,
    /// The same if its entry is gone already.
    LateLeaveSilent,
    /// A client whose last waiter has left keeps its entry.
    LeaveForgotten,
    /// What a call was granted that was dropped is not released.
    UndoForgotten,
    /// A handle that reads waits for its turn to read again.
    RecursionInTurn,
    /// A handle that reads waits for its turn to write.
    UpgradeWaits,
    /// Readers join although a writer waits in another client.
    ShareUnasked,
    /// A reader lets others in behind a writer of another client.
    AllLetIn,
}

#[derive(Clone, Debug)]
pub(crate) struct ReadWrite {
    /// The calls of each handle. It may begin one while it has the guards of those before.
    pub(crate) plans: [[&'static [Kind]; HANDLES]; state::CLIENTS],
    pub(crate) faults: u8,
    /// Whether a request may be executed late.
    pub(crate) delays: bool,
    pub(crate) bug: Option<Bug>,
    /// Takes no two steps as one.
    pub(crate) every_step: bool,
}

impl Model for ReadWrite {
    crate::model!();

    fn init_states(&self) -> Vec<State> {
        let clients = self.plans.map(|plans| {
            let handles = plans.map(|plan| Handle { plan, ..Handle::default() });
            Client { up: true, handles, ..Client::default() }
        });
        vec![tidied(State { clients, faults: self.faults, ..State::default() })]
    }
}

/// Clears what makes no difference any more, and sorts what is interchangeable.
fn tidied(mut state: State) -> State {
    for client in &mut state.clients {
        if client.entry == 0 {
            (client.lapsed, client.turn, client.writer) = (false, Turn::default(), 0);
        }
        if !client.fields[state::STRAY].there && client.late.is_none() {
            client.stray = Kind::Read;
        }
        if !client.up {
            (client.up, client.handles, client.owners) = Default::default();
            (client.ask, client.ask_later, client.due, client.timer) = Default::default();
            (client.taken, client.leaves, client.leaving) = Default::default();
            (client.open, client.beside, client.stood) = Default::default();
            continue;
        }
        let beside = client.beside.filter(|writer| client.owners[*writer].may_be_there());
        client.beside = beside;
        client.open &= client.owners[READ].valid && client.has_guard(READ);
        if !client.open && client.owners[READ].in_flight.is_none() {
            client.stood = 0;
        }
        if client.waiting() == 0 {
            (client.due, client.timer) = (false, false);
        }
        client.timer &= !client.due;
        for handle in client.handles.iter_mut().filter(|handle| handle.call == Call::None) {
            handle.call_ends();
        }
    }
    state.notified = state.notified.filter(|notified| state.clients[*notified].entry > 0);
    state.forget_others();
    state.renumber();
    state.sort();
    state
}
