//! The nemesis: breaks things at random while the processes work, and proves that it did.
//!
//! It has three hands. One does what slows locks down or ends holds, a thing at a time, and waits
//! until that has settled. The second, at the same time, does what nobody may notice. The third
//! makes requests late.

pub(crate) mod late;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Instant;

use crate::history::Reach;
use crate::monitor::Monitor;
use crate::prelude::*;
use crate::processes::Processes;
use crate::support::{self, Proxy, Server, channel};

/// What the nemesis works on.
pub(crate) struct World<'a> {
    pub(crate) server: &'a Server,
    /// Those of clients with an address, and the names of the server.
    pub(crate) proxies: &'a [Proxy; 4],
    pub(crate) name: &'a late::Names<'a>,
    pub(crate) processes: &'a Processes,
    pub(crate) names: Names,
    pub(crate) faults: Mutex<Vec<Fault>>,
    pub(crate) heard: Mutex<Vec<Heard>>,
    /// A process that could not be started again, say.
    pub(crate) trouble: Mutex<Option<String>>,
    pub(crate) over: AtomicBool,
}

/// One kind of fault.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// In milliseconds; `None` if nobody may notice.
    settle: Option<u64>,
    inflict: Inflict,
}

type Inflict = fn(&World<'_>, &mut Hand) -> Option<Fault>;

const fn kind(name: &'static str, settle: Option<u64>, inflict: Inflict) -> Kind {
    Kind { name, settle, inflict }
}

fn at_proxy(proxy: usize, how: impl std::fmt::Display, took_effect: bool) -> Option<Fault> {
    let reach = Reach::Proxy(proxy);
    Some(Fault { reach, ..Fault::done(format!("{proxy} {how}"), took_effect)? })
}

/// After an outage a call that was under way may take its command timeout to fail, and pauses
/// before it is tried again.
pub(crate) const OUTAGE: Option<u64> = Some(1700);
pub(crate) const RECONNECT: Option<u64> = Some(500);

pub(crate) const LOUD: &[Kind] = &[
    kind("kill connections", RECONNECT, |_, hand| kill_type(hand, "normal")),
    kind("stop a process", RECONNECT, stop_a_process),
    kind("kill a process", RECONNECT, kill_a_process),
    kind("stall replies", OUTAGE, |world, hand| stall(world, hand, false)),
    kind("kill subscribers", RECONNECT, |_, hand| kill_type(hand, "pubsub")),
    kind("pause writes", OUTAGE, |_, hand| pause_for(hand, "WRITE")),
    kind("cut a proxy", RECONNECT, cut),
    kind("black hole", OUTAGE, |world, hand| stall(world, hand, true)),
    kind("stop the server", OUTAGE, stop_the_server),
    kind("pause everything", OUTAGE, |_, hand| pause_for(hand, "ALL")),
    kind("refuse connections", OUTAGE, refuse),
];

/// For a whole round: of so many of a hundred requests. Nothing comes at once then.
pub(crate) const ANSWERS_LOST: &str = "answers are lost";

/// What a fault of the second hand, which plans several, did to one connection.
pub(crate) const RESET: &str = "a connection breaks";

/// When those of each proxy were.
pub(crate) fn resets(proxies: &[Proxy]) -> Vec<Fault> {
    let all = proxies.iter().enumerate();
    let all = all.flat_map(|(at, proxy)| proxy.resets().into_iter().map(move |reset| (at, reset)));
    let fault = |(at, reset): (usize, Instant)| {
        let ago = u64::try_from(reset.elapsed().as_nanos()).expect("a time of this run");
        let (t, reach) = (now() - ago, Reach::Proxy(at));
        Fault { kind: RESET, t0: t, t1: t, reach, took_effect: true, ..Fault::default() }
    };
    all.map(fault).collect()
}

pub(crate) const QUIET: &[Kind] = &[
    kind("lose a reply", None, |world, hand| plan(world, hand, support::Fault::DropReplyAndReset)),
    kind("reset before send", None, |world, hand| {
        plan(world, hand, support::Fault::ResetBeforeSend)
    }),
    kind("delay subscriptions", None, delay_subscriptions),
    kind("delete a key", None, delete_a_key),
    kind("forget scripts", None, forget_scripts),
    kind("forge messages", None, forge_messages),
];

/// Of all kinds.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    LOUD.iter().chain(QUIET).chain(late::LATE).map(|kind| kind.name)
}

/// One of the hands, with a connection of its own.
pub(crate) struct Hand {
    rng: Rng,
    redis: redis::Connection,
}

impl Hand {
    pub(crate) fn new(world: &World<'_>, seed: u64) -> Self {
        let mut redis = world.server.connection().expect("a connection for the nemesis");
        name(&mut redis);
        Self { rng: Rng::with_seed(seed), redis }
    }

