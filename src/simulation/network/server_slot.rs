//! The servers' end of the network.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::event::Event;
use super::{ConnectionState, Direction, Network, ServerNumber, State, address_of_connection};
use crate::simulation::server::{ClientId, Effect, Server};

/// What a server's clock shows when its network begins.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// How long a server takes for a request at least. No two scripts see the same time: where the client
/// tells two grants apart by it, it relies on that.
const REQUEST: Duration = Duration::from_micros(1);

/// This many requests keep a server busy for a millisecond, which is what Tokio's timers can tell. Where time is paused
/// and no way takes any, clients that ask and ask again would never let time go on.
const IN_A_MILLISECOND: u32 = 1_000;

/// A server, and the process around it.
pub(super) struct ServerSlot {
    pub(super) server: Server,
    pub(super) address: String,
    /// By number of its client.
    clients: BTreeMap<ClientId, u64>,
    pub(super) state: Process,
    /// What has reached a process that is stopped.
    pub(super) inbox: VecDeque<Event>,
    /// By how much its clock is ahead of the network's, and behind it.
    ahead: Duration,
    behind: Duration,
    /// What its clock shows at least.
    shows: Duration,
    /// How many requests it has carried out at that time.
    carried_out: (Instant, u32),
    /// When its next timer is due.
    timer: Option<Instant>,
    /// The servers that follow it, and when the last of what it has written reaches them.
    pub(super) replicas: BTreeMap<ServerNumber, Instant>,
    /// The function that the network shows each request that the server has received.
    observer: Option<Observer>,
    /// How many of a thousand requests with scripts it executes twice.
    repeats: u64,
}

/// What is shown a server after it has received those bytes.
pub type Observer = Box<dyn FnMut(&Server, &[u8]) + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Process {
    Runs,
    /// The process has carried out all that it can at one time, and goes on soon.
    Busy,
    /// As after SIGSTOP: connections stay, and nothing is answered.
    Stopped,
    Ended,
}

impl ServerSlot {
    fn wall(&self, begun: Instant, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(begun);
        (EPOCH + elapsed + self.ahead).saturating_sub(self.behind).max(self.shows)
    }

    /// Whether what reaches the process has to wait.
    fn is_kept(&self) -> bool {
        matches!(self.state, Process::Stopped | Process::Busy)
    }
}

impl State {
    /// Has a server do something, and carries out what follows.
    pub(super) fn at<T>(
        &mut self,
        number: ServerNumber,
        now: Instant,
        act: impl FnOnce(&mut Server, Duration) -> T,
    ) -> T {
        let slot = &mut self.servers[number.0];
        let wall = slot.wall(self.begun, now);
        let value = act(&mut slot.server, wall);
        for effect in slot.server.take_effects() {
            self.follows(number, effect, now);
        }
        let slot = &mut self.servers[number.0];
        if let Some(next) = slot.server.next_timer() {
            let at = now + next.saturating_sub(wall);
            if slot.timer.is_none_or(|timer| at < timer) {
                slot.timer = Some(at);
                self.schedule(at, Event::Timer(number));
            }
        }
        value
    }

    fn follows(&mut self, number: ServerNumber, effect: Effect, now: Instant) {
        match effect {
            Effect::Send { client, bytes } => {
                if self.asks == Some(client) {
                    self.answer.extend(bytes);
                } else if let Some(&connection) = self.servers[number.0].clients.get(&client) {
                    let answer = Event::Answer(connection, bytes);
                    self.send(connection, Direction::Down, answer, now);
                }
            }
            Effect::Close { client } => {
                if let Some(connection) = self.servers[number.0].clients.remove(&client) {
                    self.connections.entry(connection).and_modify(|one| one.client = None);
                    let ends = Event::Ends(connection, ConnectionState::Ended);
                    self.send(connection, Direction::Down, ends, now);
                }
            }
            Effect::Replicate(update) => self.replicates(number, &update, now),
            Effect::Follow { primary } => self.follow_address(number, primary, now),
        }
    }

    pub(super) fn opens(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.connections.get(&number) else { return };
        let refuses = self
            .links
            .get(&(connection.machine, connection.server))
            .is_some_and(|link| link.refuses);
        let slot = &mut self.servers[connection.server.0];
        let runs = if refuses { Process::Ended } else { slot.state };
        // The kernel accepts connections for a process that is stopped.
        let open = Event::Opened(number, runs != Process::Ended);
        match runs {
            Process::Runs => self.accept(number, now),
            Process::Stopped | Process::Busy => slot.inbox.push_back(Event::Opens(number)),
            Process::Ended => {}
        }
        self.send(number, Direction::Down, open, now);
    }

