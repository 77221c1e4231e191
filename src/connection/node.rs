//! One server, and the connections to it; or one master, whichever server that is now.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use redis::{ConnectionInfo, RedisError, RedisResult};
use tokio::runtime::{self, Handle};
use tokio::sync::watch;

use super::dial::Dialler;
use super::lane::Lane;
use super::wire::{Role, Wire};
use super::{address, bad_address, site};
use crate::error::Error;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Commands,
    /// Subscriptions to sharded channels. They need a connection of their own, because a channel
    /// that moves away with its slot is told by a message which the driver takes for the answer to
    /// the oldest command under way.
    Listening,
    /// Waiting for replicas, which has the server answer nothing else on that connection.
    Replicas,
}

pub(crate) struct Node {
    /// No other node of the process has it, not even one that is gone.
    pub(super) number: usize,
    client: Mutex<redis::Client>,
    /// Whether it may turn out to be a replica by now, and is asked.
    has_to_be_master: bool,
    /// Told when another server has become the master.
    moved: watch::Sender<()>,
    /// Whether it is not asked any more, but by those who have to undo something.
    left: AtomicBool,
    lanes: Mutex<Vec<(runtime::Id, Purpose, Arc<Lane>)>>,
}

impl Node {
    /// No I/O.
    pub(super) fn new(info: ConnectionInfo, has_to_be_master: bool) -> Result<Self, Error> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        address::prepare(info.addr())?;
        let client = redis::Client::open(info).map_err(bad_address)?;
        Ok(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            client: client.into(),
            has_to_be_master,
            moved: watch::Sender::default(),
            left: AtomicBool::new(false),
            lanes: Mutex::default(),
        })
    }

    pub(super) fn info(&self) -> ConnectionInfo {
        self.client.lock().get_connection_info().clone()
    }

    pub(super) fn is_at(&self, server: &str) -> bool {
        site::name(&self.info()) == server
    }

    /// Another server is the master now. Returns the connections to those before, which are not to
    /// be used any more.
    pub(super) fn moves_to(&self, info: ConnectionInfo) -> Result<Vec<Wire>, Error> {
        let name = site::name(&info);
        let client = redis::Client::open(info).map_err(bad_address)?;
        *self.client.lock() = client;
        for lane in self.lanes() {
            lane.begin_again();
        }
        self.moved.send_replace(());
        let lanes = self.lanes();
        Ok(lanes.into_iter().filter_map(|lane| lane.take(|wire| wire.server() != name)).collect())
    }

    /// News of another server that has become the master.
    pub(super) fn moves(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    /// A dial to where it is now.
    pub(super) fn dial(
        &self,
        dialler: Arc<Dialler>,
    ) -> impl Future<Output = RedisResult<(Wire, Role)>> + use<> {
        let client = self.client.lock().clone();
        let asks_role = self.has_to_be_master;
        async move { dialler.dial(client, asks_role).await }
    }

    /// What the runtime of whoever calls has of it.
    pub(super) fn lane(&self, purpose: Purpose) -> Arc<Lane> {
        let handle = Handle::current();
        let runtime = handle.id();
        let mut lanes = self.lanes.lock();
        let mine = |lane: &&(runtime::Id, Purpose, _)| (lane.0, lane.1) == (runtime, purpose);
        if let Some((_, _, lane)) = lanes.iter().find(mine) {
            return lane.clone();
        }
        // Lanes of ended runtimes go when a new runtime comes, so that they cannot pile up.
        lanes.retain(|(_, _, lane)| !lane.runtime_has_ended());
        let lane = Arc::new(Lane::new(&handle));
        lanes.push((runtime, purpose, lane.clone()));
        lane
    }

    pub(super) fn is_connected(&self) -> bool {
        self.lanes().iter().any(|lane| lane.in_use().is_some())
    }

    fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().iter().map(|(_, _, lane)| lane.clone()).collect()
    }

    /// Drops the connection of that number, if it is one of these.
    pub(super) fn forget(&self, number: u64) -> Option<Wire> {
        let wire =
            self.lanes().iter().find_map(|lane| lane.take(|wire| wire.number() == number))?;
        wire.mark_stale();
        Some(wire)
    }

    /// Drops all connections, and makes no more but for those who ask. Requests that are under way go
    /// on until a newer one is sent.
    pub(super) fn hang_up(&self) -> Vec<Wire> {
        self.left.store(true, Ordering::Relaxed);
        let lanes = self.lanes();
        lanes.iter().for_each(|lane| lane.stop());
        // Outside the mutex: the last clone stops its driver.
        let wires = lanes.into_iter().filter_map(|lane| lane.take(|_| true));
        wires.inspect(Wire::mark_stale).collect()
    }

    pub(super) fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Why a connection that stands is of no use.
pub(super) fn moved() -> RedisError {
    io::Error::other("another server has become the master").into()
}
