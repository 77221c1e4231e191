//! One server, and the connections to it; or one master, whichever server that is now.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::{ConnectionInfo, RedisError, RedisResult, Value};
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;

use super::abandoned::Abandoned;
use super::lane::Lane;
use super::verdict::{Verdict, verdict};
use super::wire::{Birth, Wire};
use super::{Link, address, bad_address, site};
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
    client: Mutex<redis::Client>,
    /// Whether it may turn out to be a replica by now, and is asked.
    has_to_be_master: bool,
    /// Told when another server has become the master.
    moved: Notify,
    lanes: Mutex<Vec<(runtime::Id, Purpose, Arc<Lane>)>>,
    abandoned: Arc<Abandoned>,
}

impl Node {
    /// No I/O.
    pub(super) fn new(info: ConnectionInfo, has_to_be_master: bool) -> Result<Self, Error> {
        address::prepare(info.addr())?;
        let client = redis::Client::open(info).map_err(bad_address)?;
        Ok(Self {
            client: client.into(),
            has_to_be_master,
            moved: Notify::new(),
            lanes: Mutex::default(),
            abandoned: Arc::default(),
        })
    }

    /// The same, where something was given up before.
    pub(super) fn after(self, abandoned: Arc<Abandoned>) -> Self {
        Self { abandoned, ..self }
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
        self.moved.notify_waiters();
        self.abandoned.keep_only(&name);
        if seeded!("old-master-kept") {
            return Ok(Vec::new());
        }
        let lanes = self.lanes();
        Ok(lanes.into_iter().filter_map(|lane| lane.take(|wire| wire.server() != name)).collect())
    }

    /// Fails at once when another server becomes the master: the one of before may be dead.
    pub(super) async fn dial(&self, link: &Link, lane: &Lane) -> RedisResult<Wire> {
        // Before the look at where it is.
        let moves = self.moved.notified();
        tokio::select! {
            biased;
            () = moves => Err(moved()),
            wire = self.dial_here(link, lane) => wire,
        }
    }

    async fn dial_here(&self, link: &Link, lane: &Lane) -> RedisResult<Wire> {
        let client = self.client.lock().clone();
        let birth = Birth {
            number: link.next_number(),
            server: site::name(client.get_connection_info()),
            abandoned: self.abandoned.clone(),
            unanswered: lane.unanswered.clone(),
        };
        let server = birth.server.clone();
        let wire = Wire::dial(&client, birth, link.dial_timeout, link.pushes.clone()).await?;
        if self.has_to_be_master
            && !seeded!("role-unasked")
            && tokio::time::timeout(link.dial_timeout, is_replica(&wire))
                .await
                .map_err(io::Error::from)??
        {
            link.is_no_master(&server);
            return Err(io::Error::other("the server is a replica").into());
        }
        Ok(wire)
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

    /// No new request goes to the connection of that number, and what it may still have under way
    /// comes to nothing.
    pub(super) fn forget(&self, number: u64) -> Option<Wire> {
        let by_number = |wire: &Wire| wire.number() == number;
        let wire = self.lanes().iter().find_map(|lane| lane.take(by_number))?;
        if self.is_at(wire.server()) {
            self.abandoned.add(&wire);
        }
        Some(wire)
    }

    /// The same with all connections.
    pub(super) fn give_up(&self) -> Vec<Wire> {
        let wires = self.hang_up();
        wires.iter().for_each(|wire| self.abandoned.add(wire));
        wires
    }

    /// Takes all connections out of use; they close when the last request on them is done.
    pub(super) fn hang_up(&self) -> Vec<Wire> {
        // Outside the mutex: the last clone stops its driver.
        self.lanes().into_iter().filter_map(|lane| lane.take(|_| true)).collect()
    }
}

/// Why a connection that stands is of no use.
pub(super) fn moved() -> RedisError {
    io::Error::other("another server has become the master").into()
}

/// What a Sentinel says can be old, and what was true can end before the connection stands.
async fn is_replica(wire: &Wire) -> RedisResult<bool> {
    match wire.send(&redis::cmd("ROLE")).await {
        Ok(Value::Array(role)) => {
            Ok(role.first().is_some_and(|role| *role != Value::BulkString(b"master".to_vec())))
        }
        Err(error) if verdict(&error) == Verdict::Broken => Err(error),
        // Whoever may not ask finds out by its first write.
        _ => Ok(false),
    }
}
