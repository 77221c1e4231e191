//! One round: servers, processes and the nemesis for some seconds, and the history of it.
//!
//! A long run is many rounds, each with servers and files of its own. So what is checked at the end
//! of a round (counts, orphans) is checked often, and memory does not grow with the run.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, sleep};

use crate::check::count::kept_wrongly;
use crate::check::floor::{CLOSE, END};
use crate::history::{Client, Fault, LONGEST_LEASE, Reach};
use crate::nemesis::late::{self, LATE};
use crate::nemesis::{ANSWERS_LOST, Hand, LOUD, QUIET, WITNESS, World, resets};
use crate::prelude::*;
use crate::processes::{Plan, Processes};
use crate::record::SECOND;
use crate::shared::STEADY;
use crate::support::{Distance, Network, Proxy, Server, listen};
use crate::witness::Witness;

/// What a round consists of.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Size {
    #[arg(long, default_value_t = 4)]
    pub(crate) processes: usize,
    /// In each process.
    #[arg(long, default_value_t = 12)]
    pub(crate) tasks: u16,
    #[arg(long, default_value_t = 30)]
    pub(crate) names: u16,
    /// Have every round at a distance, and not every other one: each process at its own, 0 to 20 ms from the server,
    /// there and back.
    #[arg(long)]
    pub(crate) far: bool,
    /// Lose the answers to so many of a hundred requests, which clients send again, whatever else happens. No process
    /// goes straight to the server then.
    #[arg(long, default_value_t = 0)]
    pub(crate) twice: u32,
}

/// How long counts may take to agree once nobody calls any more.
const SETTLE: u64 = 8 * SECOND;

/// Plays a round. An error says why there is no history.
pub(crate) fn play(
    size: Size,
    seconds: u64,
    seed: u64,
) -> Result<(History, tempfile::TempDir), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let server = Server::start();
    let resource = Server::start();
    let _judged_here = [Ended(&server), Ended(&resource)];
    let proxies = [(); 4].map(|()| Proxy::new(&server));
    proxies.iter().for_each(|proxy| proxy.lose_answers(size.twice));
    let networks = networks(&server, &proxies, size, seed);
    let name = late::Names::new(&proxies);
    // Its unnamed connection would be the nemesis's to kill.
    server.ask::<()>(&["CLIENT", "SETNAME", WITNESS]);
    let names = Names::new(size.names);
    let plan = Plan {
        folder: folder.path().into(),
        servers: networks.iter().map(|network| network[0].url(&server)).collect(),
        proxies: networks.iter().map(|network| network[1].url(&server)).collect(),
        sentinel: name.sentinel.url(),
        resource: resource.url(),
        seed,
        size,
    };
    let begun = now();
    let processes = Processes::start(plan)?;
    let mut history = History::default();

    let watching_over = AtomicBool::new(false);
    let mut witness = Witness::new(&server, names);
    let world = World {
        server: &server,
        proxies: &proxies,
        name: &name,
        processes: &processes,
        names,
        faults: Mutex::default(),
        heard: Mutex::default(),
        trouble: Mutex::default(),
        over: AtomicBool::new(false),
    };
    let ended = std::thread::scope(|scope| {
        let watching = scope.spawn(|| witness.watch(&watching_over));
        let beating = scope.spawn(|| beat(&watching_over));
        let ended = hammer(&world, seconds, seed);
        watching_over.store(true, Ordering::Relaxed);
        history.samples = watching.join().expect("the witness failed");
        history.gaps = beating.join().expect("the heart of the hammer failed");
        ended
    });
    history.faults = std::mem::take(&mut *lock(&world.faults));
    proxies.iter().for_each(|proxy| proxy.lose_answers(0));
    history.faults.extend(resets(&proxies));
    if size.twice > 0 {
        let (t0, t1, settle) = (begun, now(), Some(LONGEST_LEASE));
        let lost = Fault { kind: ANSWERS_LOST, t0, t1, settle, ..Fault::default() };
        history.faults.push(Fault { took_effect: true, ..lost });
    }
    history.heard = std::mem::take(&mut *lock(&world.heard));
    let trouble = lock(&world.trouble).take();
    let told = ended.and(trouble.map_or(Ok(()), Err)).and_then(|()| processes.tell("stop", "kept"));
    history.trouble = match told {
        Ok(()) => {
            let mut so_far = History { faults: history.faults.clone(), ..History::default() };
            processes.read(&mut so_far)?;
            history.kept = Some(counted(&mut witness, &so_far));
            let trouble = processes.end().err();
            let arrived = || proxies.iter().all(Proxy::fates_are_known);
            let (on_the_way, left_over) = witness.left_over(arrived);
            history.samples.extend(on_the_way);
            history.left_over = left_over;
            trouble
        }
        Err(trouble) => {
            processes.kill();
            Some(trouble)
        }
    };
    history.gaps.append(&mut witness.slow);
    history.fates = fates(&proxies);
    processes.read(&mut history)?;
    history.finish();
    prove_stops(&mut history);
    Ok((history, folder))
}

