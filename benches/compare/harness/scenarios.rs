//! What the contestants are put through.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::crew::{Contestant, Crew, PATIENCE};
use super::figures::{Figures, Metric, median, quantile};
use super::floor::{Floor, Pair};
use super::orders::{Done, ENDLESS, Latency, Mode, Order, Pace, Work};
use super::peer::{Handle, Peer};
use super::server::Watch;
use super::{Config, Way};
use crate::support::Result;

/// Each contestant has so many processes.
pub(crate) const PROCESSES: usize = 4;
const TASKS: usize = 64;
const TURNS: u64 = 5;
const HOLD: Duration = Duration::from_millis(1);
/// A poller that starves is not waited for longer.
const FIXED_LIMIT: Duration = Duration::from_secs(20);
/// Long enough for a waiter to be refused, to subscribe, to be refused again and to park.
const PARKED: Duration = Duration::from_millis(4);
/// On a machine that has other things to do as well.
const SURELY_PARKED: Duration = Duration::from_millis(300);
/// Pollers look every so often; the release falls anywhere between two looks.
const POLL: f64 = 0.1;
/// The process that is farther from the server comes after the others.
const FAR: usize = PROCESSES;
/// Its way to the server takes so much longer, in each direction.
const FAR_EACH_WAY: Duration = Duration::from_millis(2);
/// So many tasks of a process that is not farther away want the same name.
const NEAR_TASKS: usize = 8;
const FAR_HOLD: Duration = Duration::from_millis(5);
/// In less time there are too few turns to tell a share of them.
const FAR_LEAST: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// Each task has a name of its own: so many processes, and so many tasks in each.
    Apart(usize, usize),
    /// The same in one process, with so many of a hundred turns that the floor has in that time.
    Paced(u64),
    Crowd,
    Crowds,
    Fixed,
    HandOff,
    Far,
}

impl Scenario {
    pub(crate) const ALONE: Self = Self::Apart(1, 1);
    pub(crate) const APART: Self = Self::Apart(1, TASKS);

    pub(crate) const ALL: [Self; 15] = [
        Self::ALONE,
        Self::Apart(1, 8),
        Self::APART,
        Self::Apart(1, 512),
        Self::Apart(PROCESSES, 1),
        Self::Apart(PROCESSES, 2),
        Self::Apart(PROCESSES, 16),
        Self::Apart(PROCESSES, 128),
        Self::Paced(50),
        Self::Paced(80),
        Self::Crowd,
        Self::Crowds,
        Self::Fixed,
        Self::HandOff,
        Self::Far,
    ];

    pub(crate) fn key(self) -> String {
        let key = match self {
            Self::Apart(1, tasks) => return format!("uncontended-{tasks}"),
            Self::Apart(processes, tasks) => return format!("uncontended-{processes}x{tasks}"),
            Self::Paced(percent) => return format!("paced-{percent}"),
            Self::Crowd => "contended-64",
            Self::Crowds => "contended-4x16",
            Self::Fixed => "fixed-work",
            Self::HandOff => "hand-off",
            Self::Far => "far",
        };
        key.into()
    }

    pub(crate) fn label(self) -> String {
        let label = match self {
            Self::ALONE => "uncontended, 1 task",
            Self::Apart(1, tasks) => return format!("names of their own, {tasks} tasks"),
            Self::Apart(processes, tasks) => {
                return format!(
                    "names of their own, {processes} processes, tasks in each: {tasks}"
                );
            }
            Self::Paced(percent) => {
                return format!("names of their own, 64 tasks, at {percent} % of the floor's pace");
            }
            Self::Crowd => "one name, 64 tasks in one process",
            Self::Crowds => "one name, 4 processes of 16 tasks",
            Self::Fixed => "one name, 64 tasks x 5 turns held 1 ms, until all are done",
            Self::HandOff => "hand-off to a parked waiter in another process",
            Self::Far => "one name held 5 ms, 8 tasks in one process, 1 in another 2 ms farther",
        };
        label.into()
    }

    /// What is told of it. Per acquisition are the commands, the calls and the CPU time.
    pub(crate) fn metrics(self) -> &'static [Metric] {
        use Metric::*;
        match self {
            Self::Apart(..) => &[Rate, Longest, Sent, Calls, Cpu, ClientCpu],
            Self::Paced(_) => &[P50, P99, Rate],
            Self::Crowd => &[Rate, Starved, Jain, Longest, Sent, Calls, Cpu, ClientCpu],
            Self::Crowds => {
                &[Rate, Starved, Jain, JainProcesses, Longest, Sent, Calls, Cpu, ClientCpu]
            }
            Self::Fixed => &[Seconds, InUse, Starved, Longest, Sent, Calls, Cpu],
            Self::HandOff => &[P50, P90, Parked],
            Self::Far => &[FarShare, FarLongest, InUse],
        }
    }
}

