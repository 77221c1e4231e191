//! One world: a network with servers, machines with processes, and the history of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use futures::stream::{FuturesUnordered, StreamExt};
use redlatch::simulation::{Machine, Network, Server, ServerNumber};
use tokio::time::{sleep, timeout};

use super::monitor::Monitor;
use super::plan::Plan;
use super::platform::{InMemory, Stops};
use super::process::{Member, Surroundings};
use super::servers::Servers;
use super::witness::Witness;
use crate::check::count::kept_wrongly;
use crate::history::{LONGEST_LEASE, Process};
use crate::prelude::*;
use crate::record;

pub(crate) struct World<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) network: Network,
    pub(crate) servers: Servers,
    around: Surroundings,
    /// By the slots of the plan.
    members: RefCell<Vec<Member>>,
    processes: RefCell<Vec<Process>>,
    faults: RefCell<Vec<Fault>>,
    /// How often a process was started in each slot.
    starts: RefCell<BTreeMap<usize, u64>>,
    is_down: Cell<bool>,
    monitor: Monitor,
}

/// A process that something befalls.
pub(crate) struct Target {
    pub(crate) machine: Machine,
    /// In the history.
    pub(crate) number: usize,
    pub(crate) stops: Stops,
}

/// While it is there, the server does not answer as it should.
pub(crate) struct Down<'a>(&'a Cell<bool>);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// How long counts may take to agree once nobody calls any more.
const SETTLE: Duration = Duration::from_secs(8);

