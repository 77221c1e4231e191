//! What a world does to the ways between machines and servers.

use std::time::Duration;

use tokio::time::Instant;

use super::event::Event;
use super::{
    ConnectionState, Direction, Distance, Flow, MachineNumber, Network, ServerNumber, State,
    address_of_connection,
};

impl Network {
    /// How far machines are from servers, where nothing else is said.
    pub fn set_distance(&self, distance: Distance) {
        self.with(|state, _| state.distance = distance);
    }

    /// How far one machine is from one server.
    pub fn set_distance_of(
        &self,
        machine: impl Into<MachineNumber>,
        server: ServerNumber,
        distance: Distance,
    ) {
        let link = (machine.into().0, server);
        self.with(|state, _| state.links.entry(link).or_default().distance = Some(distance));
    }

    /// Has the server's machine refuse new connections from a machine, or not any more.
    pub fn set_refusing(&self, machine: impl Into<MachineNumber>, server: ServerNumber, yes: bool) {
        let link = (machine.into().0, server);
        self.with(|state, _| state.links.entry(link).or_default().refuses = yes);
    }

    /// Opens or closes one way between a machine and a server. What is held is sent when it opens.
    /// Returns how much was held.
    pub fn set_flow(
        &self,
        machine: impl Into<MachineNumber>,
        server: ServerNumber,
        direction: Direction,
        flow: Flow,
    ) -> usize {
        let link = (machine.into().0, server);
        self.with(|state, now| {
            let way = state.links.entry(link).or_default().way(direction);
            way.flow = flow;
            if flow == Flow::Held {
                return 0;
            }
            let held = std::mem::take(&mut way.held);
            let many = held.len();
            held.into_iter().for_each(|event| state.send_again(event, direction, now));
            many
        })
    }

    /// Resets the connections between a machine and a server. What is under way to the server arrives
    /// if `arrives`; answers that are under way do not.
    pub fn cut(&self, machine: impl Into<MachineNumber>, server: ServerNumber, arrives: bool) {
        let machine = machine.into().0;
        self.with(|state, now| {
            let of_both = |connection: &super::Connection| {
                (connection.machine, connection.server) == (machine, server)
            };
            let connections = state.connections.iter().filter(|(_, one)| of_both(one));
            let numbers: Vec<u64> = connections.map(|(number, _)| *number).collect();
            for number in numbers {
                state.cut(number, arrives, now);
            }
        });
    }

    /// Resets one connection of the machine to the server: the `nth` of those that the machine has not closed.
    /// False if it has fewer.
    pub fn cut_one(
        &self,
        machine: impl Into<MachineNumber>,
        server: ServerNumber,
        nth: usize,
        arrives: bool,
    ) -> bool {
        let machine = machine.into().0;
        self.with(|state, now| {
            let number = state.open(machine, server).nth(nth);
            number.inspect(|number| state.cut(*number, arrives, now)).is_some()
        })
    }

    /// How many connections a machine has to a server.
    pub fn connections(&self, machine: impl Into<MachineNumber>, server: ServerNumber) -> usize {
        self.inner.state.lock().open(machine.into().0, server).count()
    }

    /// When a machine began each of those: how long ago, by its address as the server sees it. In their order.
    pub fn ages(
        &self,
        machine: impl Into<MachineNumber>,
        server: ServerNumber,
    ) -> Vec<(String, Duration)> {
        let (machine, now) = (machine.into().0, self.now());
        let state = self.inner.state.lock();
        let age = |number| {
            let begun = state.connections[&number].begun;
            (address_of_connection(machine, number), now.saturating_duration_since(begun))
        };
        state.open(machine, server).map(age).collect()
    }

    /// How many connections were begun so far.
    pub fn connections_made(&self) -> u64 {
        self.inner.state.lock().next_connection - 1
    }

    /// Resets all connections of a machine that has crashed.
    pub(in crate::simulation) fn crashed(&self, machine: u64) {
        self.with(|state, now| {
            let connections = state.connections.iter().filter(|(_, one)| one.machine == machine);
            let numbers: Vec<u64> = connections.map(|(number, _)| *number).collect();
            for number in numbers {
                state.close(number, now);
            }
        });
    }
}

impl State {
    /// The connections of a machine to a server that it has not closed.
    fn open(&self, machine: u64, server: ServerNumber) -> impl Iterator<Item = u64> {
        let open = self.connections.iter().filter(|(_, one)| !one.is_closed);
        let of_both = open.filter(move |(_, one)| (one.machine, one.server) == (machine, server));
        of_both.map(|(number, _)| *number)
    }

    fn send_again(&mut self, event: Event, direction: Direction, now: Instant) {
        let (Event::Opens(number)
        | Event::Opened(number, _)
        | Event::Request(number, _)
        | Event::Closes(number)
        | Event::Answer(number, _)
        | Event::Ends(number, _)) = &event
        else {
            return;
        };
        self.send(*number, direction, event, now);
    }

    pub(super) fn cut(&mut self, number: u64, arrives: bool, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.state = ConnectionState::Reset;
        connection.arrived.clear();
        self.wakes.extend(connection.reader.take());
        if arrives {
            return self.close(number, now);
        }
        let is_of_it = |event: &Event| match event {
            Event::Opens(one) | Event::Request(one, _) => *one == number,
            _ => false,
        };
        self.events.retain(|_, event| !is_of_it(event));
        let link = (connection.machine, connection.server);
        let way = self.links.entry(link).or_default().way(Direction::Up);
        way.held.retain(|event| !is_of_it(event));
        self.close(number, now);
    }
}