/// What the measurements have in common.
pub(crate) struct Bench {
    pub(crate) url: String,
    pub(crate) config: Config,
    far: Way,
    watch: Watch,
    floor: Floor,
    /// How many turns a second the floor had in the last [`Scenario::APART`].
    pace: Option<f64>,
    /// So that no measurement finds what another one left.
    names: u64,
}

impl Bench {
    /// Everybody reaches the server at `url`, but for who counts what it does.
    pub(crate) async fn new(server: &str, url: &str, config: Config) -> Result<Self> {
        let (watch, floor) = (Watch::connect(server).await?, Floor::connect(url).await?);
        let far = Way::to(server, config.round_trip + 2 * FAR_EACH_WAY)?;
        Ok(Self { url: url.into(), config, far, watch, floor, pace: None, names: 0 })
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("bench:{}", self.names)
    }

    pub(crate) async fn start(&mut self, contestant: &Contestant) -> Result<Crew> {
        let mut crew = Crew::start(contestant, &self.url, PROCESSES).await?;
        self.warm_up(contestant, &mut crew, 0..PROCESSES).await?;
        Ok(crew)
    }

    /// The same for everyone, because some become fast only after a while.
    async fn warm_up(
        &mut self,
        contestant: &Contestant,
        crew: &mut Crew,
        members: Range<usize>,
    ) -> Result<()> {
        for mode in [Mode::Apart, together(contestant)] {
            let (tasks, name) = (TASKS / PROCESSES, self.name());
            let (hold, limit) = (Duration::ZERO, self.config.warm_up);
            let work = Work { mode, tasks, name, turns: ENDLESS, hold, limit };
            crew.set(members.clone(), &work).await?;
            crew.go(members.clone(), limit).await?;
        }
        Ok(())
    }

    pub(crate) async fn measure(
        &mut self,
        scenario: Scenario,
        contestant: &Contestant,
        crew: &mut Crew,
    ) -> Result<Figures> {
        self.watch.settle().await?;
        let long = self.config.measured;
        let turns = self.config.turns.unwrap_or(ENDLESS);
        let endless = |mode, tasks, limit| (mode, tasks, turns, Duration::ZERO, limit);
        let one_name = together(contestant);
        let is_floor = one_name == Mode::InTurns;
        if is_floor && scenario == Scenario::APART {
            self.pace = None;
        }
        let (mode, tasks, turns, hold, limit) = match scenario {
            Scenario::HandOff if is_floor => return self.round_trips().await,
            Scenario::HandOff => return self.hand_off(contestant, crew).await,
            // One task of one process hands the floor's lock on: nobody else has a share of it.
            Scenario::Far if is_floor => return Ok(Figures::default()),
            Scenario::Far => return self.far(contestant, crew).await,
            Scenario::Paced(percent) => return self.paced(percent, crew).await,
            Scenario::Apart(_, tasks) => endless(Mode::Apart, tasks, long / 2),
            Scenario::Crowd => endless(one_name, TASKS, long),
            // The floor has no way from one process to another that would cost nothing.
            Scenario::Crowds if is_floor => endless(one_name, TASKS, long),
            Scenario::Crowds => endless(one_name, TASKS / PROCESSES, long),
            Scenario::Fixed => (one_name, TASKS, TURNS, HOLD, FIXED_LIMIT),
        };
        let processes = match scenario {
            Scenario::Apart(processes, _) => processes,
            Scenario::Crowds if !is_floor => PROCESSES,
            _ => 1,
        };
        let work = Work { mode, tasks, name: self.name(), turns, hold, limit };
        crew.set(0..processes, &work).await?;
        let before = self.watch.load().await?;
        let done = crew.go(0..processes, limit).await?;
        let load = self.watch.since(&before, contestant.sends).await?;

        let (mut figures, taken) = Figures::of_work(&done);
        figures.put(Metric::Starved, starved(&done, turns));
        figures.put(Metric::Sent, load.sent as f64 / taken);
        figures.put(Metric::Calls, load.calls as f64 / taken);
        figures.put(Metric::Cpu, load.cpu_micros / taken);
        let cpu: f64 = done.iter().map(|done| done.cpu.as_secs_f64()).sum();
        figures.put(Metric::ClientCpu, cpu * 1e6 / taken);
        if is_floor && scenario == Scenario::APART {
            self.pace = Some(taken / limit.as_secs_f64());
        }
        Ok(figures)
    }

    /// Turns are due one after the other, however long those before them take.
    async fn paced(&mut self, percent: u64, crew: &mut Crew) -> Result<Figures> {
        let pace = self.pace.ok_or("nobody has measured how fast the floor is")?;
        let rate = (pace * percent as f64 / 100.0) as u64;
        let limit = self.config.measured;
        let pace = Pace { tasks: TASKS, name: self.name(), rate, limit };
        let worker = crew.worker(0);
        worker.order(&Order::Paced(pace)).await?;
        worker.answer("set").await?;
        worker.tell("go").await?;
        let latency = Latency::parse(&worker.any_answer(limit + PATIENCE).await?)?;
        let mut figures = Figures::default();
        figures.put(Metric::P50, latency.p50.as_secs_f64() * 1e6);
        figures.put(Metric::P99, latency.p99.as_secs_f64() * 1e6);
        figures.put(Metric::Rate, latency.turns as f64 / limit.as_secs_f64());
        figures.put(Metric::Errors, latency.errors as f64);
        Ok(figures)
    }

