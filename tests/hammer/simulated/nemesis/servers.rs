//! What befalls the servers, and what they are told to do.

use futures::FutureExt;
use redlatch::simulation::State;
use tokio::time::sleep;

use super::{Details, Inflicted};
use crate::history::Reach;
use crate::nemesis::{OUTAGE, RECONNECT, deletion};
use crate::prelude::*;
use crate::simulated::servers::Topology;
use crate::simulated::world::World;

/// The bytes of all scripts, for four connections.
const ALL_SCRIPTS: u64 = 4 * 33_000;

pub(super) fn kill<'a>(world: &'a World<'_>, which: &'static str) -> Inflicted<'a> {
    async move {
        let kill = |server| world.ask::<u64>(server, &["CLIENT", "KILL", "TYPE", which]);
        let killed: u64 = world.servers.primaries().into_iter().map(kill).sum::<Option<u64>>()?;
        Fault::done(format!("{killed} {which}"), killed > 0)
    }
    .boxed_local()
}

pub(super) fn pause<'a>(
    world: &'a World<'_>,
    mut of: Details,
    what: &'static str,
) -> Inflicted<'a> {
    async move {
        let server = world.servers.pick(&mut of.rng);
        let millis = of.time.as_millis().to_string();
        world.ask::<()>(server, &["CLIENT", "PAUSE", &millis, what])?;
        sleep(of.time).await;
        Fault::done("", true)
    }
    .boxed_local()
}

pub(super) fn stop<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        let server = world.servers.pick(&mut of.rng);
        world.network.stop(server);
        sleep(of.time).await;
        world.network.go_on(server);
        Fault::done("", true)
    }
    .boxed_local()
}

/// With its data: without scripts and connections.
pub(super) fn restart<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        let server = world.servers.pick(&mut of.rng);
        world.network.kill(server);
        sleep(of.time).await;
        world.servers.start(server, |server, now| {
            let data = server.snapshot();
            server.start(now);
            server.load(now, data);
        });
        Fault::done("", true)
    }
    .boxed_local()
}

pub(super) fn restart_empty<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        let server = world.servers.pick(&mut of.rng);
        world.network.kill(server);
        sleep(of.time).await;
        world.servers.start(server, |server, now| server.start(now));
        let all = world.plan.names.all();
        Some(Fault { keys: all.clone(), tokens: all, ..Fault::done("", true)? })
    }
    .boxed_local()
}

pub(super) fn in_state<'a>(world: &'a World<'_>, mut of: Details, state: State) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        let server = world.servers.pick(&mut of.rng);
        let set = |yes| world.network.at(server, |server, _| server.set(state, yes));
        set(true);
        sleep(of.time).await;
        set(false);
        Fault::done("", true)
    }
    .boxed_local()
}

/// A name that is free at the moment has none.
pub(super) fn delete_a_key<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let of_token = of.rng.bool();
        for _ in 0..100 {
            let deletion = deletion(world.plan.names, of_token, &mut of.rng)?;
            if world
                .ask::<u64>(world.servers.home_of(&deletion.target), &["DEL", &deletion.target])?
                > 0
            {
                return Some(deletion);
            }
            sleep(Duration::from_millis(1)).await;
        }
        Fault::done("nothing there", false)
    }
    .boxed_local()
}

pub(super) fn forget_scripts<'a>(world: &'a World<'_>, _: Details) -> Inflicted<'a> {
    async {
        for server in world.servers.primaries() {
            world.ask::<()>(server, &["SCRIPT", "FLUSH"])?;
        }
        for (number, bandwidth) in world.narrow() {
            // Its clients send the scripts again, and renewals wait behind them.
            world.was_done(Fault {
                kind: "send scripts again",
                target: format!("process {number}"),
                t0: now(),
                t1: now() + ALL_SCRIPTS * 1_000 * MS / bandwidth,
                settle: RECONNECT.map(|settle| world.plan.settle(settle)),
                reach: Reach::Process(number),
                took_effect: true,
                ..Fault::default()
            });
        }
        Fault::done("", true)
    }
    .boxed_local()
}

pub(super) fn forge_messages<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let mut heard = 0;
        let publish = if world.plan.topology == Topology::Cluster { "SPUBLISH" } else { "PUBLISH" };
        for _ in 0..50 {
            let channel = world.plan.names.channel(world.plan.names.pick(&mut of.rng));
            let garbage: String = (0..of.rng.usize(..20)).map(|_| of.rng.char(..)).collect();
            let server = world.servers.home_of(&channel);
            heard += world.ask::<u64>(server, &[publish, &channel, &garbage])?;
        }
        Fault::done(format!("{heard} heard"), heard > 0)
    }
    .boxed_local()
}

/// Nothing that was written is lost.
pub(super) fn fail_over<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        let dies = of.rng.bool().then_some(of.time);
        world.servers.fail_over(&mut of.rng, dies).await
    }
    .boxed_local()
}

/// A primary dies before its replica has heard of the last writes.
pub(super) fn lose_writes<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        Some(reverting(world, world.servers.lose_writes(&mut of.rng, of.time).await?))
    }
    .boxed_local()
}

/// The old primary does not hear that it is none any more.
pub(super) fn have_two<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        let done = world.servers.have_two(&mut of.rng, of.time).await?;
        // What it answered last is on its way.
        let t1 = now() + world.plan.bounds().round_trip;
        Some(reverting(world, Fault { t1, ..done }))
    }
    .boxed_local()
}

/// What was written meanwhile may be lost, of whichever lock.
fn reverting(world: &World<'_>, fault: Fault) -> Fault {
    let all = world.plan.names.all();
    Fault { keys: all.clone(), tokens: all, reverts: true, ..fault }
}

/// Redis executes no script with several keys while some of them have moved: only a lock with one key does
/// not notice.
pub(super) fn move_slot<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let key = world.plan.names.pick(&mut of.rng);
        let name = world.plan.names.name(key);
        let what = world.servers.move_slot(&name, &mut of.rng, of.time).await?;
        let settle = OUTAGE.filter(|_| Names::kind(key) != crate::names::Kind::Plain);
        let settle = settle.map(|settle| world.plan.settle(settle));
        Some(Fault { settle, ..Fault::done(what, true)? })
    }
    .boxed_local()
}
