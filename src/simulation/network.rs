//! The network between machines and servers, and the servers at its other end.
//!
//! Everything that happens is an event at a time: bytes reach a server or a machine, a connection is made
//! or has ended, a server's own timer is due. What is due now happens at once, in the task that causes
//! it; the rest waits in one queue, which [`carry`](Network::carry) empties.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::random::Random;
use super::server::ClientId;
use crate::clock::{self, LONGEST_SLEEP};

mod event;
mod faults;
mod link;
mod replication;
mod server_slot;
mod stream;
mod trap;

use event::Event;
use link::Link;
pub use link::{Direction, Distance, Flow};
pub use server_slot::Observer;
use server_slot::ServerSlot;
pub(super) use stream::SimulatedStream;
pub use trap::{Fate, Fates};
use trap::{Trap, Trapped};

/// One of the servers of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerNumber(pub(super) usize);

/// One of the machines of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineNumber(pub(super) u64);

/// A network with its servers. Cloning is cheap, and all clones are the same network.
#[derive(Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// When the network began. Also for an observer, which the network calls while the state is locked.
    begun: Instant,
    /// Notified when there is an earlier event to wait for.
    sooner: Arc<Notify>,
    /// The runtime whose time the network has; real time for `None`.
    handle: Option<Handle>,
}

struct State {
    begun: Instant,
    random: Random,
    servers: Vec<ServerSlot>,
    addresses: BTreeMap<String, ServerNumber>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    links: BTreeMap<(u64, ServerNumber), Link<Event, Trap>>,
    /// For machines and servers about which nothing else was said.
    distance: Distance,
    /// How long a write takes from a primary to its replicas.
    replication: Distance,
    /// What happens later, in order.
    events: BTreeMap<(Instant, u64), Event>,
    next_event: u64,
    carrier: Option<AbortHandle>,
    /// Readers to wake once the mutex is released.
    wakes: Vec<Waker>,
    /// The client that asks beside the network, and the answers that it got.
    asks: Option<ClientId>,
    answer: Vec<u8>,
    trace: u64,
    fates: Fates,
}

/// A connection between a machine and a server.
struct Connection {
    machine: u64,
    server: ServerNumber,
    begun: Instant,
    /// The server's number for the client, once the server has accepted the connection.
    client: Option<ClientId>,
    /// When the last bytes of each direction arrive: no later ones arrive before.
    last_up: Instant,
    last_down: Instant,
    /// What has arrived at the machine.
    arrived: VecDeque<Vec<u8>>,
    /// How much of the first of them has been read.
    read: usize,
    reader: Option<Waker>,
    state: ConnectionState,
    /// Whether the machine has closed its end.
    is_closed: bool,
    trapped: Trapped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Opening,
    Open,
    /// The server has closed it.
    Ended,
    Reset,
    Refused,
}

/// Where a machine is, as servers see it.
pub(super) fn address_of(machine: u64) -> String {
    format!("10.0.{}.{}", machine / 250, machine % 250 + 1)
}

/// The machine's end of a connection, as its server sees it.
fn address_of_connection(machine: u64, number: u64) -> String {
    format!("{}:{}", address_of(machine), 1024 + number)
}

/// A real server counts the time for which the machine sleeps, and so do its clients.
fn real_now() -> Instant {
    clock::real_now().into()
}

impl Network {
    /// A network in which nothing is yet. It takes the time of the runtime that calls this; outside of one
    /// it takes real time.
    pub fn new(seed: u64) -> Self {
        Self::with_time_of(seed, Handle::try_current().ok())
    }

    /// A network in which nothing is yet. It takes the time of that runtime, or real time.
    pub(super) fn with_time_of(seed: u64, handle: Option<Handle>) -> Self {
        let mut random = Random::new(seed);
        // A test may have paused the time of the runtime that calls this.
        let begun = if handle.is_some() { Instant::now() } else { real_now() };
        let state = State {
            begun,
            random: random.fork(),
            servers: Vec::new(),
            addresses: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 1,
            links: BTreeMap::new(),
            distance: Distance::default(),
            replication: Distance::default(),
            events: BTreeMap::new(),
            next_event: 0,
            carrier: None,
            wakes: Vec::new(),
            asks: None,
            answer: Vec::new(),
            trace: seed,
            fates: Fates::default(),
        };
        Self {
            inner: Arc::new(Inner { state: state.into(), begun, sooner: Arc::default(), handle }),
        }
    }

    pub(super) fn handle(&self) -> Option<Handle> {
        self.inner.handle.clone()
    }

