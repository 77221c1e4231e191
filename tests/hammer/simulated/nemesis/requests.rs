//! What befalls single requests.

use futures::FutureExt;
use redlatch::simulation::Fate;
use tokio::time::sleep;

use super::{Details, Inflicted, ON_ITS_WAY};
use crate::prelude::*;
use crate::simulated::servers::Topology;
use crate::simulated::world::World;

/// A release may fall between a waiter's first try and its subscription. What is behind that on its connection is late, too.
pub(super) fn delay_subscriptions<'a>(world: &'a World<'_>, mut of: Details) -> Inflicted<'a> {
    let time = Duration::from_millis(of.rng.u64(50..200));
    let subscribe = match world.plan.topology {
        Topology::Cluster => "SSUBSCRIBE",
        Topology::One | Topology::Sentinels => "SUBSCRIBE",
    };
    hold(world, of, subscribe, time).boxed_local()
}

/// Requests that are held for longer than their caller waits.
pub(super) fn hold_up<'a>(world: &'a World<'_>, of: Details) -> Inflicted<'a> {
    let time = of.time;
    hold(world, of, "EVALSHA", time).boxed_local()
}

pub(super) fn lose<'a>(world: &'a World<'_>, of: Details, fate: Fate) -> Inflicted<'a> {
    trap(world, of, "EVALSHA", fate).boxed_local()
}

async fn hold(world: &World<'_>, of: Details, command: &str, time: Duration) -> Option<Fault> {
    let done = trap(world, of, command, Fate::HeldFor(time)).await?;
    let late = now() + u64::try_from(time.as_nanos()).ok()? + ON_ITS_WAY;
    Some(Fault { late: Some(late), ..done })
}

/// A few of the next requests of a process; what has not happened in a second does not happen.
async fn trap(world: &World<'_>, mut of: Details, command: &str, fate: Fate) -> Option<Fault> {
    let target = world.pick(&mut of.rng)?;
    let server = world.servers.pick(&mut of.rng);
    let many = of.rng.usize(1..=3);
    let mut passes = 0;
    for _ in 0..many {
        passes += of.rng.u64(..10);
        world.network.set_trap(&target.machine, server, command, passes, fate);
    }
    sleep(Duration::from_millis(of.rng.u64(100..1000))).await;
    let left = world.network.remove_traps(&target.machine, server);
    Fault::at_process(target.number, left < many)
}
