//! Requests that are held up on their way for longer than their caller waits, and a server that
//! gets another name meanwhile. Nobody but the caller may notice, then or later.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Hand, Kind, OUTAGE, World, at_proxy, eventually, kind, proxy, within};
use crate::prelude::*;
use crate::support::{self, Proxy, Server, sentinel};

pub(crate) const LATE: &[Kind] =
    &[kind("hold up requests", OUTAGE, hold_up), kind("rename the server", OUTAGE, rename)];

/// A server under two names: each is a proxy of its own. A Sentinel says which name it has now.
pub(crate) struct Names<'a> {
    proxies: &'a [Proxy; 4],
    pub(crate) sentinel: Server,
    /// The proxy that is named now: [`TWO`] of them are names.
    now: AtomicUsize,
    epoch: AtomicU64,
}

/// The proxies that are names of one server.
pub(crate) const TWO: [usize; 2] = [2, 3];

impl<'a> Names<'a> {
    pub(crate) fn new(proxies: &'a [Proxy; 4]) -> Self {
        let sentinel = Server::start_sentinel(&conviction("127.0.0.1", &proxies[TWO[0]], 0));
        Self { proxies, sentinel, now: TWO[0].into(), epoch: AtomicU64::new(0) }
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Has the Sentinel name the other proxy. Returns that and what it is called, and whether the
    /// clients have gone there.
    fn change(&self, host: &str) -> (usize, String, bool) {
        let next = TWO[usize::from(self.now() == TWO[0])];
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        self.sentinel.kill();
        self.sentinel.configure(&conviction(host, &self.proxies[next], epoch));
        self.sentinel.start_again();
        let proxy = &self.proxies[next];
        let before = proxy.sent("EVALSHA");
        self.now.store(next, Ordering::Relaxed);
        // They connect to the Sentinel again first.
        let moved = within(Duration::from_secs(4), || proxy.sent("EVALSHA") > before);
        (next, format!("{host}:{}", proxy.port()), moved)
    }
}

fn conviction(host: &str, proxy: &Proxy, epoch: u64) -> String {
    let names = "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n";
    names.to_owned() + &sentinel::conviction(host, proxy.port(), epoch)
}

/// Holds up a few of the next requests, mostly each on a connection of its own. Returns how many.
fn hold_some_up(proxy: &Proxy, hand: &mut Hand, time: Duration) -> usize {
    const SOME: usize = 3;
    let fault = support::Fault::HoldBackFor(time);
    let mut nth = 0;
    for _ in 0..SOME {
        nth += hand.rng.u64(1..10);
        proxy.plan("EVALSHA", nth, fault);
    }
    eventually(|| proxy.to_come(fault) == 0);
    // What is left could take effect at any time, and nobody would know.
    SOME - proxy.give_up(fault)
}

fn hold_up(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let (proxy, at) = proxy(world, hand);
    let time = hand.some_time(1000, 4000);
    let held = hold_some_up(proxy, hand, time);
    let done = at_proxy(at, format_args!("for {time:?}, {held} of them"), held > 0)?;
    Some(Fault { late: Some(until(time)), ..done })
}

/// To the other name with requests held up at the old one, and perhaps back again before those
/// arrive.
fn rename(world: &World<'_>, hand: &mut Hand) -> Option<Fault> {
    let at = world.name.now();
    let time = hand.some_time(2000, 4000);
    let held = hold_some_up(&world.proxies[at], hand, time);
    let late = Some(until(time));
    let mut all_moved = true;
    let mut names = Vec::new();
    for _ in 0..hand.rng.u32(1..3) {
        let host = if hand.rng.bool() { "127.0.0.1" } else { "localhost" };
        let (_, name, moved) = world.name.change(host);
        all_moved &= moved;
        names.push(name);
    }
    let how = format!("to {}, {held} requests held up", names.join(" and to "));
    Some(Fault { late, ..at_proxy(at, how, all_moved)? })
}

/// When what is held up for so long from now on has arrived.
fn until(time: Duration) -> u64 {
    const ON_ITS_WAY: u64 = 100 * MS;
    now() + u64::try_from(time.as_nanos()).expect("a short time") + ON_ITS_WAY
}
