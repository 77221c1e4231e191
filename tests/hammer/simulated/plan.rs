//! What happens in a world: all of it follows from the seed.

use std::fmt;

use redlatch::simulation::Distance;

use super::nemesis::{self, Planned};
use super::servers::Topology;
use crate::prelude::*;
use crate::shared::COMMAND_TIMEOUT;
use crate::support::ms;

#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// How long the tasks work.
    pub(crate) time: Duration,
    pub(crate) names: Names,
    pub(crate) topology: Topology,
    pub(crate) machines: Vec<MachinePlan>,
    /// How many machines the seed gives.
    pub(crate) slots: usize,
    pub(crate) faults: Vec<Planned>,
    /// How long a task rests between two sessions, at most.
    pub(crate) rest: Duration,
    pub(crate) shows_requests: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MachinePlan {
    pub(crate) slot: usize,
    pub(crate) distance: Distance,
    pub(crate) tasks: u16,
    /// So many thousandths of a second its clock counts in each second.
    pub(crate) speed: u32,
    /// How late its tasks run now and then.
    pub(crate) lateness: Duration,
    /// For so many replicas every other of its clients waits.
    pub(crate) replicas: u32,
}

/// What is left out of the world of a seed.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Edits {
    /// Have these servers.
    #[arg(long)]
    pub(crate) topology: Option<Topology>,
    /// Shorten the world to so many milliseconds.
    #[arg(long)]
    pub(crate) millis: Option<u64>,
    /// Keep only those machines.
    #[arg(long, value_delimiter = ',')]
    pub(crate) machines: Option<Vec<usize>>,
    /// Have no more than so many tasks on a machine.
    #[arg(long)]
    pub(crate) tasks: Option<u16>,
    /// Keep only those faults: none with `--faults=`.
    #[arg(long, value_parser = list)]
    pub(crate) faults: Option<Numbers>,
}

/// Numbers of faults.
type Numbers = Vec<usize>;

fn list(text: &str) -> Result<Numbers, std::num::ParseIntError> {
    text.split(',').filter(|number| !number.is_empty()).map(str::parse).collect()
}

impl fmt::Display for Edits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |all: &Numbers| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let topology = self.topology.map(|topology| format!("{topology:?}").to_lowercase());
        let edits = [
            topology.map(|topology| format!(" --topology {topology}")),
            self.millis.map(|millis| format!(" --millis {millis}")),
            self.machines.as_ref().map(|machines| format!(" --machines {}", list(machines))),
            self.tasks.map(|tasks| format!(" --tasks {tasks}")),
            self.faults.as_ref().map(|faults| format!(" --faults={}", list(faults))),
        ];
        edits.iter().flatten().try_for_each(|edit| f.write_str(edit))
    }
}

impl Plan {
    pub(crate) fn new(seed: u64, edits: &Edits) -> Self {
        let mut rng = Rng::with_seed(seed);
        let slots = rng.usize(2..=5);
        let wrong_clocks = rng.u32(..4) == 0;
        let machines = (0..slots).map(|slot| MachinePlan::new(slot, &mut rng, wrong_clocks));
        let mut machines: Vec<MachinePlan> = machines.collect();
        let mut busy = Rng::with_seed(seed ^ BUSY);
        if busy.bool() {
            machines.iter_mut().for_each(|machine| machine.lateness = ms(busy.u64(0..=LATEST)));
        }
        let (names, rest) = (Names::new(rng.u16(13..=30)), ms(rng.u64(1..6)));
        let mut time = ms(rng.u64(8_000..30_000));
        let drawn = [Topology::One, Topology::One, Topology::Sentinels, Topology::Cluster];
        let drawn = drawn[Rng::with_seed(seed ^ SERVERS).usize(..4)];
        let topology = edits.topology.unwrap_or(drawn);
        let mut waits = Rng::with_seed(seed ^ REPLICAS);
        for machine in &mut machines {
            machine.replicas = [0, 0, 1, 2][waits.usize(..4)].min(topology.replicas());
        }
        let mut faults = nemesis::plan(&mut rng, time, topology);
        if let Some(millis) = edits.millis {
            time = time.min(ms(millis));
            faults.retain(|planned| planned.at + planned.time < time);
        }
        if let Some(kept) = &edits.faults {
            faults.retain(|planned| kept.contains(&planned.number));
        }
        if let Some(kept) = &edits.machines {
            machines.retain(|machine| kept.contains(&machine.slot));
        }
        for machine in &mut machines {
            machine.tasks = edits.tasks.unwrap_or(u16::MAX).min(machine.tasks);
        }
        Self { seed, time, names, topology, machines, slots, faults, rest, shows_requests: false }
    }