    fn accept(&mut self, number: u64, now: Instant) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (server, machine) = (connection.server, connection.machine);
        let address = address_of_connection(machine, number);
        let client = self.at(server, now, |server, wall| server.accept(wall, &address));
        self.servers[server.0].clients.insert(client, number);
        self.connections.entry(number).and_modify(|one| one.client = Some(client));
    }

    /// Something of a machine reaches the server.
    pub(super) fn at_server(&mut self, number: u64, event: Event, now: Instant) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (server, client) = (connection.server, connection.client);
        let slot = &mut self.servers[server.0];
        if slot.is_kept() {
            slot.inbox.push_back(event);
            return;
        }
        match event {
            Event::Request(_, bytes) => {
                if let Some(client) = client {
                    slot.shows = slot.wall(self.begun, now) + REQUEST;
                    self.repeat(server, &bytes, now);
                    self.at(server, now, |server, wall| server.receive(wall, client, &bytes));
                    let slot = &mut self.servers[server.0];
                    if let Some(observer) = &mut slot.observer {
                        observer(&slot.server, &bytes);
                    }
                    self.has_carried_out(server, now);
                }
            }
            Event::Closes(_) => {
                if let Some(client) = client {
                    self.servers[server.0].clients.remove(&client);
                    self.at(server, now, |server, wall| server.closed(wall, client));
                }
                self.connections.remove(&number);
            }
            _ => {}
        }
    }

    /// Executes the scripts of a request, perhaps, as when the client had sent it before and the answer was
    /// lost.
    fn repeat(&mut self, number: ServerNumber, bytes: &[u8], now: Instant) {
        let permille = self.servers[number.0].repeats;
        let has_script = || bytes.windows(7).any(|word| word == b"EVALSHA");
        if permille == 0 || !has_script() || !self.random.permille(permille) {
            return;
        }
        let client = self.at(number, now, |server, wall| server.accept(wall, "10.255.0.2:1"));
        self.at(number, now, |server, wall| server.receive(wall, client, bytes));
        self.at(number, now, |server, wall| server.closed(wall, client));
    }

    fn has_carried_out(&mut self, number: ServerNumber, now: Instant) {
        let slot = &mut self.servers[number.0];
        let (at, count) = slot.carried_out;
        slot.carried_out = (now, if at == now { count + 1 } else { 1 });
        if slot.carried_out.1 >= IN_A_MILLISECOND && slot.state == Process::Runs {
            slot.state = Process::Busy;
            self.schedule(now + Duration::from_millis(1), Event::Idle(number));
        }
    }

    pub(super) fn idle(&mut self, number: ServerNumber, now: Instant) {
        if self.servers[number.0].state == Process::Busy {
            self.go_on(number, now);
        }
    }

    pub(super) fn timer(&mut self, number: ServerNumber, now: Instant) {
        let slot = &mut self.servers[number.0];
        // Only the earliest of those that were set counts.
        if slot.timer.is_none_or(|timer| timer > now) {
            return;
        }
        slot.timer = None;
        match slot.state {
            Process::Runs => self.at(number, now, |server, wall| server.tick(wall)),
            Process::Stopped | Process::Busy => slot.inbox.push_back(Event::Timer(number)),
            Process::Ended => {}
        }
    }

    fn go_on(&mut self, number: ServerNumber, now: Instant) {
        self.servers[number.0].state = Process::Runs;
        while self.servers[number.0].state == Process::Runs
            && let Some(event) = self.servers[number.0].inbox.pop_front()
        {
            match event {
                Event::Opens(connection) => self.accept(connection, now),
                Event::Request(connection, _) | Event::Closes(connection) => {
                    self.at_server(connection, event, now);
                }
                Event::Timer(server) => self.at(server, now, |server, wall| server.tick(wall)),
                Event::Update { from, to, update } => self.update(from, to, *update, now),
                Event::Acknowledge { to, replica, offset } => {
                    self.acknowledge(to, replica, offset, now);
                }
                _ => {}
            }
        }
    }

    /// Resets the connections to a server whose process has ended.
    fn end(&mut self, number: ServerNumber, now: Instant) {
        let slot = &mut self.servers[number.0];
        slot.state = Process::Ended;
        slot.inbox.clear();
        let clients = std::mem::take(&mut slot.clients).into_keys();
        self.at(number, now, |server, now| clients.for_each(|client| server.closed(now, client)));
        self.leave(number, now);
        self.forget_replicas(number, now);
        let connections: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.server == number)
            .map(|(number, _)| *number)
            .collect();
        for connection in connections {
            self.connections.entry(connection).and_modify(|one| one.client = None);
            let reset = Event::Ends(connection, ConnectionState::Reset);
            self.send(connection, Direction::Down, reset, now);
        }
    }
}

