//! What befalls the server, and what it is told to do.

use futures::FutureExt;
use redlatch::simulation::State;
use tokio::time::sleep;

use super::{Details, Inflicted};
use crate::history::Reach;
use crate::nemesis::{RECONNECT, deletion};
use crate::prelude::*;
use crate::simulated::world::World;

/// The bytes of all scripts, for four connections.
const ALL_SCRIPTS: u64 = 4 * 33_000;

pub(super) fn kill<'a>(world: &'a World<'_>, which: &'static str) -> Inflicted<'a> {
    async move {
        let killed: u64 = world.ask(&["CLIENT", "KILL", "TYPE", which])?;
        Fault::done(format!("{killed} {which}"), killed > 0)
    }
    .boxed_local()
}

pub(super) fn pause<'a>(world: &'a World<'_>, of: Details, what: &'static str) -> Inflicted<'a> {
    async move {
        let millis = of.time.as_millis().to_string();
        world.ask::<()>(&["CLIENT", "PAUSE", &millis, what])?;
        sleep(of.time).await;
        Fault::done("", true)
    }
    .boxed_local()
}

pub(super) fn stop<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        world.network.stop(world.server);
        sleep(of.time).await;
        world.network.go_on(world.server);
        Fault::done("", true)
    }
    .boxed_local()
}

/// With its data: without scripts and connections.
pub(super) fn restart<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        world.network.kill(world.server);
        sleep(of.time).await;
        world.network.start(world.server, |server, now| {
            let data = server.snapshot();
            server.start(now);
            server.load(now, data);
        });
        Fault::done("", true)
    }
    .boxed_local()
}

pub(super) fn restart_empty<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        world.network.kill(world.server);
        sleep(of.time).await;
        world.network.start(world.server, |server, now| server.start(now));
        let all = world.plan.names.all();
        Some(Fault { keys: all.clone(), tokens: all, ..Fault::done("", true)? })
    }
    .boxed_local()
}

pub(super) fn in_state<'a>(world: &'a World<'_>, of: Details, state: State) -> Inflicted<'a> {
    async move {
        let _down = world.take_down()?;
        let set = |yes| world.network.at(world.server, |server, _| server.set(state, yes));
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
            if world.ask::<u64>(&["DEL", &deletion.target])? > 0 {
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
        world.ask::<()>(&["SCRIPT", "FLUSH"])?;
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
        for _ in 0..50 {
            let channel = world.plan.names.channel(world.plan.names.pick(&mut of.rng));
            let garbage: String = (0..of.rng.usize(..20)).map(|_| of.rng.char(..)).collect();
            heard += world.ask::<u64>(&["PUBLISH", &channel, &garbage])?;
        }
        Fault::done(format!("{heard} heard"), heard > 0)
    }
    .boxed_local()
}