    fn ask<T: redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        let answer = redis::cmd(command[0]).arg(&command[1..]).query(&mut self.redis);
        answer.unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    fn some_time(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.u64(least..most))
    }

    /// Goes through all kinds in a random order, again and again, until the round is over.
    pub(crate) fn work(&mut self, world: &World<'_>, kinds: &[Kind], pause: (u64, u64)) {
        let mut order: Vec<usize> = Vec::new();
        loop {
            let quiet = self.some_time(pause.0, pause.1);
            if !idle(world, quiet) {
                return;
            }
            if order.is_empty() {
                order = (0..kinds.len()).collect();
                self.rng.shuffle(&mut order);
            }
            let kind = &kinds[order.pop().expect("filled above")];
            let t0 = now();
            let Some(done) = (kind.inflict)(world, self) else { continue };
            let settle = kind.settle.map(|millis| millis * MS);
            let fault = Fault { kind: kind.name, t0, t1: now(), settle, ..done };
            lock(&world.faults).push(fault);
            if !idle(world, Duration::from_millis(kind.settle.unwrap_or(0))) {
                return;
            }
        }
    }
}

/// Sleeps; false if the round is over.
fn idle(world: &World<'_>, time: Duration) -> bool {
    let end = Instant::now() + time;
    while Instant::now() < end && !world.over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(5).min(time));
    }
    !world.over.load(Ordering::Relaxed)
}

/// Connections with this name are not the nemesis's to kill.
pub(crate) const WITNESS: &str = "witness";

pub(crate) fn name(connection: &mut redis::Connection) {
    let named = redis::cmd("CLIENT").arg(&["SETNAME", WITNESS]).exec(connection);
    named.expect("naming a connection");
}

fn kill_type(hand: &mut Hand, which: &str) -> Option<Fault> {
    let list: String = hand.ask(&["CLIENT", "LIST", "TYPE", which]);
    let mut killed = 0;
    let spared = format!(" name={WITNESS} ");
    for line in list.lines().filter(|line| !line.contains(&spared)) {
        let id = line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).unwrap_or("0");
        killed += hand.ask::<u64>(&["CLIENT", "KILL", "ID", id]);
    }
    Fault::done(format!("{killed} {which}"), killed > 0)
}

fn forget_scripts(_: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let unknown = |hand: &mut Hand| {
        let info: String = hand.ask(&["INFO", "errorstats"]);
        let line = info.lines().find(|line| line.starts_with("errorstat_NOSCRIPT"));
        line.unwrap_or_default().to_owned()
    };
    let before = unknown(hand);
    hand.ask::<()>(&["SCRIPT", "FLUSH"]);
    // Somebody has to run into it.
    Fault::done("", eventually(|| unknown(hand) != before))
}

fn pause_for(hand: &mut Hand, what: &str) -> Option<Fault> {
    let time = hand.some_time(100, 1600);
    hand.ask::<()>(&["CLIENT", "PAUSE", &time.as_millis().to_string(), what]);
    let start = Instant::now();
    // A write is held back like everybody's.
    hand.ask::<()>(&["DEL", "nobody's"]);
    Fault::done(format!("{time:?}"), start.elapsed() * 10 >= time * 8)
}

fn forge_messages(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let mut heard = 0;
    for _ in 0..50 {
        let channel = world.names.channel(world.names.pick(&mut hand.rng));
        let garbage: Vec<u8> = (0..hand.rng.usize(..20)).map(|_| hand.rng.u8(..)).collect();
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(garbage);
        heard += publish.query::<u64>(&mut hand.redis).expect("publishing");
    }
    Fault::done(format!("{heard} heard"), heard > 0)
}

/// The deletion of a lock's key, or of its token's.
pub(crate) fn deletion(names: Names, of_token: bool, rng: &mut Rng) -> Option<Fault> {
    let mut tampered = names.tampered();
    let key = tampered.nth(rng.usize(..tampered.len()))?;
    let name = names.name(key);
    if of_token {
        let token = format!("redisson_lock_token:{}", channel(&name).split_once(':')?.1);
        return Some(Fault { tokens: key..key + 1, ..Fault::done(token, true)? });
    }
    Some(Fault { keys: key..key + 1, ..Fault::done(name, true)? })
}

/// A name that is free at the moment has none.
fn delete_a_key(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let of_token = hand.rng.bool();
    for _ in 0..100 {
        let deletion = deletion(world.names, of_token, &mut hand.rng)?;
        if hand.ask::<u64>(&["DEL", &deletion.target]) > 0 {
            return Some(deletion);
        }
        sleep(Duration::from_millis(1));
    }
    Fault::done("nothing there", false)
}