/// What a call coming home may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What comes of a plan, and a hash over all that was sent, and over the history.
pub(crate) fn play(plan: &Plan) -> (History, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let played = runtime.block_on(async {
        let network = Network::new(plan.seed);
        let clock = network.clone();
        record::set_clock(Some(Box::new(move || clock.elapsed())));
        World::new(plan, network).play().await
    });
    record::set_clock(None);
    played
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, network: Network) -> Self {
        let servers = Servers::new(&network, plan.topology, plan.seed);
        let around = Surroundings { way: servers.way(), resource: InMemory::new(plan.seed ^ 2) };
        let monitor = Monitor::new(plan.names, &servers);
        let world = Self {
            plan,
            network,
            servers,
            around,
            members: RefCell::default(),
            processes: RefCell::default(),
            faults: RefCell::default(),
            starts: RefCell::default(),
            is_down: Cell::default(),
            monitor,
        };
        let (monitor, shows) = (world.monitor.clone(), plan.shows_requests);
        let observer = move |server: &Server, bytes: &[u8]| {
            if shows {
                let t = now() as f64 / MS as f64;
                let words = String::from_utf8_lossy(bytes).replace("\r\n", " ");
                let role = if server.is_replica() { "replica" } else { "primary" };
                println!("{t:.3} {} {role} {words}", &server.run_id()[..4]);
            }
            monitor.hear(server, bytes);
        };
        for server in world.servers.with_data() {
            world.network.observe(server, Some(Box::new(observer.clone())));
        }
        for slot in 0..plan.machines.len() {
            let member = world.start(slot);
            world.members.borrow_mut().push(member);
        }
        world
    }

    /// Starts a process on a machine of its own.
    fn start(&self, slot: usize) -> Member {
        let number = self.processes.borrow().len();
        let of_slot = self.plan.machines[slot];
        // What a process draws has nothing to do with what others draw, and not with how many there are.
        let mut starts = self.starts.borrow_mut();
        let start = starts.entry(of_slot.slot).or_default();
        *start += 1;
        let own = (of_slot.slot as u64) << 32 | *start << 48;
        let mut rng = Rng::with_seed(self.plan.seed ^ own);
        let machine = Machine::new(&self.network, number as u64, rng.u64(..));
        machine.set_speed(of_slot.speed);
        machine.set_lateness(of_slot.lateness);
        for server in self.servers.all() {
            self.network.set_distance_of(&machine, server, of_slot.distance);
        }
        let member =
            Member::start(machine, number, of_slot, rng.u64(..), self.plan, self.around.clone());
        self.processes.borrow_mut().push(Process { log: member.log(), ..Process::default() });
        member
    }

    pub(crate) fn was_done(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    /// One of the processes; none if the plan has fewer than it had.
    fn pick_slot(&self, rng: &mut Rng) -> Option<usize> {
        let slot = rng.usize(..self.plan.slots);
        self.plan.machines.iter().position(|machine| machine.slot == slot)
    }

    /// The processes whose networks are narrow, with the bytes that come through in a second.
    pub(crate) fn narrow(&self) -> Vec<(u16, u64)> {
        let members = self.members.borrow();
        let all = members.iter().zip(&self.plan.machines);
        all.filter_map(|(member, of)| Some((member.number as u16, of.distance.bandwidth?)))
            .collect()
    }

    pub(crate) fn pick(&self, rng: &mut Rng) -> Option<Target> {
        let slot = self.pick_slot(rng)?;
        let Member { machine, number, stops, .. } = &self.members.borrow()[slot];
        Some(Target { machine: machine.clone(), number: *number, stops: stops.clone() })
    }

    /// Those that a machine has to all servers.
    pub(crate) fn connections(&self, machine: &Machine) -> usize {
        let all = self.servers.all().into_iter();
        all.map(|server| self.network.connections(machine, server)).sum()
    }

    /// Ends them.
    pub(crate) fn cut(&self, machine: &Machine, arrives: bool) {
        let all = self.servers.all().into_iter();
        all.for_each(|server| self.network.cut(machine, server, arrives));
    }

    /// Has a process crash, and starts another in its place. Returns the number of the dead one.
    pub(crate) fn replace(&self, rng: &mut Rng) -> Option<usize> {
        let slot = self.pick_slot(rng)?;
        let fresh = self.start(slot);
        let old = std::mem::replace(&mut self.members.borrow_mut()[slot], fresh);
        let number = old.number;
        old.crash();
        self.processes.borrow_mut()[number].killed = Some(now());
        Some(number)
    }

    pub(crate) fn clock_jumped(&self, number: usize) {
        self.processes.borrow_mut()[number].jumps.push(now());
    }

    /// Asks a server, beside the network. `None` if it does not answer.
    pub(crate) fn ask<T: redis::FromRedisValue>(
        &self,
        server: ServerNumber,
        command: &[&str],
    ) -> Option<T> {
        if self.is_down.get() {
            return None;
        }
        let answer = match self.network.ask(server, redis::cmd(command[0]).arg(&command[1..])) {
            Ok(answer) => answer,
            // It makes everybody wait: there was no answer.
            Err(error) if error.code().is_none() => return None,
            // Its slot is on its way.
            Err(error) if matches!(error.code(), Some("ASK" | "MOVED")) => return None,
            Err(error) => panic!("{command:?}: {error}"),
        };
        Some(redis::from_redis_value(answer).unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Says that the server does not answer, unless somebody has said so already.
    pub(crate) fn take_down(&self) -> Option<Down<'_>> {
        (!self.is_down.replace(true)).then(|| Down(&self.is_down))
    }

    async fn play(self) -> (History, u64) {
        let mut witness =
            Witness::new(&self.network, &self.servers, self.plan.names, self.plan.seed);
        let mut samples = Vec::new();
        let happens = self.plan.faults.iter().map(|planned| planned.happen(&self));
        let mut happens: FuturesUnordered<_> = happens.collect();
        let time = async {
            let all_happens = async { while happens.next().await.is_some() {} };
            futures::join!(sleep(self.plan.time), all_happens);
            // What was disturbed is made good by then, or lost.
            let settled = |fault: &Fault| fault.t1 + fault.settle.unwrap_or(0);
            let settled = self.faults.borrow().iter().map(settled).max().unwrap_or(0);
            sleep(Duration::from_nanos(settled.saturating_sub(now()))).await;
        };
        tokio::select! {
            biased;
            () = witness.watch(&mut samples) => {}
            () = time => {}
        }
        drop(happens);
        let mut members = self.members.take();
        let home = async {
            for member in &mut members {
                member.stop().await?;
            }
            Ok(())
        };
        let home = tokio::select! {
            biased;
            () = witness.watch(&mut samples) => Ok(()),
            home = timeout(PATIENCE, home) => {
                home.unwrap_or(Err("somebody did not come home".into()))
            }
        };
        let mut trouble = home.err();
        let (mut looks, mut left_over) = (Vec::new(), Vec::new());
        if trouble.is_none() {
            for _ in 0..SETTLE.as_millis() / 100 {
                looks.push(witness.look());
                sleep(Duration::from_millis(100)).await;
            }
            for member in members {
                trouble = trouble.or(member.end().await.err());
            }
            left_over = left(&witness, &mut samples).await;
        }
        let redlatch::simulation::Fates { held, late, slow, never } = self.network.fates();
        let mut history = History {
            bounds: self.plan.bounds(),
            faults: self.faults.take(),
            samples,
            left_over,
            heard: vec![self.monitor.heard()],
            fates: Fates { held, late, slow, never, ..Fates::default() },
            trouble,
            ..History::default()
        };
        for process in self.processes.take() {
            let trace = |record: &record::Record| self.network.note(&record.encode());
            process.log.read(trace).expect("a history in memory");
            history.add(process).expect("a history in memory");
        }
        history.finish();
        history.kept = kept(looks, &history);
        (history, self.network.trace())
    }
}

/// What is there after nobody has held a lock for so long that every lease has ended.
async fn left(witness: &Witness<'_>, samples: &mut Vec<Sample>) -> Vec<Sample> {
    let end = now() + LONGEST_LEASE + 1_000 * MS;
    loop {
        let seen = witness.look();
        if seen.is_empty() || now() > end {
            return seen;
        }
        samples.extend(seen);
        sleep(Duration::from_millis(10)).await;
    }
}

/// The first look that is what the processes keep, or else the last.
fn kept(mut looks: Vec<Vec<Sample>>, history: &History) -> Option<Vec<Sample>> {
    match looks.iter().position(|look| kept_wrongly(history, look).is_empty()) {
        Some(at) => Some(looks.swap_remove(at)),
        None => looks.pop(),
    }
}
