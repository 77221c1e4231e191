//! A real server and a simulated one, to which the same is done.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redlatch::simulation::{ClientId, Effect, Server as Simulated, Settings, Version};

use super::clock::Clock;
use super::resp::{Value, parse};
use super::steps::{Like, Request, Step};
use super::support::Server;
use super::wanted::{compared, without_patch_level};

/// So many connections take steps; one more looks.
pub(crate) const CONNECTIONS: usize = 4;
pub(crate) const OBSERVER: usize = CONNECTIONS;

/// When a run begins.
const BEGIN: Duration = Duration::from_micros(1_764_000_000_123_456);

/// For an answer that does not come, on a machine that is busy; and while steps are left out.
const PATIENCE: Duration = Duration::from_secs(20);
const IMPATIENCE: Duration = Duration::from_secs(1);

/// One of the connections, at both servers.
struct Both {
    real: TcpStream,
    arrived: Vec<u8>,
    simulated: ClientId,
    expected: Vec<u8>,
    is_closed: bool,
}

/// The real server, for many runs.
pub(crate) struct Real {
    clock: Clock,
    monotonic: Cell<Duration>,
    patience: Cell<Duration>,
    server: Server,
    version: Version,
    said_version: String,
}

/// The two of them, in one run.
pub(crate) struct Pair<'a> {
    real: &'a Real,
    simulated: Simulated,
    connections: Vec<Both>,
    now: Duration,
    /// How many clients have come to the simulated server.
    came: u64,
}

impl Real {
    /// An error says why there is nothing to compare: a clock cannot be set, or nothing simulates this server.
    pub(crate) fn start() -> Result<Self, String> {
        let clock = Clock::build()?;
        let probe = Server::start();
        let info: String = probe.ask(&["INFO", "server"]);
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let (make, number) = match field("valkey_version:") {
            Some(number) => ("Valkey", number),
            None => ("Redis", field("redis_version:").expect("a version")),
        };
        let said_version = format!("{make} {}", number.trim());
        let version = match without_patch_level(&said_version) {
            "Redis 6.2" => Version::Redis62,
            "Redis 7.0" => Version::Redis70,
            "Redis 8.0" => Version::Redis80,
            "Valkey 9.1" => Version::Valkey91,
            _ => return Err(format!("no simulated server speaks as {said_version} does")),
        };
        let debug = ["--enable-debug-command", "yes"];
        let args = if version == Version::Redis62 { &[][..] } else { &debug };
        let server = Server::start_with_env(args, clock.env());
        server.ask::<()>(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        // The connection that a server keeps for such questions would be counted.
        let _ = server.try_ask::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]);
        // Later than it says now.
        let monotonic = Cell::new(Duration::from_secs(1 << 32));
        let patience = Cell::new(PATIENCE);
        Ok(Self { clock, monotonic, patience, server, version, said_version })
    }

    /// From now on an answer that does not come at once does not come.
    pub(crate) fn lose_patience(&self) {
        self.patience.set(IMPATIENCE);
    }

    pub(crate) fn name(&self) -> &str {
        &self.said_version
    }

    /// Has its clock stand still at that time, when so much has passed since it was last set.
    fn stand_at(&self, time: Duration, passed: Duration) {
        self.monotonic.set(self.monotonic.get() + passed);
        self.clock.stand_at(time, self.monotonic.get());
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.server.port())).expect("connecting");
        stream.set_nodelay(true).expect("a setting");
        stream.set_read_timeout(Some(self.patience.get())).expect("a timeout");
        stream
    }

    /// As a server that has just been started, as far as it goes.
    fn reset(&self) {
        let mut stream = self.connect();
        let commands =
            ["REPLICAOF NO ONE", "CONFIG SET maxmemory 0", "FLUSHALL", "SCRIPT FLUSH", "ACL USERS"];
        stream.write_all((commands.join("\r\n") + "\r\n").as_bytes()).expect("a reset");
        let mut arrived = Vec::new();
        let mut users = Vec::new();
        for command in commands {
            match read(&mut stream, &mut arrived) {
                Some(Value::Line(b'+' | b':', _)) => {}
                Some(Value::Many(_, Some(all))) => users = all,
                other => panic!("{command}: {other:?}"),
            }
        }
        for user in users {
            let Value::Bulk(user) = user else { continue };
            let delete = Request::new(Like::Same, [b"ACL", &b"DELUSER"[..], &user]);
            stream.write_all(&delete.bytes()).expect("a reset");
            let _ = read(&mut stream, &mut arrived);
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.reset();
        }
    }
}

