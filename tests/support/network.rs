//! A network between a client and a server: distance and jitter, as a test sets them.
//!
//! Every chunk leaves when its time has come, in the order in which it came. A thread waits for
//! that: the timers of a runtime are a millisecond coarse, `thread::sleep` comes 0.1 ms late at
//! most on an idle machine. As on a real network a new connection takes a round trip before it
//! carries anything, and the end of a connection travels as long as its data.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// What lies between a client and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Distance {
    /// What each chunk takes, in either direction.
    pub(crate) each_way: Duration,
    /// Each chunk may take so much longer; those behind it wait for it.
    pub(crate) jitter: Duration,
}

impl Distance {
    /// A network whose round trip takes that long.
    pub(crate) fn round_trip(round_trip: Duration) -> Self {
        Self { each_way: round_trip / 2, ..Self::default() }
    }
}

/// Dropping it ends the network and every connection through it.
pub(crate) struct Network {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: u16,
    distance: Distance,
    state: Mutex<State>,
    connections: AtomicU64,
    over: AtomicBool,
}

struct State {
    /// For the jitter.
    random: u64,
    open: Vec<Weak<Ends>>,
    /// With so many of them, those are forgotten that have ended.
    sweep_at: usize,
}

/// Both ends of a connection, which are closed when nothing is carried between them any more.
struct Ends {
    client: TcpStream,
    server: TcpStream,
}

impl Network {
    /// A client's way to whoever listens there, which begins at `listener`.
    pub(crate) fn to_port(listener: TcpListener, upstream: u16, distance: Distance) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let state = State { random: 0x9e37_79b9_7f4a_7c15, open: Vec::new(), sweep_at: 64 };
        let shared = Arc::new(Shared {
            upstream,
            distance,
            state: Mutex::new(state),
            connections: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.over.load(Ordering::SeqCst) {
                    return;
                }
                // A client that has gone already, or a server that is down: it sees an end.
                let _ = client.and_then(|client| accepting.connect(client));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        let open = std::mem::take(&mut self.shared.state().open);
        for ends in open.iter().filter_map(Weak::upgrade) {
            // One that has ended before is not connected. The end of the first may have ended the other.
            let _ = ends.client.shutdown(Shutdown::Both);
            let _ = ends.server.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let begun = Instant::now();
        let server = TcpStream::connect(("127.0.0.1", self.upstream))?;
        self.connections.fetch_add(1, Ordering::SeqCst);
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        let ends = Arc::new(Ends { client, server });
        self.state().opened(&ends);
        // The connection stands after a round trip, on a network where that counts.
        let stands = begun + 2 * self.distance.each_way;
        self.carry(ends.clone(), |ends| [&ends.client, &ends.server], stands);
        self.carry(ends, |ends| [&ends.server, &ends.client], begun);
        Ok(())
    }

    /// Carries what one end sends to the other; nothing sets out before `first`.
    fn carry(self: &Arc<Self>, ends: Arc<Ends>, way: fn(&Ends) -> [&TcpStream; 2], first: Instant) {
        let (send, chunks) = mpsc::channel::<(Instant, Vec<u8>)>();
        let shared = self.clone();
        let reading = ends.clone();
        thread::spawn(move || {
            let [mut from, _] = way(&reading);
            // When the last chunk arrives.
            let mut last = first;
            let mut buffer = vec![0; 64 * 1024];
            loop {
                // An error is an end, too.
                let length = from.read(&mut buffer).unwrap_or(0);
                let chunk = buffer[..length].to_vec();
                let due = shared.due(&mut last, first);
                if send.send((due, chunk)).is_err() || length == 0 {
                    return;
                }
            }
        });
        thread::spawn(move || {
            let [_, mut to] = way(&ends);
            for (due, chunk) in chunks {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if chunk.is_empty() || to.write_all(&chunk).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }

    /// When a chunk arrives that was sent now, behind the `last` one.
    fn due(&self, last: &mut Instant, first: Instant) -> Instant {
        let late = self.distance.jitter.mul_f64(self.state().random());
        let sent = Instant::now().max(first);
        *last = (sent + self.distance.each_way + late).max(*last);
        *last
    }
}

impl State {
    /// From 0 to 1.
    fn random(&mut self) -> f64 {
        // xorshift64: any spread will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as f64 / u64::MAX as f64
    }

    fn opened(&mut self, ends: &Arc<Ends>) {
        if self.open.len() >= self.sweep_at {
            self.open.retain(|ends| ends.strong_count() > 0);
            self.sweep_at = 2 * self.open.len().max(32);
        }
        self.open.push(Arc::downgrade(ends));
    }
}
