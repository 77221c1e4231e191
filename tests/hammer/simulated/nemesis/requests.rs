//! What befalls single requests.

use redlatch::simulation::Fate;
use tokio::time::sleep;

use super::{Details, ON_ITS_WAY};
use crate::prelude::*;
use crate::simulated::servers::Topology;
use crate::simulated::world::World;

/// A release may fall between a waiter's first try and its subscription. What is behind that on its connection is late, too.
pub(super) async fn delay_subscriptions(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let time = Duration::from_millis(of.rng.u64(50..200));
    let subscribe = match world.plan.topology {
        Topology::Cluster => "SSUBSCRIBE",
        Topology::One | Topology::Sentinels => "SUBSCRIBE",
    };
    hold(world, of, subscribe, time).await
}

/// Requests that are held for longer than their caller waits.
pub(super) async fn hold_up(world: &World<'_>, of: Details) -> Option<Fault> {
    let time = of.time;
    hold(world, of, "EVALSHA", time).await
}

pub(super) async fn lose(world: &World<'_>, of: Details, fate: Fate) -> Option<Fault> {
    trap(world, of, "EVALSHA", fate).await
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