impl Network {
    /// Adds a server, which clients reach at that host and port.
    pub fn add(&self, server: Server, address: &str) -> ServerNumber {
        self.with(|state, _| {
            let number = ServerNumber(state.servers.len());
            state.servers.push(ServerSlot {
                server,
                address: address.to_owned(),
                clients: BTreeMap::new(),
                state: Process::Runs,
                inbox: VecDeque::new(),
                ahead: Duration::ZERO,
                behind: Duration::ZERO,
                shows: Duration::ZERO,
                carried_out: (state.begun, 0),
                timer: None,
                replicas: BTreeMap::new(),
                observer: None,
                repeats: 0,
            });
            state.addresses.insert(address.to_owned(), number);
            number
        })
    }

    /// Shows an observer a server each time after it has received bytes over the network; none for `None`.
    /// The observer must not use the network.
    pub fn observe(&self, server: ServerNumber, observer: Option<Observer>) {
        self.with(|state, _| state.servers[server.0].observer = observer);
    }

    /// Has a server do something at its own time: the other argument is what its clock shows.
    pub fn at<T>(&self, server: ServerNumber, act: impl FnOnce(&mut Server, Duration) -> T) -> T {
        self.with(|state, now| state.at(server, now, act))
    }

    /// Has the server execute so many of a thousand requests with scripts twice.
    pub fn set_repeats(&self, server: ServerNumber, permille: u64) {
        self.with(|state, _| state.servers[server.0].repeats = permille);
    }

    /// Has a server carry out a command at once, whatever the network is like.
    ///
    /// # Errors
    ///
    /// What the server answers as an error.
    pub fn ask(
        &self,
        server: ServerNumber,
        command: &redis::Cmd,
    ) -> redis::RedisResult<redis::Value> {
        let answer = self.with(|state, now| {
            let client = state.at(server, now, |server, wall| server.accept(wall, "10.255.0.1:1"));
            state.asks = Some(client);
            let bytes = command.get_packed_command();
            state.at(server, now, |server, wall| server.receive(wall, client, &bytes));
            state.asks = None;
            state.at(server, now, |server, wall| server.closed(wall, client));
            std::mem::take(&mut state.answer)
        });
        redis::parse_redis_value(&answer)?.extract_error()
    }

    /// Stops the process of a server: connections stay, and it answers nothing.
    pub fn stop(&self, server: ServerNumber) {
        self.with(|state, _| {
            let slot = &mut state.servers[server.0];
            if slot.state != Process::Ended {
                slot.state = Process::Stopped;
            }
        });
    }

    /// Has the process of a server go on, after it was stopped.
    pub fn go_on(&self, server: ServerNumber) {
        self.with(|state, now| {
            if state.servers[server.0].state == Process::Stopped {
                state.go_on(server, now);
            }
        });
    }

    /// Ends the process of a server: connections are reset, and new ones refused.
    pub fn kill(&self, server: ServerNumber) {
        self.with(|state, now| state.end(server, now));
    }

    /// Starts the process of a server again. `restart` says what it knows.
    pub fn start(&self, server: ServerNumber, restart: impl FnOnce(&mut Server, Duration)) {
        self.with(|state, now| {
            if state.servers[server.0].state != Process::Ended {
                state.end(server, now);
            }
            state.servers[server.0].state = Process::Runs;
            state.servers[server.0].timer = None;
            state.at(server, now, restart);
        });
    }

    /// Sets the clock of a server forward.
    pub fn set_clock_forward(&self, server: ServerNumber, by: Duration) {
        self.with(|state, _| state.servers[server.0].ahead += by);
        self.at(server, |_, _| ());
    }

    /// Sets the clock of a server to that of this machine, in whole milliseconds: where time is paused, what a request
    /// takes would make it the next one now and then, and the server would see a hold begin so much later.
    pub(crate) fn set_clock_to_now(&self, server: ServerNumber) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since_epoch = Duration::from_millis(since_epoch.as_millis() as u64);
        self.with(|state, now| {
            let wall = state.servers[server.0].wall(state.begun, now);
            state.servers[server.0].ahead += since_epoch.saturating_sub(wall);
        });
    }

    /// Sets the clock of a server back.
    pub fn set_clock_back(&self, server: ServerNumber, by: Duration) {
        self.with(|state, _| {
            let slot = &mut state.servers[server.0];
            slot.behind += by;
            slot.shows = Duration::ZERO;
        });
    }

    /// Where clients reach a server.
    pub fn address(&self, server: ServerNumber) -> String {
        self.inner.state.lock().servers[server.0].address.clone()
    }
}
