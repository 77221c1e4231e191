//! A machine on which clients run.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};

use super::network::{MachineNumber, Network, address_of};
use super::random::Random;
use crate::host::simulated::{self, BoxFuture, Here, Host, Stream, here};

/// On a busy machine one of this many polls of a task comes late.
const LATE: u64 = 8;

/// A machine in a [`Network`]. Cloning is cheap, and all clones are the same machine.
#[derive(Clone)]
pub struct Machine {
    inner: Arc<Inner>,
}

struct Inner {
    number: u64,
    network: Network,
    random: Mutex<Random>,
    runtimes: AtomicU64,
    /// How late its tasks run at most, in milliseconds.
    lateness: AtomicU64,
    state: Mutex<State>,
    /// The tasks of each runtime that can end; `None` if it has ended.
    tasks: Mutex<BTreeMap<u64, Option<Vec<AbortHandle>>>>,
}

/// A runtime on a machine, beside others. Its tasks are dropped when it ends, those that the clients
/// have spawned in it, too.
pub struct MachineRuntime {
    machine: Arc<Inner>,
    number: u64,
}

struct State {
    process: Process,
    /// The tasks that were to run while it did not.
    wakers: Vec<Waker>,
    clock: Clock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Runs,
    /// As after SIGSTOP.
    Stopped,
    Crashed,
}

/// What its clock showed at some time of the network, and how many thousandths of a second it counts in
/// each second from then on.
struct Clock {
    at: tokio::time::Instant,
    showed: Instant,
    permille: u32,
}

impl Clock {
    fn now(&self, now: tokio::time::Instant) -> Instant {
        let since = now.saturating_duration_since(self.at);
        self.showed + since * self.permille / 1000
    }
}

impl Machine {
    /// A machine in a network. No two have the same number.
    pub fn new(network: &Network, number: u64, seed: u64) -> Self {
        let now = network.now();
        let clock = Clock { at: now, showed: now.into_std(), permille: 1000 };
        let state = State { process: Process::Runs, wakers: Vec::new(), clock };
        let inner = Inner {
            number,
            network: network.clone(),
            random: Random::new(seed).into(),
            runtimes: AtomicU64::new(1),
            lateness: AtomicU64::new(0),
            state: state.into(),
            tasks: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The number that it was made with.
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// The address of the machine, as servers see it.
    pub fn address(&self) -> String {
        address_of(self.inner.number)
    }

    pub(crate) fn host(&self) -> Host {
        Host::of(self.inner.clone(), 0)
    }

    /// Has a future run on this machine: the clients that it makes run there, too.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.host().run(future)
    }

    /// Has a future run on this machine, in a task of its own.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        tokio::spawn(Here::from(self.host().run(future)))
    }

