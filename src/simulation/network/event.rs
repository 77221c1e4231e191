//! What happens in a network, and when.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::{Connection, ConnectionState, Direction, ServerNumber, State};
use crate::simulation::server::Update;

/// Something that happens at a server or at a machine.
pub(super) enum Event {
    /// A connection reaches its server.
    Opens(u64),
    /// The machine learns that the connection is open, or refused.
    Opened(u64, bool),
    /// Bytes reach the server.
    Request(u64, Vec<u8>),
    /// The server learns that the machine has closed the connection.
    Closes(u64),
    /// Bytes reach the machine.
    Answer(u64, Vec<u8>),
    /// The machine learns that the server has closed or reset the connection.
    Ends(u64, ConnectionState),
    /// A trap lets go what it has held of a connection.
    LetGo(u64),
    /// A server has something to do by itself.
    Timer(ServerNumber),
    /// A server has been busy for long enough.
    Idle(ServerNumber),
    /// A replica gets what its primary has written.
    Update { from: ServerNumber, to: ServerNumber, update: Box<Update> },
    /// A primary learns what a replica has.
    Acknowledge { to: ServerNumber, replica: ServerNumber, offset: u64 },
}

impl State {
    pub(super) fn note(&mut self, now: Instant, about: u64, what: &[u8]) {
        let micros = now.saturating_duration_since(self.begun).as_micros() as u64;
        let mut trace = self.trace ^ micros ^ about.rotate_left(32);
        for chunk in what.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            trace = (trace ^ u64::from_le_bytes(word)).wrapping_mul(0x9fb2_1c65_1e98_df25);
            trace ^= trace >> 35;
        }
        self.trace = trace.rotate_left(7);
    }

    pub(super) fn schedule(&mut self, at: Instant, event: Event) {
        self.events.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    /// Carries out what is due, in order.
    pub(super) fn run_due(&mut self, now: Instant) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= now
        {
            let event = entry.remove();
            self.happens(event, now);
        }
    }

    /// Sends something on its way over a connection.
    pub(super) fn send(&mut self, number: u64, direction: Direction, event: Event, now: Instant) {
        let Some(event) = self.past_traps(number, direction, event, now) else { return };
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let bytes = match &event {
            Event::Request(_, bytes) | Event::Answer(_, bytes) => bytes.len(),
            _ => 0,
        };
        let link = self.links.entry((connection.machine, connection.server)).or_default();
        let distance = link.distance.unwrap_or(self.distance);
        let way = link.way(direction);
        if way.flow == super::Flow::Held {
            way.held.push(event);
            return;
        }
        let last = match direction {
            Direction::Up => &mut connection.last_up,
            Direction::Down => &mut connection.last_down,
        };
        let at = way.arrival(bytes, &distance, &mut self.random, now).max(*last);
        *last = at;
        self.schedule(at, event);
    }

    fn happens(&mut self, event: Event, now: Instant) {
        match event {
            Event::Opens(number) => self.opens(number, now),
            Event::Opened(number, open) => {
                if let Some(connection) = self.connections.get_mut(&number)
                    && connection.state == ConnectionState::Opening
                {
                    let state = if open { ConnectionState::Open } else { ConnectionState::Refused };
                    connection.state = state;
                    self.wakes.extend(connection.reader.take());
                }
            }
            Event::Request(number, bytes) => {
                self.at_server(number, Event::Request(number, bytes), now)
            }
            Event::Closes(number) => self.at_server(number, Event::Closes(number), now),
            Event::Answer(number, bytes) => {
                self.note(now, 2 * number + 1, &bytes);
                let Some(connection) = self.connections.get_mut(&number) else { return };
                if connection.is_open() {
                    connection.arrived.push_back(bytes);
                    self.wakes.extend(connection.reader.take());
                }
            }
            Event::Ends(number, state) => {
                let Some(connection) = self.connections.get_mut(&number) else { return };
                if connection.is_open() {
                    connection.state = state;
                    self.wakes.extend(connection.reader.take());
                }
            }
            Event::LetGo(number) => self.let_go(number, now),
            Event::Timer(server) => self.timer(server, now),
            Event::Idle(server) => self.idle(server, now),
            Event::Update { from, to, update } => self.update(from, to, *update, now),
            Event::Acknowledge { to, replica, offset } => {
                self.acknowledge(to, replica, offset, now)
            }
        }
    }

    /// The machine's end: begins to open a connection.
    pub(super) fn connect(&mut self, machine: u64, address: &str, now: Instant) -> io::Result<u64> {
        let server = *self.addresses.get(address).ok_or(io::ErrorKind::NotFound)?;
        let number = self.next_connection;
        self.next_connection += 1;
        let connection = Connection {
            machine,
            server,
            begun: now,
            client: None,
            last_up: now,
            last_down: now,
            arrived: VecDeque::new(),
            read: 0,
            reader: None,
            state: ConnectionState::Opening,
            is_closed: false,
            trapped: Default::default(),
        };
        self.connections.insert(number, connection);
        self.send(number, Direction::Up, Event::Opens(number), now);
        Ok(number)
    }

    pub(super) fn poll_opened(
        &mut self,
        number: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(connection) = self.connections.get_mut(&number) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        match connection.state {
            ConnectionState::Opening => {
                connection.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            ConnectionState::Refused => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// The machine closes its end. What it has sent still arrives.
    pub(super) fn close(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if std::mem::replace(&mut connection.is_closed, true) {
            return;
        }
        self.wakes.extend(connection.reader.take());
        if connection.state == ConnectionState::Refused {
            self.connections.remove(&number);
        } else {
            self.send(number, Direction::Up, Event::Closes(number), now);
        }
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        !self.is_closed && matches!(self.state, ConnectionState::Open | ConnectionState::Opening)
    }
}
