//! What befalls the server, and what it is told to do.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use redlatch::simulation::State;
use tokio::time::sleep;

use super::{Details, Settle};
use crate::history::Reach;
use crate::prelude::*;
use crate::simulated::world::World;
use crate::support::channel;

/// The bytes of all scripts, for four connections.
const ALL_SCRIPTS: u64 = 4 * 33_000;

type Inflicted<'a> = LocalBoxFuture<'a, Option<Fault>>;

pub(super) fn kill_connections<'a>(world: &'a World<'_>, _: Details) -> Inflicted<'a> {
    async { kill(world, "normal") }.boxed_local()
}

pub(super) fn kill_subscribers<'a>(world: &'a World<'_>, _: Details) -> Inflicted<'a> {
    async { kill(world, "pubsub") }.boxed_local()
}

fn kill(world: &World<'_>, which: &str) -> Option<Fault> {
    let killed: u64 = world.ask(&["CLIENT", "KILL", "TYPE", which])?;
    Fault::done(format!("{killed} {which}"), killed > 0)
}

pub(super) fn pause_writes<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    pause(world, of, "WRITE")
}

pub(super) fn pause_everything<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    pause(world, of, "ALL")
}

fn pause<'a>(world: &'a World<'_>, of: Details, what: &'static str) -> Inflicted<'a> {
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
        let all = world.names().all();
        Some(Fault { keys: all.clone(), tokens: all, ..Fault::done("", true)? })
    }
    .boxed_local()
}

pub(super) fn fill_memory<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    in_state(world, of, State::FullMemory)
}

pub(super) fn refuse_writes<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    in_state(world, of, State::Unsaved)
}

pub(super) fn load<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    in_state(world, of, State::Loading)
}

fn in_state<'a>(world: &'a World<'_>, of: Details, state: State) -> Inflicted<'a> {
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

/// Deletes a lock's key, or its token's. A name that is free at the moment has none.
pub(super) fn delete_a_key<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    async move {
        let of_token = of.rng.bool();
        for _ in 0..100 {
            let mut names = world.names().tampered();
            let key = names.nth(of.rng.usize(..names.len()))?;
            let name = world.names().name(key);
            let token = format!("redisson_lock_token:{}", channel(&name).split_once(':')?.1);
            let target = if of_token { token } else { name };
            if world.ask::<u64>(&["DEL", &target])? > 0 {
                let (one, none) = (key..key + 1, 0..0);
                let (keys, tokens) = if of_token { (none, one) } else { (one, none) };
                return Some(Fault { keys, tokens, ..Fault::done(target, true)? });
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
                settle: Some(world.settle(Settle::Reconnect)),
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
            let channel = world.names().channel(world.names().pick(&mut of.rng));
            let garbage: String = (0..of.rng.usize(..20)).map(|_| of.rng.char(..)).collect();
            heard += world.ask::<u64>(&["PUBLISH", &channel, &garbage])?;
        }
        Fault::done(format!("{heard} heard"), heard > 0)
    }
    .boxed_local()
}