impl<'a> Pair<'a> {
    /// Both as if they had just been started.
    pub(crate) fn new(real: &'a Real) -> Self {
        real.stand_at(BEGIN, Duration::ZERO);
        real.reset();
        let settings =
            Settings { version: real.version, port: real.server.port(), ..Settings::default() };
        let mut simulated = Simulated::new(settings);
        simulated.start(BEGIN);
        let mut pair = Self { real, simulated, connections: Vec::new(), now: BEGIN, came: 0 };
        for _ in 0..=CONNECTIONS {
            let both = pair.connected();
            pair.connections.push(both);
        }
        pair
    }

    /// A connection to both, under the same number.
    fn connected(&mut self) -> Both {
        let mut real = self.real.connect();
        let address = real.local_addr().expect("an address").to_string();
        let question = Request::new(Like::Same, ["CLIENT", "ID"]).bytes();
        real.write_all(&question).expect("a question");
        let mut both = Both {
            real,
            arrived: Vec::new(),
            simulated: ClientId::default(),
            expected: Vec::new(),
            is_closed: false,
        };
        let id = match both.read() {
            Some(Value::Line(b':', id)) => id.parse::<u64>().expect("a number"),
            other => panic!("no id: {other:?}"),
        };
        // Nobody else came to the simulated one.
        while self.came + 1 < id {
            let passes = self.simulated.accept(self.now, "");
            self.simulated.closed(self.now, passes);
            self.came += 1;
        }
        self.came += 1;
        both.simulated = self.simulated.accept(self.now, &address);
        self.simulated.receive(self.now, both.simulated, &question);
        let said =
            Effect::Send { client: both.simulated, bytes: format!(":{id}\r\n").into_bytes() };
        assert_eq!(self.simulated.take_effects(), [said]);
        both
    }