    /// Whether the runtime has ended whose time it takes.
    pub(crate) fn has_ended(&self) -> bool {
        self.inner.handle.as_ref().is_some_and(|runtime| {
            // A runtime that has ended drops it at once.
            let task = runtime.spawn(std::future::pending::<()>());
            let has_ended = task.is_finished();
            task.abort();
            has_ended
        })
    }

    /// The time of this network.
    pub(super) fn now(&self) -> Instant {
        match &self.inner.handle {
            Some(handle) => {
                let _time = handle.enter();
                Instant::now()
            }
            None => real_now(),
        }
    }

    /// How long it has existed.
    pub fn elapsed(&self) -> Duration {
        self.now().saturating_duration_since(self.inner.begun)
    }

    /// A hash over everything that was sent, and when.
    pub fn trace(&self) -> u64 {
        self.inner.state.lock().trace
    }

    /// Adds something to that hash.
    pub fn note(&self, what: &[u8]) {
        let now = self.now();
        self.inner.state.lock().note(now, 0, what);
    }

    /// Changes the state, carries out what is due, and wakes whom that concerns.
    fn with<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = self.now();
        let (value, wakes, earlier) = {
            let mut state = self.inner.state.lock();
            let first = state.events.first_key_value().map(|(key, _)| *key);
            let value = change(&mut state, now);
            state.run_due(now);
            let next = state.events.first_key_value().map(|(key, _)| *key);
            (value, std::mem::take(&mut state.wakes), next.is_some() && next != first)
        };
        if earlier {
            self.inner.sooner.notify_one();
        }
        wakes.into_iter().for_each(Waker::wake);
        value
    }

    /// Carries out events when they are due, for as long as the network exists.
    async fn carry(inner: Weak<Inner>, sooner: Arc<Notify>) {
        while let Some(inner) = inner.upgrade() {
            let network = Self { inner };
            network.with(|_, _| ());
            let next = network.inner.state.lock().events.first_key_value().map(|((at, _), _)| *at);
            let left = next.map(|at| at.saturating_duration_since(network.now()));
            // Timers do not notice that the machine has slept.
            let is_real = network.inner.handle.is_none();
            drop(network);
            match left {
                Some(left) => {
                    let left = if is_real { left.min(LONGEST_SLEEP) } else { left };
                    let _ = tokio::time::timeout(left, sooner.notified()).await;
                }
                None => sooner.notified().await,
            }
        }
    }

    /// Has a task carry the events, unless there is one.
    fn start_carrying(&self) {
        let mut state = self.inner.state.lock();
        if state.carrier.as_ref().is_none_or(AbortHandle::is_finished) {
            // In real time no runtime of a caller will do: it may end, stand still, or have its time paused.
            let runtime = self.inner.handle.clone().or_else(|| clock::elsewhere().cloned());
            let runtime = runtime.unwrap_or_else(Handle::current);
            let carry = Self::carry(Arc::downgrade(&self.inner), self.inner.sooner.clone());
            state.carrier = Some(runtime.spawn(carry).abort_handle());
        }
    }

    /// Connects a machine to the server at an address.
    pub(super) async fn connect(&self, machine: u64, address: &str) -> io::Result<SimulatedStream> {
        self.start_carrying();
        let number = self.with(|state, now| state.connect(machine, address, now))?;
        // Its drop closes the connection.
        let stream = SimulatedStream { network: self.clone(), number };
        std::future::poll_fn(|cx| self.with(|state, _| state.poll_opened(number, cx))).await?;
        Ok(stream)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(carrier) = self.state.get_mut().carrier.take() {
            carrier.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn in_real_time_a_network_takes_no_time_from_a_paused_runtime() {
        tokio::time::advance(Duration::from_secs(3600)).await;
        let network = Network::with_time_of(0, None);
        let begun = std::time::Instant::now();
        while begun.elapsed().is_zero() {}
        assert!(network.elapsed() > Duration::ZERO, "its clock stands still");
    }

    #[test]
    fn in_real_time_a_lease_ends_though_the_machine_sleeps() {
        let redis = crate::test_util::Redis::new();
        let ask = |words: &[&str]| -> Option<String> {
            redis.query(redis::cmd(words[0]).arg(&words[1..])).expect("an answer")
        };
        ask(&["SET", "k", "v", "PX", "60000"]);
        assert!(ask(&["GET", "k"]).is_some());
        crate::tests::suspended::suspend(Duration::from_secs(61));
        assert_eq!(ask(&["GET", "k"]), None);
    }
}
