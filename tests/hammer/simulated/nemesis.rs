//! The nemesis in a world: what it does and when follows from the seed, and each thing that it does can
//! be left out without a change to the others.

use futures::future::LocalBoxFuture;
use redlatch::simulation::{Direction, Fate, State};

use super::servers::Topology;
use super::world::World;
use crate::nemesis::{OUTAGE, RECONNECT, RESET};
use crate::prelude::*;

mod clients;
mod requests;
mod servers;

/// One kind of fault.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// How long a thing of that kind takes, in milliseconds.
    time: (u64, u64),
    /// For how many milliseconds locks may be slow after it, and as long as some dials; `None` if nobody may notice.
    settle: Option<u64>,
    inflict: Inflict,
}

type Inflict = for<'a> fn(&'a World<'_>, Details) -> LocalBoxFuture<'a, Option<Fault>>;

macro_rules! kind {
    ($name:expr, $time:expr, $settle:expr, $inflict:path $(, $how:expr)*) => {{
        let inflict: Inflict = |world, of| Box::pin($inflict(world, of $(, $how)*));
        Kind { name: $name, time: $time, settle: $settle, inflict }
    }};
}

const KINDS: &[&[Kind]] = &[LOUD, QUIET, LATE, SEVERAL];

const LOUD: &[Kind] = &[
    kind!("kill connections", (0, 0), RECONNECT, servers::kill, "normal"),
    kind!("kill subscribers", (0, 0), RECONNECT, servers::kill, "pubsub"),
    kind!("stop a process", (100, 2400), RECONNECT, clients::stop),
    kind!("kill a process", (0, 0), RECONNECT, clients::kill),
    kind!("set a clock forward", (0, 3000), RECONNECT, clients::suspend),
    kind!("cut a link", (0, 0), RECONNECT, clients::cut),
    kind!("stall replies", (100, 1600), OUTAGE, clients::hold, &[Direction::Down], false),
    kind!("stall requests", (100, 1600), OUTAGE, clients::hold, &[Direction::Up], false),
    kind!("black hole", (100, 1600), OUTAGE, clients::hold, BOTH_WAYS, true),
    kind!("half open", (100, 1600), OUTAGE, clients::half_open),
    kind!("refuse connections", (1100, 1900), OUTAGE, clients::refuse),
    kind!("pause writes", (100, 1600), OUTAGE, servers::pause, "WRITE"),
    kind!("pause everything", (100, 1600), OUTAGE, servers::pause, "ALL"),
    kind!("stop the server", (100, 1600), OUTAGE, servers::stop),
    kind!("restart the server", (0, 1000), OUTAGE, servers::restart, true),
    kind!("lose all keys", (0, 1000), OUTAGE, servers::restart, false),
    kind!("fill the memory", (100, 1600), OUTAGE, servers::in_state, State::FullMemory),
    kind!("refuse writes", (100, 1600), OUTAGE, servers::in_state, State::Unsaved),
    kind!("load the data", (100, 1600), OUTAGE, servers::in_state, State::Loading),
];

const QUIET: &[Kind] = &[
    // Who goes on without its connection for a while notices.
    kind!("lose a reply", (0, 0), RECONNECT, requests::lose, Fate::AnswerLost),
    kind!("reset before send", (0, 0), RECONNECT, requests::lose, Fate::Lost),
    kind!("delay subscriptions", (0, 0), RECONNECT, requests::delay_subscriptions),
    kind!(RESET, (0, 0), None, clients::break_one),
    kind!("delete a key", (0, 0), None, servers::delete_a_key),
    kind!("forget scripts", (0, 0), None, servers::forget_scripts),
    kind!("forge messages", (0, 0), None, servers::forge_messages),
];

const LATE: &[Kind] = &[kind!("hold up requests", (1000, 4000), OUTAGE, requests::hold_up)];

const FAIL_OVER: &str = "fail over";

const LOSE_WRITES: &str = "lose the last writes";

const HAVE_TWO: &str = "have two primaries";

const MOVE_A_SLOT: &str = "move a slot";

