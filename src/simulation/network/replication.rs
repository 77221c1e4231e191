//! The ways from servers to their replicas.

use std::time::Duration;

use tokio::time::Instant;

use super::event::Event;
use super::server_slot::Process;
use super::{Distance, Network, ServerNumber, State};
use crate::simulation::server::{ReplicaId, Update};

fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

impl State {
    /// Sends what a server has written to those that follow it, in order.
    pub(super) fn replicates(&mut self, from: ServerNumber, update: &Update, now: Instant) {
        let distance = self.replication;
        for (to, last) in &mut self.servers[from.0].replicas {
            let jitter = match distance.jitter {
                Duration::ZERO => Duration::ZERO,
                jitter => self.random.up_to(jitter),
            };
            let at = (now + distance.each_way + jitter).max(*last);
            *last = at;
            let update = Event::Update { from, to: *to, update: Box::new(update.clone()) };
            self.events.insert((at, self.next_event), update);
            self.next_event += 1;
        }
    }

    pub(super) fn update(
        &mut self,
        from: ServerNumber,
        to: ServerNumber,
        update: Update,
        now: Instant,
    ) {
        if !self.servers[from.0].replicas.contains_key(&to) {
            return;
        }
        let slot = &mut self.servers[to.0];
        match slot.state {
            Process::Runs => {}
            Process::Stopped | Process::Busy => {
                return slot.inbox.push_back(Event::Update { from, to, update: Box::new(update) });
            }
            Process::Ended => return,
        }
        let offset = update.offset();
        self.at(to, now, |server, wall| server.apply(wall, update));
        let at = now + self.replication.each_way;
        self.schedule(at, Event::Acknowledge { to: from, replica: to, offset });
    }

    pub(super) fn acknowledge(
        &mut self,
        to: ServerNumber,
        replica: ServerNumber,
        offset: u64,
        now: Instant,
    ) {
        let slot = &mut self.servers[to.0];
        match slot.state {
            Process::Runs => {
                self.at(to, now, |server, wall| {
                    server.acknowledge(wall, ReplicaId(replica.0 as u64), offset)
                });
            }
            Process::Stopped | Process::Busy => {
                slot.inbox.push_back(Event::Acknowledge { to, replica, offset })
            }
            Process::Ended => {}
        }
    }

    /// From now on a server follows another one, if that runs, and has all its data; or it follows none.
    pub(super) fn follow(
        &mut self,
        replica: ServerNumber,
        primary: Option<ServerNumber>,
        now: Instant,
    ) {
        self.leave(replica, now);
        self.forget_replicas(replica, now);
        let address = primary.map(|primary| self.servers[primary.0].address.clone());
        let address = address.as_deref().and_then(host_and_port);
        self.at(replica, now, |server, _| server.follow(address));
        let runs = |primary: &ServerNumber| self.servers[primary.0].state != Process::Ended;
        let Some(primary) = primary.filter(runs) else { return };
        let own = self.servers[replica.0].address.clone();
        let (host, port) = host_and_port(&own).unwrap_or_default();
        let data = self.at(primary, now, |server, _| {
            server.attach(ReplicaId(replica.0 as u64), host, port);
            server.snapshot()
        });
        self.servers[primary.0].replicas.insert(replica, now);
        self.at(replica, now, |server, wall| {
            server.load(wall, data);
            server.link(true);
        });
    }

    /// The server has the role of a replica of the one at that address, or of a primary. Where no server is at that
    /// address, it stays a replica without a connection.
    pub(super) fn follow_address(
        &mut self,
        number: ServerNumber,
        primary: Option<(String, u16)>,
        now: Instant,
    ) {
        let known = primary.map(|(host, port)| self.addresses.get(&format!("{host}:{port}")));
        match known.map(Option::<&_>::copied) {
            Some(None) => {
                self.leave(number, now);
                self.forget_replicas(number, now);
            }
            known => self.follow(number, known.flatten(), now),
        }
    }

    /// A server gets nothing more of the one that it follows.
    pub(super) fn leave(&mut self, replica: ServerNumber, now: Instant) {
        let followed = |primary: &usize| self.servers[*primary].replicas.contains_key(&replica);
        let Some(primary) = (0..self.servers.len()).find(followed) else { return };
        self.servers[primary].replicas.remove(&replica);
        let gone = ReplicaId(replica.0 as u64);
        self.at(ServerNumber(primary), now, |server, _| server.detach(gone));
        self.at(replica, now, |server, _| server.link(false));
    }

    pub(super) fn forget_replicas(&mut self, primary: ServerNumber, now: Instant) {
        for replica in self.servers[primary.0].replicas.clone().into_keys() {
            self.leave(replica, now);
        }
    }
}

impl Network {
    /// How far servers are from their replicas.
    pub fn set_replication(&self, distance: Distance) {
        self.with(|state, _| state.replication = distance);
    }

    /// Has a server follow another one, as `REPLICAOF` does, or none. It has the data of that one at once,
    /// and what is written later when it arrives. What is under way to a server that follows another one
    /// from now on, or none, never arrives.
    pub fn follow(&self, replica: ServerNumber, primary: Option<ServerNumber>) {
        self.with(|state, now| state.follow(replica, primary, now));
    }

    /// A replica gets nothing more of its primary, and does not know it.
    pub fn cut_replica(&self, replica: ServerNumber) {
        self.with(|state, now| state.leave(replica, now));
    }

    /// Takes keys from one server to another, as `MIGRATE` does.
    pub fn migrate(&self, from: ServerNumber, to: ServerNumber, keys: &[&str]) {
        let given = self.at(from, |server, now| server.give(now, keys));
        self.at(to, |server, now| server.take(now, given));
    }
}
