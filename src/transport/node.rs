//! One server, and the connections to it; or the primary, whichever server that is now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use redis::ConnectionInfo;

use super::connection::runtime_slot::RuntimeSlot;
use super::{Connection, address, bad_address};
use crate::error::Error;
use crate::host::{Runtime, RuntimeId};
use crate::signal;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Commands,
    /// Subscriptions to sharded channels. They need a connection of their own: when a channel moves
    /// away with its slot, the server sends a message which the driver takes for the answer to the
    /// oldest command under way.
    Listening,
    /// Waiting for replicas, which blocks everything else on that connection.
    Replicas,
}

pub(crate) struct Node {
    /// Unique in the process, even among nodes that are gone.
    pub(super) number: usize,
    client: Mutex<redis::Client>,
    /// Notified when another server has become the primary, or others have the keys of this one.
    moved: signal::Sender,
    /// Whether the server is out of use, except for callers that have to undo something.
    out_of_use: AtomicBool,
    /// Whether other servers have the keys of this one. Then no call uses it any more.
    replaced: AtomicBool,
    runtime_slots: Mutex<Vec<(RuntimeId, Purpose, Arc<RuntimeSlot>)>>,
}

/// A server that must not be used any more, and the connections to it.
#[derive(Default)]
pub(super) struct RetiredServer {
    /// Requests may wait for answers on them.
    pub(super) connections: Vec<Connection>,
    /// The server, if there was ever a connection. It may still execute what came on one.
    pub(super) server: Option<redis::Client>,
}

impl Node {
    /// No I/O.
    pub(super) fn new(info: ConnectionInfo) -> Result<Self, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        address::prepare(info.addr())?;
        let client = redis::Client::open(info).map_err(bad_address)?;
        Ok(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            client: client.into(),
            moved: signal::Sender::default(),
            out_of_use: AtomicBool::new(false),
            replaced: AtomicBool::new(false),
            runtime_slots: Mutex::default(),
        })
    }

    pub(super) fn info(&self) -> ConnectionInfo {
        self.client.lock().get_connection_info().clone()
    }

    pub(super) fn is_at(&self, server: &str) -> bool {
        address::name(&self.info()) == server
    }

    /// Another server is the primary now. Returns the earlier one, which must not be used any more.
    pub(super) fn moves_to(&self, info: ConnectionInfo) -> Result<RetiredServer, Error> {
        let name = address::name(&info);
        let client = redis::Client::open(info).map_err(bad_address)?;
        let earlier = std::mem::replace(&mut *self.client.lock(), client);
        for runtime_slot in self.runtime_slots() {
            runtime_slot.reset_backoff();
        }
        self.moved.send();
        let server = self.was_reached().then_some(earlier);
        Ok(RetiredServer { connections: self.leave(|at| at.server() != name), server })
    }

    /// Other servers have the keys of this one from now on. Returns this one, to which the client sends nothing any
    /// more: callers that wait for a connection go to the others.
    pub(super) fn retire(&self) -> RetiredServer {
        // Before the search, so that no new connection escapes it.
        self.replaced.store(true, Ordering::Relaxed);
        self.out_of_use.store(true, Ordering::Relaxed);
        self.moved.send();
        let server = self.was_reached().then(|| self.client.lock().clone());
        RetiredServer { connections: self.leave(|_| true), server }
    }

    /// Takes the connections out of use that `which` accepts. Returns also those on which requests
    /// wait although they are out of use.
    fn leave(&self, which: impl Fn(&Connection) -> bool) -> Vec<Connection> {
        self.runtime_slots().iter().flat_map(|runtime_slot| runtime_slot.leave(&which)).collect()
    }

    /// Notifies when another server has become the primary, or others have the keys of this one.
    pub(super) fn moves(&self) -> signal::Receiver {
        self.moved.subscribe()
    }

    /// Where the server is now.
    pub(super) fn to_dial(&self) -> redis::Client {
        self.client.lock().clone()
    }

    /// The slot of the calling runtime.
    pub(super) fn runtime_slot(&self, purpose: Purpose) -> Arc<RuntimeSlot> {
        let runtime = Runtime::current();
        let mut runtime_slots = self.runtime_slots.lock();
        let of = runtime.id();
        let mine = |slot: &&(RuntimeId, Purpose, _)| (slot.0, slot.1) == (of, purpose);
        if let Some((_, _, runtime_slot)) = runtime_slots.iter().find(mine) {
            return runtime_slot.clone();
        }
        // Slots of ended runtimes go when a new runtime comes, so that they cannot pile up.
        runtime_slots.retain(|(_, _, runtime_slot)| !runtime_slot.runtime_has_ended());
        let runtime_slot = Arc::new(RuntimeSlot::new(runtime));
        runtime_slots.push((of, purpose, runtime_slot.clone()));
        runtime_slot
    }

    pub(super) fn is_connected(&self) -> bool {
        self.runtime_slots().iter().any(|runtime_slot| runtime_slot.in_use().is_some())
    }

    /// Its connections, of all runtimes.
    pub(super) fn connections(&self) -> Vec<Connection> {
        self.runtime_slots().iter().filter_map(|runtime_slot| runtime_slot.in_use()).collect()
    }

    /// How long a round trip takes on the fastest of its connections.
    pub(super) fn round_trip(&self) -> Option<std::time::Duration> {
        let in_use = self.runtime_slots().into_iter().filter_map(|slot| slot.in_use());
        in_use.map(|connection| connection.round_trip()).min()
    }

    /// Whether the last dial of a runtime that lives has failed.
    pub(super) fn is_dialled_in_vain(&self) -> bool {
        let mut slots = self.runtime_slots().into_iter();
        slots.any(|slot| {
            slot.in_use().is_none() && slot.error().is_some() && !slot.runtime_has_ended()
        })
    }

    /// Whether there was ever a connection to it.
    pub(super) fn was_reached(&self) -> bool {
        self.runtime_slots().iter().any(|runtime_slot| !runtime_slot.dial_time().is_zero())
    }

    fn runtime_slots(&self) -> Vec<Arc<RuntimeSlot>> {
        self.runtime_slots.lock().iter().map(|(_, _, runtime_slot)| runtime_slot.clone()).collect()
    }

    /// Drops the connection of that number, if this node has it.
    pub(super) fn forget(&self, number: u64) -> Option<Connection> {
        let of_that_number = |connection: &Connection| connection.number() == number;
        let connection =
            self.runtime_slots().iter().find_map(|slot| slot.forget(of_that_number))?;
        connection.record().mark_stale();
        Some(connection)
    }

    /// Drops all connections, and makes new ones only for callers that ask; a dial for which one waits goes
    /// on. Requests that are under way go on until a newer one is sent.
    pub(super) fn hang_up(&self) -> Vec<Connection> {
        self.out_of_use.store(true, Ordering::Relaxed);
        let runtime_slots = self.runtime_slots();
        let idle = runtime_slots.iter().filter(|runtime_slot| !runtime_slot.is_awaited());
        idle.for_each(|runtime_slot| runtime_slot.stop());
        // Outside the mutex: the last clone stops its driver.
        let connections =
            runtime_slots.into_iter().filter_map(|runtime_slot| runtime_slot.forget(|_| true));
        connections.inspect(|connection| connection.record().mark_stale()).collect()
    }

    pub(super) fn is_out_of_use(&self) -> bool {
        self.out_of_use.load(Ordering::Relaxed)
    }

    /// Whether others have its keys.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed)
    }
}
