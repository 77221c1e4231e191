//! Everything that the tasks of a process share: its clients, and handles that several tasks use.

use std::sync::atomic::{AtomicU32, Ordering};

use redlatch::{LockClient, LockClientBuilder};

use crate::platform::Platform;
use crate::prelude::*;
use crate::resource::Store;
use crate::stop::Stop;

/// The watchdog timeouts of the clients of a process.
const WATCHDOGS: [Duration; 2] = [Duration::from_millis(600), Duration::from_millis(1200)];

/// Shorter than the longest stall, so that calls fail.
pub(crate) const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);

const OUTAGE_LIMIT: Duration = Duration::from_secs(3);

/// So many clients live as long as their process. One more is closed now and then, and the next
/// takes its place.
pub(crate) const STEADY: u32 = 2;

pub(crate) struct Shared {
    pub(crate) log: Arc<Recorder>,
    pub(crate) names: Names,
    pub(crate) resource: Box<dyn Store>,
    pub(crate) stop: Stop,
    pub(crate) platform: Box<dyn Platform>,
    steady: Vec<Arc<Member>>,
    fleeting: Mutex<Arc<Member>>,
    ways: Vec<LockClientBuilder>,
    calls: AtomicU32,
    handles: AtomicU32,
}

/// A client, and a handle for each name that several tasks use.
pub(crate) struct Member {
    pub(crate) client: LockClient,
    /// Unique in the process.
    pub(crate) number: u32,
    pub(crate) watchdog: Duration,
    pub(crate) shared: Vec<Arc<Handle>>,
}

impl Shared {
    /// Its clients find their servers in these ways in turn.
    pub(crate) async fn open(
        ways: Vec<LockClientBuilder>,
        names: Names,
        resource: Box<dyn Store>,
        platform: Box<dyn Platform>,
        log: Arc<Recorder>,
        stop: Stop,
    ) -> Self {
        let handles = AtomicU32::new(1);
        let mut members = Vec::new();
        for number in 0..=STEADY {
            let (way, watchdog) = way(&ways, number);
            let client = connect(way, watchdog).await;
            members.push(Arc::new(Member::new(client, number, names, &handles, &log)));
        }
        let fleeting = members.pop().expect("one more than the steady ones").into();
        let calls = AtomicU32::new(1);
        let steady = members;
        Self { log, names, resource, stop, platform, steady, fleeting, ways, calls, handles }
    }

    pub(crate) fn next_call(&self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// A client, mostly one that stays.
    pub(crate) fn pick_member(&self, rng: &mut Rng) -> Arc<Member> {
        match rng.usize(..10) {
            0 => self.fleeting(),
            number => self.steady[number % self.steady.len()].clone(),
        }
    }

    pub(crate) fn pick_steady(&self, rng: &mut Rng) -> Arc<Member> {
        self.steady[rng.usize(..self.steady.len())].clone()
    }

    fn fleeting(&self) -> Arc<Member> {
        lock(&self.fleeting).clone()
    }

    /// A new owner.
    pub(crate) fn handle(&self, member: &Member, key: u16, kind: Kind) -> Handle {
        handle(member, self.names, key, kind, &self.handles)
    }

    /// The same, of several names.
    pub(crate) fn several(&self, member: &Member, set: u8) -> Handle {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        let base = Record { handle, ..Record::default() };
        Handle::of_several(member, self.names, set, base)
    }

    /// Closes the fleeting client at random moments, with everything that is under way on it. New
    /// calls go to the next one at once, or as soon as the old one is closed.
    pub(crate) async fn close_now_and_then(self: Arc<Self>, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let stop = self.stop.clone();
        for number in STEADY + 1.. {
            let life = Duration::from_millis(rng.u64(200..1500));
            let (way, watchdog) = way(&self.ways, number);
            let next = async {
                tokio::time::sleep(life).await;
                connect(way, watchdog).await
            };
            let client = tokio::select! {
                biased;
                client = next => client,
                () = stop.told() => return,
            };
            let next = Member::new(client, number, self.names, &self.handles, &self.log);
            let old = self.fleeting();
            let put = || *lock(&self.fleeting) = Arc::new(next);
            if rng.bool() {
                put();
                self.close(&old).await;
            } else {
                self.close(&old).await;
                put();
            }
        }
    }

    pub(crate) async fn close_all(&self) {
        for member in self.steady.iter().chain([&self.fleeting()]) {
            self.close(member).await;
        }
    }

    async fn close(&self, member: &Member) {
        let close = Record { event: Event::Close, handle: member.number, ..Record::default() };
        self.log.put(Record { t: now(), ..close });
        member.client.close().await;
        self.log.put(Record { t: now(), aux: 1, outcome: Outcome::Done, ..close });
    }
}

impl Member {
    /// Writes down under which name Redis knows the client.
    fn new(
        client: LockClient,
        number: u32,
        names: Names,
        handles: &AtomicU32,
        log: &Recorder,
    ) -> Self {
        let owner = client.lock("nobody").owner().to_owned();
        let uuid = owner.split(':').next().unwrap_or_default().replace('-', "");
        let uuid = u128::from_str_radix(&uuid, 16).expect("an owner is <uuid>:<number>");
        let [token, aux] = [(uuid >> 64) as u64, uuid as u64];
        log.put(Record { handle: number, token, aux, ..Record::new(Event::Client) });
        let watchdog = WATCHDOGS[number as usize % WATCHDOGS.len()];
        let mut member = Self { client, number, watchdog, shared: Vec::new() };
        let of = |key| Arc::new(handle(&member, names, key, Names::kind(key), handles));
        member.shared = names.all().map(of).collect();
        member
    }
}

fn handle(member: &Member, names: Names, key: u16, kind: Kind, handles: &AtomicU32) -> Handle {
    let handle = handles.fetch_add(1, Ordering::Relaxed);
    let base = Record { key, handle, ..Record::default() };
    Handle::new(member, &names.name(key), kind, base)
}

/// The first client goes straight to the server; so does every other of the fleeting ones.
fn way(ways: &[LockClientBuilder], number: u32) -> (&LockClientBuilder, Duration) {
    let number = number as usize;
    (&ways[number % ways.len()], WATCHDOGS[number % WATCHDOGS.len()])
}

/// The nemesis is at work already: whoever starts in the middle of it tries until it is served.
async fn connect(way: &LockClientBuilder, watchdog: Duration) -> LockClient {
    loop {
        let client = way
            .clone()
            .watchdog_timeout(watchdog)
            .command_timeout(COMMAND_TIMEOUT)
            .outage_limit(OUTAGE_LIMIT);
        match client.connect().await {
            Ok(client) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