/// The ways of each process to the server: at once, and through its proxy.
fn networks(server: &Server, proxies: &[Proxy], size: Size, seed: u64) -> Vec<[Network; 2]> {
    let mut random = Rng::with_seed(seed);
    let distances = (0..size.processes).map(|slot| match slot {
        0 => Distance::default(),
        _ if size.far => Distance {
            each_way: Duration::from_micros(random.u64(0..10_000)),
            jitter: Duration::from_micros(random.u64(0..1_000)),
        },
        _ => Distance::default(),
    });
    let distances: Vec<Distance> = distances.collect();
    if size.far {
        println!("distances: {:?}", distances.iter().map(|one| one.each_way).collect::<Vec<_>>());
    }
    let network = |(slot, distance): (usize, &Distance)| {
        let proxy = proxies[slot % 2].port();
        [Network::new(server, *distance), Network::to_port(listen(), proxy, *distance)]
    };
    distances.iter().enumerate().map(network).collect()
}

/// Ends a server without the look at its keys that it has when it is dropped: what is left there is
/// for the rules to judge.
struct Ended<'a>(&'a Server);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.kill();
    }
}

fn hammer(world: &World<'_>, seconds: u64, seed: u64) -> Result<(), String> {
    std::thread::scope(|scope| {
        let hand = |seed, kinds, pause| {
            scope.spawn(move || Hand::new(world, seed).work(world, kinds, pause))
        };
        let hands = [
            hand(seed, LOUD, (200, 1600)),
            hand(!seed, QUIET, (20, 300)),
            hand(seed ^ 1, LATE, (200, 1000)),
        ];
        let end = now() + seconds * SECOND;
        while now() < end && !hands.iter().any(ScopedJoinHandle::is_finished) {
            sleep(Duration::from_millis(20));
        }
        world.over.store(true, Ordering::Relaxed);
        let hands = hands.map(ScopedJoinHandle::join);
        if hands.iter().all(Result::is_ok) { Ok(()) } else { Err("the nemesis failed".into()) }
    })
}

/// Looks until what the server counts is what the processes keep, or until it is clear that it will
/// not be.
fn counted(witness: &mut Witness, history: &History) -> Vec<Sample> {
    let end = now() + SETTLE;
    loop {
        let samples = witness.look();
        if kept_wrongly(history, &samples).is_empty() || now() > end {
            return samples;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Pauses of this process, which has the nemesis in it.
fn beat(over: &AtomicBool) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut last = now();
    while !over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(2));
        let t = now();
        if t - last > 20 * MS {
            gaps.push((last, t));
        }
        last = t;
    }
    gaps
}

/// A process was stopped if its own heart stood still for most of that time.
fn prove_stops(history: &mut History) {
    for fault in history.faults.iter_mut().filter(|fault| fault.kind == "stop a process") {
        let Reach::Process(number) = fault.reach else { continue };
        let process = history.processes.get(usize::from(number));
        let most = (fault.t1 - fault.t0) * 8 / 10;
        fault.took_effect = process.is_some_and(|process| {
            let stood = |(from, to): &(u64, u64)| {
                to.min(&fault.t1).saturating_sub(*from.max(&fault.t0)) >= most
            };
            process.gaps.iter().any(stood)
        });
    }
}

fn fates(proxies: &[Proxy]) -> Fates {
    let sum = |count: fn(&Proxy) -> u64| proxies.iter().map(count).sum();
    Fates {
        requests: sum(|proxy| proxy.sent("EVALSHA")),
        unanswered: sum(Proxy::answers_lost),
        held: sum(Proxy::held),
        late: sum(Proxy::executed_late),
        slow: sum(Proxy::executed_slow),
        never: sum(Proxy::came_to_nothing),
    }
}

/// For the table: what the nemesis did, and what the processes did to themselves.
pub(crate) fn by_kind(
    history: &History,
    kinds: impl Iterator<Item = &'static str>,
) -> BTreeMap<&'static str, (u64, u64)> {
    let mut kinds: BTreeMap<_, _> = kinds.map(|kind| (kind, (0, 0))).collect();
    for fault in &history.faults {
        let (done, effective) = kinds.entry(fault.kind).or_default();
        *done += 1;
        *effective += u64::from(fault.took_effect);
    }
    let ended = history.processes.iter().flat_map(|process| &process.runtimes);
    let under_way = ended.clone().filter(|cut_off| **cut_off > 0).count();
    kinds.insert(END, (ended.count() as u64, under_way as u64));
    let fleeting =
        history.processes.iter().flat_map(|process| process.clients.get(STEADY as usize..));
    let closed = fleeting.flatten().filter(|client| client.closing != NEVER);
    let closed: HashMap<u128, &Client> = closed.map(|client| (client.uuid, client)).collect();
    let under_way = |acquire: &&Acquire| {
        let over = acquire.release.map_or(acquire.ret, |release| release.inv);
        closed.get(&acquire.owner.0).is_some_and(|c| acquire.inv < c.closing && c.closing < over)
    };
    let under_load = history.acquires.iter().filter(under_way).map(|acquire| acquire.owner.0);
    let under_load: HashSet<u128> = under_load.collect();
    kinds.insert(CLOSE, (closed.len() as u64, under_load.len() as u64));
    kinds
}