    /// The tasks of one process and a single one of another, which is farther from the server,
    /// want one name.
    async fn far(&mut self, contestant: &Contestant, crew: &mut Crew) -> Result<Figures> {
        if crew.size() == FAR {
            crew.join(contestant, &self.far.url).await?;
            self.warm_up(contestant, crew, FAR..FAR + 1).await?;
        }
        let turns = self.config.turns.unwrap_or(ENDLESS);
        let limit = self.config.measured.max(FAR_LEAST);
        let (mode, name) = (together(contestant), self.name());
        let near = Work { mode, tasks: NEAR_TASKS, name, turns, hold: FAR_HOLD, limit };
        crew.set([0], &near).await?;
        crew.set([FAR], &Work { tasks: 1, ..near }).await?;
        let done = crew.go([0, FAR], limit).await?;

        let (mut figures, _) = Figures::of_work(&done);
        figures.put(Metric::Starved, starved(&done, turns));
        figures.put_far(&done[0], &done[1]);
        Ok(figures)
    }

    /// From the call of unlock in one process until a waiter in another one has the lock.
    async fn hand_off(&mut self, contestant: &Contestant, crew: &mut Crew) -> Result<Figures> {
        let mut figures = Figures::default();
        let pair = self.pair()?;
        let (mut hand_offs, mut round_trips) = (Vec::new(), Vec::new());
        for at in 0..=self.config.hand_offs {
            let name = self.name();
            crew.worker(0).order(&Order::Hold(name.clone())).await?;
            crew.worker(0).answer("held").await?;
            crew.worker(1).order(&Order::Wait(name)).await?;
            if at == 0 {
                // The first one is not measured: it has only to wait.
                tokio::time::sleep(SURELY_PARKED).await;
                let before = self.watch.load().await?;
                tokio::time::sleep(self.config.parked).await;
                let load = self.watch.since(&before, contestant.sends).await?;
                let seconds = self.config.parked.as_secs_f64();
                figures.put(Metric::Parked, load.sent as f64 / seconds);
            } else {
                tokio::time::sleep(pause(&self.config, at)).await;
                round_trips.push(micros_of_a_pair(&pair).await?);
                // The same pause again: idle threads take longer to wake than busy ones.
                tokio::time::sleep(pause(&self.config, at)).await;
            }
            crew.worker(0).tell("free").await?;
            let freed = crew.worker(0).when("freed").await?;
            let got = crew.worker(1).when("got").await?;
            if at > 0 {
                hand_offs.push(got as f64 - freed as f64);
            }
        }
        let floor = median(round_trips);
        figures.put_beside(Metric::P50, quantile(hand_offs.clone(), 0.5), floor);
        figures.put_beside(Metric::P90, quantile(hand_offs, 0.9), floor);
        Ok(figures)
    }

    /// The floor of a hand-off: a release and an acquisition that are awaited, after such pauses.
    async fn round_trips(&mut self) -> Result<Figures> {
        let (mut figures, mut micros) = (Figures::default(), Vec::new());
        let pair = self.pair()?;
        for at in 1..=self.config.hand_offs {
            tokio::time::sleep(pause(&self.config, at)).await;
            micros.push(micros_of_a_pair(&pair).await?);
        }
        let p50 = quantile(micros.clone(), 0.5);
        figures.put_beside(Metric::P50, p50, p50);
        figures.put_beside(Metric::P90, quantile(micros, 0.9), p50);
        figures.put(Metric::Parked, 0.0);
        Ok(figures)
    }

    fn pair(&mut self) -> Result<Pair> {
        let name = self.name();
        self.floor.handle(&name)
    }
}

/// How a contestant works on one name; the floor hands it from one to the next.
fn together(contestant: &Contestant) -> Mode {
    if contestant.name == Floor::NAME { Mode::InTurns } else { Mode::Together }
}

/// Whoever has not had its turns starves: of fixed work all, of the rest a single one.
fn starved(done: &[Done], turns: u64) -> f64 {
    let least = if turns == ENDLESS { 1 } else { turns };
    let shares = done.iter().flat_map(|done| &done.shares);
    shares.filter(|share| share.turns < least).count() as f64
}

/// Half of the time for which a waiter waits. Multiples of the golden ratio fill an interval
/// evenly, however few they are, and are the same in every run.
fn pause(config: &Config, at: usize) -> Duration {
    let part = (at as f64 * 0.618_033_988_749_895).fract();
    // Asking twice and subscribing, and some more.
    let parked = PARKED + 4 * config.round_trip;
    parked + Duration::from_secs_f64(part * POLL / 2.0)
}

async fn micros_of_a_pair(pair: &Pair) -> Result<f64> {
    let begun = Instant::now();
    pair.lock().await?;
    pair.unlock(()).await?;
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}
