//! The platform of a process of a world: a machine that can be stopped, and a resource in memory.

use futures::future::BoxFuture;
use redlatch::simulation::Machine;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::handle::Dropped;
use crate::platform::Platform;
use crate::prelude::*;
use crate::resource::Store;

/// Stops a machine, for several reasons at once, and writes down for how long it stood.
#[derive(Clone)]
pub(crate) struct Stops {
    machine: Machine,
    log: Arc<Recorder>,
    /// How many reasons there are, and since when there are any.
    state: Arc<Mutex<(u32, u64)>>,
}

impl Stops {
    pub(crate) fn new(machine: Machine, log: Arc<Recorder>) -> Self {
        Self { machine, log, state: Arc::default() }
    }

    pub(crate) fn stop(&self) {
        let mut state = lock(&self.state);
        if state.0 == 0 {
            state.1 = now();
            self.machine.stop();
        }
        state.0 += 1;
    }

    pub(crate) fn go_on(&self) {
        let mut state = lock(&self.state);
        state.0 -= 1;
        if state.0 == 0 {
            let (t, aux) = (now(), state.1);
            self.log.put(Record { t, event: Event::Gap, aux, ..Record::default() });
            drop(state);
            self.machine.go_on();
        }
    }
}

pub(crate) struct OnMachine {
    pub(crate) stops: Stops,
    pub(crate) rest: Duration,
    pub(crate) shortest_lease: Duration,
}

impl Platform for OnMachine {
    fn block(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let stops = self.stops.clone();
            let (over, is_over) = oneshot::channel();
            stops.stop();
            // Beside the machine, which does not run.
            tokio::spawn(async move {
                sleep(time).await;
                stops.go_on();
                let _ = over.send(());
            });
            let _ = is_over.await;
        })
    }

    fn drop_outside(&self, guard: Dropped) {
        drop(guard);
    }

    fn rest(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(..=self.rest.as_millis() as u64))
    }

    fn shortest_lease(&self) -> Duration {
        self.shortest_lease
    }
}

/// The protected resource: each request and each answer takes its time.
#[derive(Clone)]
pub(crate) struct InMemory(Arc<Mutex<Values>>);

struct Values {
    rng: Rng,
    plain: HashMap<u16, u64>,
    /// The highest token, and the number of writes.
    fenced: HashMap<u16, (u64, u64)>,
}

/// The longest way of a request or an answer.
const FAR: u64 = 4;

impl InMemory {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        Self(Arc::new(Mutex::new(Values { rng, plain: HashMap::new(), fenced: HashMap::new() })))
    }

    fn act<'a, T: Send + 'a>(
        &'a self,
        act: impl FnOnce(&mut Values) -> T + Send + 'a,
    ) -> BoxFuture<'a, T> {
        Box::pin(async move {
            self.on_the_way().await;
            let answer = act(&mut lock(&self.0));
            self.on_the_way().await;
            answer
        })
    }

    async fn on_the_way(&self) {
        let time = lock(&self.0).rng.u64(..FAR);
        if time > 0 {
            sleep(Duration::from_millis(time)).await;
        }
    }
}

impl Store for InMemory {
    fn write_fenced(&self, key: u16, token: u64) -> BoxFuture<'_, (bool, u64, u64)> {
        self.act(move |values| {
            let (highest, writes) = values.fenced.entry(key).or_default();
            let before = *highest;
            *writes += 1;
            let accepted = token >= before;
            if accepted {
                *highest = token;
            }
            (accepted, before, *writes)
        })
    }

    fn read(&self, key: u16) -> BoxFuture<'_, u64> {
        self.act(move |values| values.plain.get(&key).copied().unwrap_or(0))
    }

    fn replace(&self, key: u16, value: u64) -> BoxFuture<'_, u64> {
        self.act(move |values| values.plain.insert(key, value).unwrap_or(0))
    }
}