    /// Does this to both. Says what they answer differently, if they do.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Later(micros) => {
                let passes = Duration::from_micros(*micros);
                self.now += passes;
                self.real.stand_at(self.now, passes);
                Ok(())
            }
            Step::Reconnect(connection) => {
                let old = &self.connections[*connection];
                let _ = old.real.shutdown(std::net::Shutdown::Both);
                self.simulated.closed(self.now, old.simulated);
                self.connections[*connection] = self.connected();
                Ok(())
            }
            Step::Ask { connection, requests, cut } => self.ask(*connection, requests, *cut),
        }
    }

    fn ask(
        &mut self,
        connection: usize,
        requests: &[Request],
        cut: Option<usize>,
    ) -> Result<(), String> {
        let bytes: Vec<u8> =
            requests.iter().flat_map(|request| self.filled(request).bytes()).collect();
        let (first, second) = bytes.split_at(cut.unwrap_or(bytes.len()).min(bytes.len()));
        let pieces: Vec<&[u8]> =
            [first, second].into_iter().filter(|part| !part.is_empty()).collect();
        for piece in pieces {
            // A server that has closed the connection already is noticed below.
            let _ = self.connections[connection].real.write_all(piece);
            self.simulated.receive(self.now, self.connections[connection].simulated, piece);
            self.take();
        }
        let likes: Vec<Like> = requests.iter().map(|request| request.like).collect();
        // Its answers first: then what others were to receive has been sent, too.
        self.compare(connection, &likes)?;
        let mut others = (0..=CONNECTIONS).filter(|other| *other != connection);
        others.try_for_each(|other| self.compare(other, &[]))?;
        for one in 0..=CONNECTIONS {
            if self.connections[one].is_closed {
                self.connections[one] = self.connected();
            }
        }
        Ok(())
    }

    /// The request, with the number or the address of a connection where it names one.
    fn filled(&self, request: &Request) -> Request {
        let mut request = request.clone();
        for word in &mut request.words {
            for (at, both) in self.connections.iter().enumerate() {
                if *word == format!("<address {at}>").into_bytes() {
                    *word = both.real.local_addr().expect("an address").to_string().into_bytes();
                }
            }
        }
        request
    }

    fn take(&mut self) {
        for effect in self.simulated.take_effects() {
            let of = |client| self.connections.iter().position(|both| both.simulated == client);
            match effect {
                Effect::Send { client, bytes } => {
                    if let Some(at) = of(client) {
                        self.connections[at].expected.extend(bytes);
                    }
                }
                Effect::Close { client } => {
                    if let Some(at) = of(client) {
                        self.connections[at].is_closed = true;
                    }
                }
                _ => {}
            }
        }
    }

    fn compare(&mut self, connection: usize, likes: &[Like]) -> Result<(), String> {
        let both = &mut self.connections[connection];
        let expected = std::mem::take(&mut both.expected);
        let (mut at, mut simulated, mut real) = (0, Vec::new(), Vec::new());
        while at < expected.len() {
            let Some((value, length)) = parse(&expected[at..]) else {
                let piece = String::from_utf8_lossy(&expected[at..]);
                return Err(format!("simulated: a piece: {piece:?}"));
            };
            at += length;
            simulated.push(value);
            // Not one more that does not come.
            if real.len() + 1 == simulated.len() {
                real.extend(both.read());
            }
        }
        let [real, simulated] = [real, simulated].map(|values| compared(values, likes));
        if real != simulated {
            let same = real.iter().zip(&simulated).take_while(|(a, b)| a == b).count();
            let rest = |values: &[Value]| match &values[same..] {
                [] => "nothing".to_owned(),
                [first, rest @ ..] => format!("{first:?} and {} more", rest.len()),
            };
            return Err(format!(
                "connection {connection}, answer {} {likes:?}:\n  real:      {}\n  simulated: {}",
                same + 1,
                rest(&real),
                rest(&simulated)
            ));
        }
        let more = if both.is_closed { both.read_to_end() } else { both.read_at_once() };
        match more {
            None => Ok(()),
            Some(more) => Err(format!(
                "connection {connection}: simulated: nothing more\n  real:      {more}"
            )),
        }
    }
}

impl Both {
    /// The next value that the real server sends.
    fn read(&mut self) -> Option<Value> {
        read(&mut self.real, &mut self.arrived)
    }

    /// What else has arrived: there ought to be nothing.
    fn read_at_once(&mut self) -> Option<String> {
        let mut chunk = [0; 65536];
        self.real.set_nonblocking(true).expect("a setting");
        let read = self.real.read(&mut chunk);
        self.real.set_nonblocking(false).expect("a setting");
        match read {
            Ok(0) => return Some("the end".into()),
            Ok(length) => self.arrived.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Some(error.to_string()),
        }
        (!self.arrived.is_empty()).then(|| String::from_utf8_lossy(&self.arrived).into_owned())
    }

    /// For a connection that ends.
    fn read_to_end(&mut self) -> Option<String> {
        match self.read() {
            Some(more) => Some(format!("{more:?}")),
            // The real one may have sent a piece of an answer.
            None => {
                let mut byte = [0];
                match self.real.read(&mut byte) {
                    Err(error)
                        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                    {
                        Some("the connection does not end".into())
                    }
                    _ => None,
                }
            }
        }
    }
}

/// The next value, if one comes.
fn read(stream: &mut TcpStream, arrived: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some((value, length)) = parse(arrived) {
            arrived.drain(..length);
            return Some(value);
        }
        let mut chunk = [0; 65536];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(length) => arrived.extend_from_slice(&chunk[..length]),
        }
    }
}