    /// Keeps a future on the machine of the calling task, wherever it is spawned.
    pub fn here<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
        here(future)
    }

    /// Spawns a task on the machine of the calling task.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn spawn_here<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        tokio::spawn(here(future))
    }

    /// A connection of its own to a server, for another kind of client.
    ///
    /// # Errors
    ///
    /// If nothing is at that address, or the server refuses the connection.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(
        &self,
        address: &str,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>> {
        self.inner.network.connect(self.inner.number, address).await
    }

    /// Starts a runtime beside the others of this machine.
    pub fn start_runtime(&self) -> MachineRuntime {
        let machine = self.inner.clone();
        let number = simulated::Machine::new_runtime(&*machine);
        machine.tasks.lock().insert(number, Some(Vec::new()));
        MachineRuntime { machine, number }
    }

    /// Has each of its tasks run late now and then, by up to so many whole milliseconds, as beside others that keep its
    /// processors busy: what came in one order may be processed in another.
    pub fn set_lateness(&self, lateness: Duration) {
        let millis = u64::try_from(lateness.as_millis()).unwrap_or(u64::MAX);
        self.inner.lateness.store(millis, Ordering::Relaxed);
    }

    /// Stops its tasks. Its connections stay, and time goes on.
    pub fn stop(&self) {
        let mut state = self.inner.state.lock();
        if state.process == Process::Runs {
            state.process = Process::Stopped;
        }
    }

    /// Has its tasks go on after [`stop`](Self::stop).
    pub fn go_on(&self) {
        let wakers = {
            let mut state = self.inner.state.lock();
            if state.process == Process::Stopped {
                state.process = Process::Runs;
            }
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Stops its tasks for good, and resets its connections. What was sent still arrives.
    pub fn crash(&self) {
        self.inner.state.lock().process = Process::Crashed;
        self.inner.network.crashed(self.inner.number);
    }

    /// Sets its clock forward, as after a suspension that its timers do not notice.
    pub fn suspend(&self, by: Duration) {
        self.set_clock(|clock| clock.showed += by);
    }

    /// Has its clock count so many thousandths of each second.
    pub fn set_speed(&self, permille: u32) {
        self.set_clock(|clock| clock.permille = permille);
    }

    fn set_clock(&self, change: impl FnOnce(&mut Clock)) {
        let now = self.inner.network.now();
        let clock = &mut self.inner.state.lock().clock;
        (clock.showed, clock.at) = (clock.now(now), now);
        change(clock);
    }
}

impl From<&Machine> for MachineNumber {
    fn from(machine: &Machine) -> Self {
        Self(machine.inner.number)
    }
}

impl MachineRuntime {
    /// Spawns a task in it.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of Tokio.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let host = Host::of(self.machine.clone(), self.number);
        simulated::Runtime::of(host).spawn(future)
    }

    /// Ends it: its tasks are dropped as soon as they are not polled.
    pub fn end(self) {
        let ended = self.machine.tasks.lock().insert(self.number, None);
        ended.flatten().into_iter().flatten().for_each(|task| task.abort());
    }
}

impl simulated::Machine for Inner {
    fn now(&self) -> Option<Instant> {
        self.network.handle()?;
        let now = self.network.now();
        Some(self.state.lock().clock.now(now))
    }

    fn sleep(&self, duration: Duration) -> Option<BoxFuture<()>> {
        let handle = self.network.handle()?;
        let permille = self.state.lock().clock.permille;
        let _time = handle.enter();
        Some(Box::pin(tokio::time::sleep(duration.saturating_mul(1000) / permille)))
    }

    fn connect(&self, _: u64, addr: &ConnectionAddr) -> BoxFuture<io::Result<Box<dyn Stream>>> {
        let (network, machine, address) = (self.network.clone(), self.number, addr.to_string());
        Box::pin(async move {
            let stream: Box<dyn Stream> = Box::new(network.connect(machine, &address).await?);
            Ok(stream)
        })
    }

    fn random(&self) -> u64 {
        self.random.lock().number()
    }

    fn name(&self) -> Option<String> {
        self.network.handle().map(|_| format!("machine-{}", self.number))
    }

    fn handle(&self) -> Option<Handle> {
        self.network.handle()
    }

    fn new_runtime(&self) -> u64 {
        self.runtimes.fetch_add(1, Ordering::Relaxed)
    }

    fn spawned(&self, runtime: u64, task: AbortHandle) {
        match self.tasks.lock().get_mut(&runtime) {
            None => {}
            Some(None) => task.abort(),
            Some(Some(tasks)) => {
                if tasks.len() == tasks.capacity() {
                    tasks.retain(|task| !task.is_finished());
                }
                tasks.push(task);
            }
        }
    }

    fn runs(&self, cx: &mut Context<'_>) -> bool {
        let mut state = self.state.lock();
        match state.process {
            Process::Runs => true,
            Process::Stopped => {
                state.wakers.push(cx.waker().clone());
                false
            }
            Process::Crashed => false,
        }
    }

    fn late(&self) -> Option<BoxFuture<()>> {
        let lateness = Duration::from_millis(self.lateness.load(Ordering::Relaxed));
        let handle = self.network.handle().filter(|_| !lateness.is_zero())?;
        let by = {
            let random = &mut *self.random.lock();
            (random.below(LATE) == 0).then(|| random.up_to(lateness))?
        };
        let _time = handle.enter();
        Some(Box::pin(tokio::time::sleep(by)))
    }
}