fn stop_the_server(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let time = hand.some_time(100, 1600);
    world.server.pause();
    let start = Instant::now();
    let took_effect = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            hand.ask::<()>(&["PING"]);
            start.elapsed()
        });
        sleep(time);
        world.server.resume();
        asked.join().is_ok_and(|waited| waited >= time)
    });
    Fault::done(format!("{time:?}"), took_effect)
}

fn stop_a_process(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let slot = hand.rng.usize(..world.processes.len());
    let time = hand.some_time(100, 2400);
    let number = world.processes.pause(slot, time)?;
    Fault::at_process(number, true)
}

fn kill_a_process(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let slot = hand.rng.usize(..world.processes.len());
    let trouble = match world.processes.replace(slot) {
        Ok(Some(number)) => return Fault::at_process(number, true),
        Ok(None) => format!("the process in slot {slot} ended by itself"),
        Err(error) => error,
    };
    *lock(&world.trouble) = Some(trouble);
    None
}

fn proxy<'a>(world: &World<'a>, hand: &mut Hand) -> (&'a Proxy, usize) {
    let at = [0, 1, world.name.now()][hand.rng.usize(..3)];
    (&world.proxies[at], at)
}

fn sent(proxy: &Proxy) -> u64 {
    proxy.commands().values().sum()
}

fn eventually(condition: impl FnMut() -> bool) -> bool {
    within(Duration::from_secs(1), condition)
}

fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if condition() {
            return true;
        }
        sleep(Duration::from_millis(2));
    }
    false
}

fn cut(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let (proxy, at) = proxy(world, hand);
    let before = proxy.attempts();
    proxy.cut_all();
    at_proxy(at, "", eventually(|| proxy.attempts() > before))
}

/// Answers come late, or never: then the connections go with them.
fn stall(world: &World<'_>, hand: &mut Hand, for_ever: bool) -> Option<Fault> {
    let (proxy, at) = proxy(world, hand);
    let time = hand.some_time(100, 1600);
    let before = sent(proxy);
    proxy.stall_replies(true);
    sleep(time);
    let took_effect = sent(proxy) > before;
    if for_ever {
        proxy.cut_all();
        sleep(support::ms(5));
    }
    proxy.stall_replies(false);
    at_proxy(at, format_args!("for {time:?}"), took_effect)
}

fn refuse(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let (proxy, at) = proxy(world, hand);
    // Longer than the command timeout, so that calls say that they were not executed; the monitor hears
    // whether that is true.
    let time = hand.some_time(1100, 1900);
    let monitor = Monitor::listen(world.server, world.names);
    proxy.refuse(true);
    let before = proxy.attempts();
    proxy.cut_all();
    sleep(time);
    let took_effect = proxy.attempts() > before;
    proxy.refuse(false);
    lock(&world.heard).push(monitor.heard());
    at_proxy(at, format_args!("for {time:?}"), took_effect)
}

fn plan(world: &World<'_>, hand: &mut Hand, fault: support::Fault) -> Option<Fault> {
    let (proxy, at) = proxy(world, hand);
    // Those of before must have happened.
    if proxy.to_come(fault) > 0 {
        return None;
    }
    let mut nth = 0;
    for _ in 0..3 {
        nth += hand.rng.u64(1..20);
        proxy.plan("EVALSHA", nth, fault);
    }
    at_proxy(at, "", eventually(|| proxy.to_come(fault) < 3))
}

/// A release may fall between a waiter's first try and its subscription.
fn delay_subscriptions(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let (proxy, at) = proxy(world, hand);
    let time = hand.some_time(50, 200);
    proxy.hold("SUBSCRIBE");
    let before = proxy.sent("SUBSCRIBE");
    sleep(time);
    let took_effect = proxy.sent("SUBSCRIBE") > before;
    proxy.let_go();
    at_proxy(at, format_args!("for {time:?}"), took_effect)
}

pub(crate) mod trials {
    use super::*;

    pub(crate) fn the_connections_of_a_client_are_killed_and_that_of_the_witness_is_spared() {
        let server = Server::start();
        server.ask::<()>(&["CLIENT", "SETNAME", WITNESS]);
        let mut redis = server.connection().expect("a connection for the nemesis");
        name(&mut redis);
        let mut hand = Hand { rng: Rng::with_seed(1), redis };
        assert!(!kill_type(&mut hand, "normal").is_some_and(|fault| fault.took_effect));
        let runtime = support::runtime();
        let client = redlatch::LockClient::builder().url(server.url()).label("hammered");
        let client = runtime.block_on(client.connect()).expect("a client");
        let killed = kill_type(&mut hand, "normal").expect("a fault");
        assert!(killed.took_effect, "a client names its connections");
        // This hand's own one has lived through that.
        assert_eq!(hand.ask::<String>(&["PING"]), "PONG");
        drop(client);
    }
}
