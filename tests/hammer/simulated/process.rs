//! A process of a world: the tasks of one machine, from its start until it ends or crashes.

use redlatch::LockClientBuilder;
use redlatch::simulation::Machine;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::plan::{MachinePlan, Plan};
use super::platform::{InMemory, OnMachine, Stops};
use crate::child::keep;
use crate::prelude::*;
use crate::record::Log;
use crate::runtimes;
use crate::stop::Stop;
use crate::support::ms;
use crate::worker::Worker;

pub(crate) struct Member {
    pub(crate) machine: Machine,
    /// In the history.
    pub(crate) number: usize,
    pub(crate) stops: Stops,
    log: Arc<Recorder>,
    stop: Stop,
    kept: oneshot::Receiver<()>,
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

/// What every process of a world is told.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) way: LockClientBuilder,
    pub(crate) resource: InMemory,
}

impl Member {
    pub(crate) fn start(
        machine: Machine,
        number: usize,
        of_slot: MachinePlan,
        seed: u64,
        plan: &Plan,
        around: Surroundings,
    ) -> Self {
        let log = Arc::new(Recorder::in_memory());
        let stops = Stops::new(machine.clone(), log.clone());
        let stop = Stop::default();
        let told = stop.clone();
        let ((keeps, kept), (end, may_end), (ends, ended)) =
            (oneshot::channel(), oneshot::channel(), oneshot::channel());
        // A lease that ends before replicas have it is no grant: the call asks again, and others come in between.
        let shortest_lease = if of_slot.replicas > 0 { 2 * REPLICAS_TIMEOUT } else { ms(0) };
        let platform = OnMachine { stops: stops.clone(), rest: plan.rest, shortest_lease };
        let (names, of_history) = (plan.names, log.clone());
        let (tasks, here) = (of_slot.tasks, machine.clone());
        machine.spawn(async move {
            let mut ways = vec![around.way];
            if of_slot.replicas > 0 {
                ways.push(ways[0].clone().replicas(of_slot.replicas, REPLICAS_TIMEOUT));
            }
            let resource = Box::new(around.resource);
            let shared =
                Shared::open(ways, names, resource, Box::new(platform), of_history, told).await;
            let shared = Arc::new(shared);
            let held = work(here, &shared, tasks, seed).await;
            let kept = keep(held);
            let _ = keeps.send(());
            let _ = may_end.await;
            kept.into_iter().for_each(|hold| hold.drop_guard(How::Drop, drop));
            shared.close_all().await;
            let _ = ends.send(());
        });
        Self { machine, number, stops, log, stop, kept, end, ended }
    }

    pub(crate) fn log(&self) -> Log {
        Log::Memory(self.log.clone())
    }

    pub(crate) fn crash(self) {
        self.log.close();
        self.machine.crash();
    }

    /// Tells it that the round is over. Completes when every call has come home and the guards that
    /// are left are kept; an error if a task has failed.
    pub(crate) async fn stop(&mut self) -> Result<(), String> {
        self.stop.tell();
        (&mut self.kept).await.map_err(|_| format!("a task of process {} failed", self.number))
    }

    /// Has it give everything back and close its clients.
    pub(crate) async fn end(self) -> Result<(), String> {
        let _ = self.end.send(());
        self.ended.await.map_err(|_| format!("process {} failed at its end", self.number))
    }
}

/// No longer than half of the shortest watchdog timeout.
const REPLICAS_TIMEOUT: Duration = ms(200);

async fn work(machine: Machine, shared: &Arc<Shared>, tasks: u16, seed: u64) -> Vec<Hold> {
    let worker = |task| Machine::spawn_here(Worker::new(shared.clone(), task, seed).run());
    let workers: Vec<_> = (0..tasks).map(worker).collect();
    let (heir, left) = unbounded_channel();
    let others = [
        Machine::spawn_here(runtimes_come_and_go(machine, shared.clone(), tasks, seed, heir)),
        Machine::spawn_here(runtimes::inherit(seed, left)),
        Machine::spawn_here(shared.clone().close_now_and_then(!seed)),
    ];
    let mut held = Vec::new();
    for worker in workers {
        held.extend(worker.await.expect("a task of the hammer failed"));
    }
    for other in others {
        other.await.expect("a task of the hammer failed");
    }
    held
}

/// As [`runtimes::one_after_the_other`]: each runtime ends with calls under way and guards held by its
/// tasks.
async fn runtimes_come_and_go(
    machine: Machine,
    shared: Arc<Shared>,
    first: u16,
    seed: u64,
    heir: UnboundedSender<Hold>,
) {
    let mut rng = Rng::with_seed(seed);
    let mut task = first;
    while !shared.stop.is_told() {
        let before = shared.log.cut_off();
        let runtime = machine.start_runtime();
        for _ in 0..runtimes::TASKS {
            runtime.spawn(Worker::new(shared.clone(), task, seed).with_heir(heir.clone()).run());
            task = task.checked_add(1).unwrap_or(first);
        }
        let life = Duration::from_millis(rng.u64(30..700));
        let _ = tokio::time::timeout(life, shared.stop.told()).await;
        runtime.end();
        // Its tasks are dropped before this one goes on.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let cut_off = shared.log.cut_off() - before;
        shared.log.put(Record { aux: cut_off, ..Record::new(Event::RuntimeEnd) });
    }
}
