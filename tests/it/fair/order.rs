//! The order of fair locks over processes: nobody has a lock before a waiter that came earlier, by more
//! than a round trip.
//!
//! Four processes wait for many locks, at distances of 0 to 20 ms there and back. Redis gets 15 of 100
//! scripts twice. Calls are dropped while they wait. Each second one process is killed and replaced, and
//! another one is stopped, for less than the grace or for more.
//!
//! A few seconds in every run; so many grants with
//!
//! ```sh
//! REDLATCH_ORDER=1000000 cargo test --release --test it -- --nocapture fair::order   # some minutes
//! ```

mod history;
mod process;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use history::{Away, History, nanos};

use crate::support::child::Child;
use crate::support::{Distance, Network, Proxy, Server, child, ms};

/// Round trips of the processes; every process has each of them in turn.
const ROUND_TRIPS: [Duration; 4] = [ms(0), ms(5), ms(10), ms(20)];

/// In turns, less than the grace and more.
const STOPS: [Duration; 2] = [ms(300), ms(1_300)];

/// The default.
const GRACE: Duration = ms(1_000);

/// A process that was started has connected after so long.
const CONNECTS: Duration = ms(1_000);

/// A process that was passed over is back in its places after that, at the latest: a third of the term.
const RETURNS: Duration = ms(3_400);

#[test]
fn one_of_the_processes() {
    if let Some(role) = child::role() {
        process::run(&role);
    }
}

/// A process, and its way to the server.
struct Place {
    _proxy: Proxy,
    network: Network,
    child: Child,
    /// How many processes were here before.
    generation: usize,
}

/// What is done to them, and until when there are enough grants.
struct Run {
    folder: PathBuf,
    places: Vec<Place>,
    away: Vec<Away>,
    late: Lateness,
}

/// A thread that notes how late it wakes up, until it is told to stop.
struct Lateness {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(u64, u64)>>,
}

impl Lateness {
    fn watch() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let watched = over.clone();
        let thread = thread::spawn(move || {
            let mut late = Vec::new();
            while !watched.load(Ordering::Relaxed) {
                let due = history::now() + nanos(ms(1));
                thread::sleep(ms(1));
                let now = history::now();
                late.push((now, now.saturating_sub(due)));
            }
            late
        });
        Self { over, thread }
    }

    fn noted(self) -> Vec<(u64, u64)> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

impl Run {
    fn new(server: &Server) -> Self {
        let folder = std::env::temp_dir().join(format!("redlatch-order-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let place = |number: usize| {
            let proxy = Proxy::new(server);
            proxy.repeat();
            let distance = Distance::round_trip(ROUND_TRIPS[number]);
            let network = Network::to_port(proxy.port(), distance);
            let child = start(&folder, number, 0, server, &network);
            Place { _proxy: proxy, network, child, generation: 0 }
        };
        let places: Vec<_> = (0..ROUND_TRIPS.len()).map(place).collect();
        let away = (0..ROUND_TRIPS.len()).map(|number| comes(number, 0)).collect();
        Self { folder, places, away, late: Lateness::watch() }
    }

    /// One second of it. Each process has eight seconds in which it is killed, and eight in which it is
    /// stopped, and is left alone between them.
    fn second(&mut self, second: usize, server: &Server) {
        let begun = Instant::now();
        let killed = second / 8 % ROUND_TRIPS.len();
        let stopped = (killed + 1) % ROUND_TRIPS.len();
        for (number, place) in self.places.iter().enumerate() {
            let distance = ROUND_TRIPS[(number + second / 4) % ROUND_TRIPS.len()];
            place.network.set(Distance::round_trip(distance));
        }
        let place = &mut self.places[killed];
        place.child.kill();
        let ended = history::now();
        place.child.ended();
        self.away.push(Away {
            process: (killed, place.generation),
            from: ended,
            to: u64::MAX,
            short: false,
        });
        place.generation += 1;
        let generation = place.generation;
        self.away.push(comes(killed, generation));
        let place = &mut self.places[killed];
        place.child = start(&self.folder, killed, generation, server, &place.network);

        let (place, time) = (&self.places[stopped], STOPS[second % STOPS.len()]);
        let from = history::now();
        place.child.stop();
        std::thread::sleep(time);
        place.child.go_on();
        let (process, to) = ((stopped, place.generation), history::now());
        let short = time < GRACE;
        let to = if short { to } else { to + nanos(RETURNS) };
        self.away.push(Away { process, from, to, short });
        std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    }

    /// Ends the processes, and reads what they wrote.
    fn end(self) -> History {
        let Self { folder, mut places, away, late } = self;
        for place in &mut places {
            place.child.say("stop");
        }
        for place in &mut places {
            assert!(place.child.ended().success(), "a process that failed");
        }
        let history = History::read(&folder, away, late.noted());
        let _ = std::fs::remove_dir_all(&folder);
        history
    }
}

fn comes(number: usize, generation: usize) -> Away {
    Away {
        process: (number, generation),
        from: 0,
        to: history::now() + nanos(CONNECTS),
        short: false,
    }
}

fn start(
    folder: &std::path::Path,
    number: usize,
    generation: usize,
    server: &Server,
    network: &Network,
) -> Child {
    let file = folder.join(format!("{number}-{generation}"));
    let url = server.url_at(network.port());
    let role = format!("{} {url}", file.display());
    Child::start("fair::order::one_of_the_processes", &role)
}

#[test]
fn nobody_passes_a_waiter_that_came_more_than_a_round_trip_earlier() {
    let wanted: Option<u64> = std::env::var("REDLATCH_ORDER").ok().and_then(|n| n.parse().ok());
    let server = Server::start();
    let mut run = Run::new(&server);
    let begun = Instant::now();
    let mut second = 0;
    while match wanted {
        Some(grants) => history::grants(&run.folder) < grants,
        None => second < 6,
    } {
        run.second(second, &server);
        second += 1;
    }
    let took = begun.elapsed();
    let history = run.end();
    let report = history.check();
    println!("{report}in {took:.0?}");
    assert_eq!(report.overlaps, 0, "two had a lock");
    assert_eq!(report.passed, 0, "passed over");
    // Else this would say nothing.
    assert!(report.grants > 200 && report.plain > report.grants / 4, "too little");
}
