//! What befalls single requests: pure.

use std::time::Duration;

use tokio::time::Instant;

use super::event::Event;
use super::{Direction, MachineNumber, Network, ServerNumber, State};

/// What befalls a request. What is behind it on its connection has the same fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The connection is reset before the request is sent.
    Lost,
    /// The server executes it. In place of the answer the connection is reset.
    AnswerLost,
    /// The request is held for that long, even if its caller closes the connection.
    HeldFor(Duration),
}

/// What became of the requests that were held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fates {
    /// All of them.
    pub held: u64,
    /// The server executed them after their callers had closed the connection.
    pub late: u64,
    /// The server executed them before their callers had closed the connection.
    pub slow: u64,
    /// The server had closed the connection.
    pub never: u64,
}

pub(super) struct Trap {
    command: Vec<u8>,
    /// How many requests pass before the trap springs.
    passes: u64,
    fate: Fate,
}

/// What befalls a connection because of a trap.
#[derive(Default)]
pub(super) struct Trapped {
    /// What waits to be sent to the server.
    held: Option<Vec<Event>>,
    loses_answer: bool,
}

impl Trap {
    /// Whether the trap springs at those requests.
    fn springs(&mut self, bytes: &[u8]) -> bool {
        let many = bytes.windows(self.command.len()).filter(|part| *part == self.command).count();
        let springs = many as u64 > self.passes;
        self.passes = self.passes.saturating_sub(many as u64);
        springs
    }
}

impl State {
    /// What is sent after all, of what is to be sent.
    pub(super) fn past_traps(
        &mut self,
        number: u64,
        direction: Direction,
        event: Event,
        now: Instant,
    ) -> Option<Event> {
        let connection = self.connections.get_mut(&number)?;
        let trapped = &mut connection.trapped;
        if direction == Direction::Down {
            if !trapped.loses_answer || !matches!(event, Event::Answer(..)) {
                return Some(event);
            }
            trapped.loses_answer = false;
            self.cut(number, true, now);
            return None;
        }
        if let Some(held) = &mut trapped.held {
            held.push(event);
            return None;
        }
        let Event::Request(_, bytes) = &event else { return Some(event) };
        let link = self.links.entry((connection.machine, connection.server)).or_default();
        let sprung = link.traps.iter_mut().position(|trap| trap.springs(bytes));
        let Some(sprung) = sprung else { return Some(event) };
        match link.traps.remove(sprung).fate {
            Fate::Lost => self.cut(number, true, now),
            Fate::AnswerLost => {
                trapped.loses_answer = true;
                return Some(event);
            }
            Fate::HeldFor(time) => {
                trapped.held = Some(vec![event]);
                self.fates.held += 1;
                self.schedule(now + time, Event::LetGo(number));
            }
        }
        None
    }

    /// Sends what a trap has held.
    pub(super) fn let_go(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let fate = match (connection.client, connection.is_closed) {
            (None, _) => &mut self.fates.never,
            (_, true) => &mut self.fates.late,
            _ => &mut self.fates.slow,
        };
        *fate += 1;
        let held = connection.trapped.held.take();
        for event in held.into_iter().flatten() {
            self.send(number, Direction::Up, event, now);
        }
    }
}

impl Network {
    /// Sets a trap for requests of a machine with that command: so many of them pass before.
    pub fn set_trap(
        &self,
        machine: impl Into<MachineNumber>,
        server: ServerNumber,
        command: &str,
        passes: u64,
        fate: Fate,
    ) {
        let command = format!("\n{command}\r").into_bytes();
        let trap = Trap { command, passes, fate };
        let link = (machine.into().0, server);
        self.with(|state, _| state.links.entry(link).or_default().traps.push(trap));
    }

    /// Removes the traps for a machine that have not sprung. Returns how many there were.
    pub fn remove_traps(&self, machine: impl Into<MachineNumber>, server: ServerNumber) -> usize {
        let link = (machine.into().0, server);
        self.with(|state, _| std::mem::take(&mut state.links.entry(link).or_default().traps).len())
    }

    /// What became of the requests that traps have held.
    pub fn fates(&self) -> Fates {
        self.inner.state.lock().fates
    }
}
