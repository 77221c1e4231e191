//! What befalls the servers, and what they are told to do.

use redlatch::simulation::{Server, State};
use tokio::time::sleep;

use super::Details;
use crate::history::Reach;
use crate::nemesis::{OUTAGE, RECONNECT, deletion};
use crate::prelude::*;
use crate::simulated::servers::Topology;
use crate::simulated::world::World;

/// The bytes of all scripts, for four connections.
const ALL_SCRIPTS: u64 = 4 * 33_000;

pub(super) async fn kill(world: &World<'_>, _: Details, which: &str) -> Option<Fault> {
    let kill = |server| world.ask::<u64>(server, &["CLIENT", "KILL", "TYPE", which]);
    let killed: u64 = world.servers.primaries().into_iter().map(kill).sum::<Option<u64>>()?;
    Fault::done(format!("{killed} {which}"), killed > 0)
}

pub(super) async fn pause(world: &World<'_>, mut of: Details, what: &str) -> Option<Fault> {
    let server = world.servers.pick(&mut of.rng);
    let millis = of.time.as_millis().to_string();
    world.ask::<()>(server, &["CLIENT", "PAUSE", &millis, what])?;
    sleep(of.time).await;
    Fault::done("", true)
}

pub(super) async fn stop(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let _down = world.take_down()?;
    let server = world.servers.pick(&mut of.rng);
    world.network.stop(server);
    sleep(of.time).await;
    world.network.go_on(server);
    Fault::done("", true)
}

/// Without scripts and connections, and with its data, or without that, too.
pub(super) async fn restart(world: &World<'_>, mut of: Details, keeps: bool) -> Option<Fault> {
    let _down = world.take_down()?;
    let server = world.servers.pick(&mut of.rng);
    world.network.kill(server);
    sleep(of.time).await;
    let mut spared = Vec::new();
    world.servers.start(server, |server, now| {
        if !keeps {
            spared = elsewhere(world.plan.names, server);
        }
        let data = keeps.then(|| server.snapshot());
        server.start(now);
        data.into_iter().for_each(|data| server.load(now, data));
    });
    let lost = if keeps { 0..0 } else { world.plan.names.all() };
    Some(Fault { keys: lost.clone(), spared, tokens: lost, ..Fault::done("", true)? })
}

/// The names that are not locked at that server: of a cluster, others may have their locks.
fn elsewhere(names: Names, server: &Server) -> Vec<u16> {
    let is_there = |key: u16| server.hash(0, names.name(key).as_bytes()).is_some();
    names.all().filter(|key| !is_there(*key)).collect()
}

pub(super) async fn in_state(world: &World<'_>, mut of: Details, state: State) -> Option<Fault> {
    let _down = world.take_down()?;
    let server = world.servers.pick(&mut of.rng);
    let set = |yes| world.network.at(server, |server, _| server.set(state, yes));
    set(true);
    sleep(of.time).await;
    set(false);
    Fault::done("", true)
}

/// A name that is free at the moment has none.
pub(super) async fn delete_a_key(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let of_token = of.rng.bool();
    for _ in 0..100 {
        let deletion = deletion(world.plan.names, of_token, &mut of.rng)?;
        if world.ask::<u64>(world.servers.home_of(&deletion.target), &["DEL", &deletion.target])?
            > 0
        {
            return Some(deletion);
        }
        sleep(Duration::from_millis(1)).await;
    }
    Fault::done("nothing there", false)
}

pub(super) async fn forget_scripts(world: &World<'_>, _: Details) -> Option<Fault> {
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

pub(super) async fn forge_messages(world: &World<'_>, mut of: Details) -> Option<Fault> {
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

/// Nothing that was written is lost.
pub(super) async fn fail_over(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let _down = world.take_down()?;
    let dies = of.rng.bool().then_some(of.time);
    world.servers.fail_over(&mut of.rng, dies).await
}

/// A primary dies before its replica has heard of the last writes.
pub(super) async fn lose_writes(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let _down = world.take_down()?;
    Some(reverting(world, world.servers.lose_writes(&mut of.rng, of.time).await?))
}

/// The old primary does not hear that it is none any more.
pub(super) async fn have_two(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let _down = world.take_down()?;
    let done = world.servers.have_two(&mut of.rng, of.time).await?;
    // What it answered last is on its way.
    let t1 = now() + world.plan.bounds().round_trip;
    Some(reverting(world, Fault { t1, ..done }))
}

/// What was written meanwhile may be lost, of whichever lock.
fn reverting(world: &World<'_>, fault: Fault) -> Fault {
    let all = world.plan.names.all();
    Fault { keys: all.clone(), tokens: all, reverts: true, ..fault }
}

/// Redis executes no script with several keys while some of them have moved. Who waits for a lock with one key may hear
/// of its release as late as the node that had the slot hears of the move.
pub(super) async fn move_slot(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let key = world.plan.names.pick(&mut of.rng);
    let name = world.plan.names.name(key);
    let what = world.servers.move_slot(&name, &mut of.rng, of.time).await?;
    let settle = OUTAGE.filter(|_| Names::kind(key) != crate::names::Kind::Plain);
    let settle = settle.map(|settle| world.plan.settle(settle));
    Some(Fault { settle, ..Fault::done(what, true)? })
}
