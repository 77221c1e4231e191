//! The nemesis in a world: what it does and when follows from the seed, and each thing that it does can
//! be left out without a change to the others.

use futures::future::LocalBoxFuture;

use super::world::World;
use crate::nemesis::RESET;
use crate::prelude::*;

mod clients;
mod requests;
mod servers;

/// One kind of fault.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// How long a thing of that kind takes, in milliseconds.
    time: (u64, u64),
    /// For how long locks may be slow after it; `None` if nobody may notice.
    settle: Option<Settle>,
    inflict: for<'a> fn(&'a World<'_>, Details) -> LocalBoxFuture<'a, Option<Fault>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Settle {
    /// A call that was under way may take its command timeout to fail, and pauses before it is tried
    /// again.
    Outage,
    Reconnect,
}

const KINDS: &[&[Kind]] = &[LOUD, QUIET, LATE];

const LOUD: &[Kind] = &[
    Kind::loud("kill connections", (0, 0), Settle::Reconnect, servers::kill_connections),
    Kind::loud("kill subscribers", (0, 0), Settle::Reconnect, servers::kill_subscribers),
    Kind::loud("stop a process", (100, 2400), Settle::Reconnect, clients::stop),
    Kind::loud("kill a process", (0, 0), Settle::Reconnect, clients::kill),
    Kind::loud("set a clock forward", (0, 3000), Settle::Reconnect, clients::suspend),
    Kind::loud("cut a link", (0, 0), Settle::Reconnect, clients::cut),
    Kind::loud("stall replies", (100, 1600), Settle::Outage, clients::stall),
    Kind::loud("stall requests", (100, 1600), Settle::Outage, clients::stall_requests),
    Kind::loud("black hole", (100, 1600), Settle::Outage, clients::black_hole),
    Kind::loud("half open", (100, 1600), Settle::Outage, clients::half_open),
    Kind::loud("refuse connections", (1100, 1900), Settle::Outage, clients::refuse),
    Kind::loud("pause writes", (100, 1600), Settle::Outage, servers::pause_writes),
    Kind::loud("pause everything", (100, 1600), Settle::Outage, servers::pause_everything),
    Kind::loud("stop the server", (100, 1600), Settle::Outage, servers::stop),
    Kind::loud("restart the server", (0, 1000), Settle::Outage, servers::restart),
    Kind::loud("lose all keys", (0, 1000), Settle::Outage, servers::restart_empty),
    Kind::loud("fill the memory", (100, 1600), Settle::Outage, servers::fill_memory),
    Kind::loud("refuse writes", (100, 1600), Settle::Outage, servers::refuse_writes),
    Kind::loud("load the data", (100, 1600), Settle::Outage, servers::load),
];

const QUIET: &[Kind] = &[
    // Who goes on without its connection for a while notices.
    Kind::loud("lose a reply", (0, 0), Settle::Reconnect, requests::lose_a_reply),
    Kind::loud("reset before send", (0, 0), Settle::Reconnect, requests::reset_before_send),
    Kind::loud("delay subscriptions", (0, 0), Settle::Reconnect, requests::delay_subscriptions),
    Kind::quiet(RESET, clients::break_one),
    Kind::quiet("delete a key", servers::delete_a_key),
    Kind::quiet("forget scripts", servers::forget_scripts),
    Kind::quiet("forge messages", servers::forge_messages),
];

const LATE: &[Kind] =
    &[Kind::loud("hold up requests", (1000, 4000), Settle::Outage, requests::hold_up)];

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().copied().flatten().map(|kind| kind.name)
}

impl Kind {
    const fn loud(
        name: &'static str,
        time: (u64, u64),
        settle: Settle,
        inflict: for<'a> fn(&'a World<'_>, Details) -> LocalBoxFuture<'a, Option<Fault>>,
    ) -> Self {
        Self { name, time, settle: Some(settle), inflict }
    }

    const fn quiet(
        name: &'static str,
        inflict: for<'a> fn(&'a World<'_>, Details) -> LocalBoxFuture<'a, Option<Fault>>,
    ) -> Self {
        Self { name, time: (0, 0), settle: None, inflict }
    }
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

/// What was held has arrived after so long.
const ON_ITS_WAY: u64 = 100 * MS;

/// How one thing is done.
struct Details {
    time: Duration,
    rng: Rng,
}

/// Everything that is to be done in so long. Each of the hands does one thing at a time, and the first
/// waits until that has settled.
pub(crate) fn plan(rng: &mut Rng, time: Duration) -> Vec<Planned> {
    let mut all = Vec::new();
    // One world in eight is left in peace.
    if rng.u32(..8) == 0 {
        return all;
    }
    for (hand, kinds) in KINDS.iter().enumerate() {
        let pause = [(200, 1600), (20, 300), (200, 1000)][hand];
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
            at += Duration::from_millis(match kind.settle {
                _ if hand == 1 => 0,
                Some(Settle::Outage) => 1_700,
                Some(Settle::Reconnect) => 500,
                None => 0,
            });
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
        let settle = self.kind.settle.map(|settle| world.settle(settle));
        let target = format!("{} ({})", done.target, self.number);
        world.was_done(Fault { kind: self.kind.name, target, t0, t1: now(), settle, ..done });
    }
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, kind, at, time, .. } = self;
        write!(f, "{number}: {} at {at:?} for {time:?}", kind.name)
    }
}