    /// For how long locks may be slow after a fault that takes so many milliseconds to settle, and some dials.
    pub(crate) fn settle(&self, millis: u64) -> u64 {
        millis * MS + 10 * self.bounds().round_trip
    }

    /// For how long at most a client does not make a connection again that breaks at that age. It has been
    /// in use since its dial was over. Two in a row that break sooner than that are not counted.
    pub(crate) fn pause_after(&self, age: Duration) -> u64 {
        let dial = Duration::from_nanos(6 * self.bounds().round_trip);
        if age < LIVED + dial { PAUSE } else { 0 }
    }

    /// What the rules may hold against this world.
    pub(crate) fn bounds(&self) -> Bounds {
        let round_trips = self.machines.iter().map(|machine| nanos(machine.round_trip()));
        let round_trip = round_trips.max().unwrap_or(0) + TICK;
        let lateness = self.machines.iter().map(|machine| nanos(machine.lateness)).max();
        let machines_lateness = lateness.unwrap_or(0);
        Bounds {
            prompt: 12 * round_trip + 100 * MS,
            room: nanos(COMMAND_TIMEOUT / 4),
            round_trip,
            // A call may have to wait until there is a connection, which takes four, and until an
            // earlier release of its handle was answered.
            apart: 6 * round_trip,
            late: 2 * (TICK + machines_lateness),
            permille: if self.machines.iter().all(|one| one.speed == 1000) { 0 } else { WRONG },
            aftermath: 6 * round_trip + 60 * MS,
            before_close: 2 * round_trip,
            off: 0,
            pause: 0,
            is_cluster: self.topology == Topology::Cluster,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.all().len();
        writeln!(f, "{:?}, {:?}, {names} names, rest {:?}", self.topology, self.time, self.rest)?;
        for machine in &self.machines {
            writeln!(f, "{machine:?}")?;
        }
        for planned in &self.faults {
            writeln!(f, "{planned}")?;
        }
        Ok(())
    }
}

/// A connection that breaks after it was in use for so long is made again at once.
const LIVED: Duration = ms(500);

/// The first pause before a connection is made again that did not live for so long.
const PAUSE: u64 = 25 * MS;

/// Timers of Tokio end at whole milliseconds.
const TICK: u64 = MS;

/// By so many thousandths clocks may go wrong: less than the margin of 1 %.
const WRONG: u64 = 8;

/// In every other world machines are busy.
const BUSY: u64 = 0x6275_7379;

/// Every other world has one server.
const SERVERS: u64 = 0x7365_7276;

/// Every other machine of several servers waits for replicas.
const REPLICAS: u64 = 0x7265_706c;

/// By so many milliseconds their tasks run late at most.
const LATEST: u64 = 8;

/// Of the requests and answers that can be under way for one call.
const BYTES_OF_CALL: u64 = 800;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a short time")
}

impl MachinePlan {
    fn new(slot: usize, rng: &mut Rng, wrong_clock: bool) -> Self {
        let far = match rng.u32(..4) {
            0 => 1,
            1 => 1_000,
            _ => 10_000,
        };
        let jitter = if rng.bool() { far / 4 } else { 0 };
        let distance = Distance {
            each_way: Duration::from_micros(rng.u64(..far)),
            jitter: Duration::from_micros(jitter),
            bandwidth: (rng.u32(..12) == 0).then(|| rng.u64(300_000..3_000_000)),
        };
        let wrong = rng.u32(0..=2 * WRONG as u32);
        let speed = if wrong_clock { 1000 - WRONG as u32 + wrong } else { 1000 };
        Self {
            slot,
            distance,
            tasks: rng.u16(2..=12),
            speed,
            lateness: Duration::ZERO,
            replicas: 0,
        }
    }

    /// There and back, at most. Each way takes whole milliseconds.
    fn round_trip(&self) -> Duration {
        let Distance { each_way, jitter, bandwidth } = self.distance;
        let calls = u64::from(self.tasks) + 8;
        let queued = bandwidth.map_or(0, |bandwidth| calls * BYTES_OF_CALL * 1_000_000 / bandwidth);
        // A task that writes or reads, and the one that asked, may both run late.
        let way = nanos(each_way + jitter + 2 * self.lateness).next_multiple_of(TICK);
        Duration::from_nanos(2 * way) + Duration::from_micros(queued)
    }
}