/// Where there are several servers.
const SEVERAL: &[Kind] = &[
    kind!(FAIL_OVER, (0, 1600), OUTAGE, servers::fail_over),
    kind!(LOSE_WRITES, (0, 1600), OUTAGE, servers::lose_writes),
    kind!(HAVE_TWO, (0, 1600), OUTAGE, servers::have_two),
    kind!(MOVE_A_SLOT, (0, 1600), None, servers::move_slot),
];

/// Of all kinds that those servers can have; of all if any may be drawn.
pub(crate) fn names(topology: Option<Topology>) -> impl Iterator<Item = &'static str> {
    let happens = move |kind: &&Kind| match kind.name {
        FAIL_OVER | LOSE_WRITES | HAVE_TWO => topology != Some(Topology::One),
        MOVE_A_SLOT => topology.is_none_or(|topology| topology == Topology::Cluster),
        _ => true,
    };
    KINDS.iter().copied().flatten().filter(happens).map(|kind| kind.name)
}

/// One thing that the nemesis does.
#[derive(Clone)]
pub(crate) struct Planned {
    /// It can be named, to leave it out.
    pub(crate) number: usize,
    kind: &'static Kind,
    pub(crate) at: Duration,
    pub(crate) time: Duration,
    seed: u64,
}

const BOTH_WAYS: &[Direction] = &[Direction::Up, Direction::Down];

/// What was held has arrived after so long.
const ON_ITS_WAY: u64 = 100 * MS;

/// How one thing is done.
struct Details {
    time: Duration,
    rng: Rng,
}

/// Everything that is to be done in so long. Each of the hands does one thing at a time, and the first
/// waits until that has settled.
pub(crate) fn plan(rng: &mut Rng, time: Duration, topology: Topology) -> Vec<Planned> {
    let mut all = Vec::new();
    // One world in eight is left in peace.
    if rng.u32(..8) == 0 {
        return all;
    }
    let hands = KINDS.len() - usize::from(topology == Topology::One);
    for (hand, kinds) in KINDS[..hands].iter().enumerate() {
        let pause = [(200, 1600), (20, 300), (200, 1000), (200, 1600)][hand];
        let chosen: Vec<&Kind> = kinds.iter().filter(|_| rng.bool()).collect();
        // Some worlds have more of it than others.
        let slower = [1, 2, 4, 8][rng.usize(..4)];
        let mut at = Duration::ZERO;
        while !chosen.is_empty() {
            at += Duration::from_millis(rng.u64(pause.0..pause.1) * slower);
            let kind = chosen[rng.usize(..chosen.len())];
            let takes = Duration::from_millis(rng.u64(kind.time.0..=kind.time.1));
            if at + takes >= time {
                break;
            }
            all.push(Planned { number: 0, kind, at, time: takes, seed: rng.u64(..) });
            at += takes;
            if hand != 1 {
                at += Duration::from_millis(kind.settle.unwrap_or(0));
            }
        }
    }
    all.sort_by_key(|planned| planned.at);
    all.iter_mut().enumerate().for_each(|(number, planned)| planned.number = number);
    all
}

impl Planned {
    pub(crate) async fn happen(&self, world: &World<'_>) {
        tokio::time::sleep(self.at).await;
        let t0 = now();
        let details = Details { time: self.time, rng: Rng::with_seed(self.seed) };
        let Some(done) = (self.kind.inflict)(world, details).await else { return };
        let settle = self.kind.settle.map(|settle| world.plan.settle(settle)).or(done.settle);
        // What others can notice may begin before that, and be over before all is done.
        let t0 = if done.t0 > 0 { done.t0 } else { t0 };
        let t1 = if done.t1 > 0 { done.t1 } else { now() };
        let target = format!("{} ({})", done.target, self.number);
        world.was_done(Fault { kind: self.kind.name, target, t0, t1, settle, ..done });
    }
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, kind, at, time, .. } = self;
        write!(f, "{number}: {} at {at:?} for {time:?}", kind.name)
    }
}
