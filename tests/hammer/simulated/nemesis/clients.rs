//! What befalls one process, or all that it sends and receives.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use redlatch::simulation::{Direction, Flow};
use tokio::time::sleep;

use super::{Details, Done, ON_ITS_WAY};
use crate::record::now;
use crate::simulated::world::World;

pub(super) fn stop<'a>(world: &'a World<'_>, mut of: Details) -> LocalBoxFuture<'a, Option<Done>> {
    async move {
        let target = world.pick(&mut of.rng)?;
        target.stops.stop();
        sleep(of.time).await;
        target.stops.go_on();
        Done::at(target.number, true)
    }
    .boxed_local()
}

pub(super) fn kill<'a>(world: &'a World<'_>, mut of: Details) -> LocalBoxFuture<'a, Option<Done>> {
    async move {
        let number = world.replace(&mut of.rng)?;
        Done::at(number, true)
    }
    .boxed_local()
}

/// As after a suspension that its timers do not notice.
pub(super) fn suspend<'a>(
    world: &'a World<'_>,
    mut of: Details,
) -> LocalBoxFuture<'a, Option<Done>> {
    async move {
        let target = world.pick(&mut of.rng)?;
        target.machine.suspend(of.time);
        world.clock_jumped(target.number);
        Done::at(target.number, true)
    }
    .boxed_local()
}

pub(super) fn cut<'a>(world: &'a World<'_>, mut of: Details) -> LocalBoxFuture<'a, Option<Done>> {
    async move {
        let target = world.pick(&mut of.rng)?;
        let had = world.network.connections(&target.machine, world.server);
        world.network.cut(&target.machine, world.server, of.rng.bool());
        Done::at(target.number, had > 0)
    }
    .boxed_local()
}

pub(super) fn stall<'a>(world: &'a World<'_>, of: Details) -> LocalBoxFuture<'a, Option<Done>> {
    hold(world, of, &[Direction::Down], false)
}

pub(super) fn stall_requests<'a>(
    world: &'a World<'_>,
    of: Details,
) -> LocalBoxFuture<'a, Option<Done>> {
    hold(world, of, &[Direction::Up], false)
}

/// Nothing gets through, and then all connections are gone.
pub(super) fn black_hole<'a>(
    world: &'a World<'_>,
    of: Details,
) -> LocalBoxFuture<'a, Option<Done>> {
    hold(world, of, &[Direction::Up, Direction::Down], true)
}

/// The same one way.
pub(super) fn half_open<'a>(
    world: &'a World<'_>,
    mut of: Details,
) -> LocalBoxFuture<'a, Option<Done>> {
    let way = if of.rng.bool() { &[Direction::Up] } else { &[Direction::Down] };
    hold(world, of, way, true)
}

fn hold<'a>(
    world: &'a World<'_>,
    mut of: Details,
    ways: &'static [Direction],
    cuts: bool,
) -> LocalBoxFuture<'a, Option<Done>> {
    async move {
        let target = world.pick(&mut of.rng)?;
        let flow = |flow| {
            let set =
                |way: &Direction| world.network.set_flow(&target.machine, world.server, *way, flow);
            ways.iter().map(set).sum::<usize>()
        };
        flow(Flow::Held);
        sleep(of.time).await;
        if cuts {
            world.network.cut(&target.machine, world.server, of.rng.bool());
        }
        let done = Done::at(target.number, flow(Flow::Open) > 0)?;
        let late = ways.contains(&Direction::Up).then(|| now() + ON_ITS_WAY);
        Some(Done { late, ..done })
    }
    .boxed_local()
}

pub(super) fn refuse<'a>(
    world: &'a World<'_>,
    mut of: Details,
) -> LocalBoxFuture<'a, Option<Done>> {
    async move {
        let target = world.pick(&mut of.rng)?;
        let refuse = |yes| world.network.set_refusing(&target.machine, world.server, yes);
        refuse(true);
        world.network.cut(&target.machine, world.server, of.rng.bool());
        sleep(of.time).await;
        refuse(false);
        Done::at(target.number, true)
    }
    .boxed_local()
}
