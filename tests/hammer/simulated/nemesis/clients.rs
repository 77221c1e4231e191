//! What befalls one process, or all that it sends and receives.

use redlatch::simulation::{Direction, Flow};
use tokio::time::sleep;

use super::{Details, ON_ITS_WAY};
use crate::prelude::*;
use crate::simulated::world::World;

pub(super) async fn stop(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let target = world.pick(&mut of.rng)?;
    target.stops.stop();
    sleep(of.time).await;
    target.stops.go_on();
    Fault::at_process(target.number, true)
}

pub(super) async fn kill(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let number = world.replace(&mut of.rng)?;
    Fault::at_process(number, true)
}

/// As after a suspension that its timers do not notice.
pub(super) async fn suspend(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let target = world.pick(&mut of.rng)?;
    target.machine.suspend(of.time);
    world.clock_jumped(target.number);
    Fault::at_process(target.number, true)
}

pub(super) async fn cut(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let target = world.pick(&mut of.rng)?;
    let had = world.connections(&target.machine);
    world.cut(&target.machine, of.rng.bool());
    Fault::at_process(target.number, had > 0)
}

/// One connection is reset, or the server closes it.
pub(super) async fn break_one(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let target = world.pick(&mut of.rng)?;
    let server = world.servers.pick(&mut of.rng);
    let open = world.network.ages(&target.machine, server);
    let nth = of.rng.usize(..open.len().max(1));
    let mut address = open.get(nth).map(|(address, _)| address.as_str());
    let list: String;
    let broke = if of.rng.bool() {
        world.network.cut_one(&target.machine, server, nth, of.rng.bool())
    } else {
        list = world.ask(server, &["CLIENT", "LIST"])?;
        let its = format!(" addr={}:", target.machine.address());
        let client = list.lines().filter(|line| line.contains(&its)).nth(nth)?;
        address = client.split(' ').find_map(|word| word.strip_prefix("addr="));
        let id = client.strip_prefix("id=")?.split(' ').next()?;
        world.ask(server, &["CLIENT", "KILL", "ID", id]) == Some(1)
    };
    // None if the client had closed it by then.
    let age = open.iter().find(|(its, _)| Some(its.as_str()) == address).map(|(_, age)| *age);
    let pause = age.map_or(0, |age| world.plan.pause_after(age));
    Some(Fault { pause, ..Fault::at_process(target.number, broke)? })
}

/// One way nothing gets through, and then all connections are gone.
pub(super) async fn half_open(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let way = if of.rng.bool() { &[Direction::Up] } else { &[Direction::Down] };
    hold(world, of, way, true).await
}

/// Nothing gets through on these ways; in the end, all connections may go.
pub(super) async fn hold(
    world: &World<'_>,
    mut of: Details,
    ways: &[Direction],
    cuts: bool,
) -> Option<Fault> {
    let target = world.pick(&mut of.rng)?;
    let flow = |flow| {
        let links = world
            .servers
            .all()
            .into_iter()
            .flat_map(|server| ways.iter().map(move |way| (server, way)));
        links
            .map(|(server, way)| world.network.set_flow(&target.machine, server, *way, flow))
            .sum::<usize>()
    };
    flow(Flow::Held);
    sleep(of.time).await;
    if cuts {
        world.cut(&target.machine, of.rng.bool());
    }
    let done = Fault::at_process(target.number, flow(Flow::Open) > 0)?;
    let late = ways.contains(&Direction::Up).then(|| now() + ON_ITS_WAY);
    Some(Fault { late, ..done })
}

pub(super) async fn refuse(world: &World<'_>, mut of: Details) -> Option<Fault> {
    let target = world.pick(&mut of.rng)?;
    let refuse = |yes| {
        let all = world.servers.all().into_iter();
        all.for_each(|server| world.network.set_refusing(&target.machine, server, yes));
    };
    refuse(true);
    world.cut(&target.machine, of.rng.bool());
    sleep(of.time).await;
    refuse(false);
    Fault::at_process(target.number, true)
}
