//! Stands between a client and its server, counts what passes, and fails on demand.
//!
//! It runs on a thread of its own, so that a test which blocks its runtime does not stop it.
//! Every fault counts itself when it takes effect ([`Proxy::faults`]): a fault that did not
//! happen proves nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use super::{SOON, Server, wait_until};

/// What happens to one command, and to the connection that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks before the server sees the command.
    ResetBeforeSend,
    /// The server carries the command out; its answer is lost, and the connection breaks.
    DropReplyAndReset,
}

/// Dropping it ends the proxy and every connection through it.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _end: oneshot::Sender<()>,
}

struct Shared {
    upstream: u16,
    switches: watch::Sender<Switches>,
    log: Mutex<Log>,
}

/// What connections watch while they wait.
#[derive(Default)]
struct Switches {
    refuse: bool,
    stall_replies: bool,
    held: Option<&'static str>,
    /// Raised to cut every connection there is.
    cut: u64,
}

#[derive(Default)]
struct Log {
    commands: BTreeMap<String, u64>,
    attempts: u64,
    faults: u64,
    /// Faults to come: a verb, and how many more of it until then.
    planned: Vec<(&'static str, u64, Fault)>,
}

impl Proxy {
    pub(crate) fn new(server: &Server) -> Self {
        let shared = Arc::new(Shared {
            upstream: server.port(),
            switches: watch::Sender::default(),
            log: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.set_nonblocking(true).expect("a listener for tokio");
        let port = listener.local_addr().expect("an address").port();
        let (end, ended) = oneshot::channel();
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tokio::select! {
                    _ = ended => {}
                    _ = accept(listener, accepting) => {}
                }
            });
        });
        Self { port, shared, _end: end }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The server behind this proxy.
    pub(crate) fn url(&self, server: &Server) -> String {
        server.url_at(self.port)
    }

    /// Breaks every connection there is. New ones are taken.
    pub(crate) fn cut_all(&self) {
        self.shared.switches.send_modify(|switches| switches.cut += 1);
    }

    /// While set, every new connection is broken as soon as it is made.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.shared.switches.send_modify(|switches| switches.refuse = refuse);
    }

    /// While set, requests arrive but no answer and no message comes back. Answers that waited
    /// come when it is cleared: to lose them for good, cut the connections first.
    pub(crate) fn stall_replies(&self, stall: bool) {
        self.shared.switches.send_modify(|switches| switches.stall_replies = stall);
    }

    /// From now on `verb` (in upper case), and what follows it on its connection, does not reach
    /// the server before [`Proxy::let_go`].
    pub(crate) fn hold(&self, verb: &'static str) {
        self.shared.switches.send_modify(|switches| switches.held = Some(verb));
    }

    pub(crate) fn let_go(&self) {
        self.shared.switches.send_modify(|switches| switches.held = None);
    }

    /// `fault` befalls the `nth` command of that verb from now on, the first being 1.
    pub(crate) fn plan(&self, verb: &'static str, nth: u64, fault: Fault) {
        self.shared.log().planned.push((verb, nth, fault));
    }

    /// How many planned faults have taken effect, and commands been held back.
    pub(crate) fn faults(&self) -> u64 {
        self.shared.log().faults
    }

    /// How many connections were tried, the refused ones included.
    pub(crate) fn attempts(&self) -> u64 {
        self.shared.log().attempts
    }

    /// How often clients sent each command, by its verb in upper case.
    pub(crate) fn commands(&self) -> BTreeMap<String, u64> {
        self.shared.log().commands.clone()
    }

    pub(crate) fn sent(&self, verb: &str) -> u64 {
        self.shared.log().commands.get(verb).copied().unwrap_or(0)
    }

    /// Waits until clients have sent nothing for `quiet`.
    pub(crate) async fn settled(&self, quiet: Duration) {
        let mut last = (self.commands(), Instant::now());
        wait_until("silence", SOON, || {
            let now = self.commands();
            if now != last.0 {
                last = (now, Instant::now());
            }
            last.1.elapsed() > quiet
        })
        .await;
    }

    pub(crate) fn forget_commands(&self) {
        self.shared.log().commands.clear();
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a command and says what is to happen to it.
    fn passes(&self, verb: &str) -> Option<Fault> {
        let mut log = self.log();
        *log.commands.entry(verb.to_owned()).or_default() += 1;
        for plan in log.planned.iter_mut().filter(|plan| plan.0 == verb) {
            plan.1 -= 1;
        }
        let due = log.planned.iter().position(|plan| plan.1 == 0)?;
        log.faults += 1;
        Some(log.planned.remove(due).2)
    }

    /// Waits until the switches are as `wanted`.
    async fn until(&self, wanted: impl FnMut(&Switches) -> bool) {
        // The sender lives in `self`, so this cannot fail.
        let _ = self.switches.subscribe().wait_for(wanted).await;
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        shared.log().attempts += 1;
        let (refuse, cut) = {
            let switches = shared.switches.borrow();
            (switches.refuse, switches.cut)
        };
        if refuse {
            // A reset, not an orderly end.
            client.set_zero_linger()?;
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(("127.0.0.1", shared.upstream)).await else {
                return;
            };
            // Whatever ends first takes the rest with it: both streams are dropped.
            let _ = client.set_zero_linger();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let mute = AtomicBool::new(false);
            tokio::select! {
                _ = requests(from_client, to_server, &mute, &shared) => {}
                _ = replies(from_server, to_client, &mute, &shared) => {}
                () = shared.until(|switches| switches.cut != cut) => {}
            }
        });
    }
}

/// Passes commands on one at a time; ends when the connection is to break.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mute: &AtomicBool,
    shared: &Shared,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        while let Some((verb, length)) = command(&buffer) {
            let rest = buffer.split_off(length);
            let fault = shared.passes(&verb);
            if shared.switches.borrow().held == Some(verb.as_str()) {
                shared.log().faults += 1;
                shared.until(|switches| switches.held != Some(verb.as_str())).await;
            }
            match fault {
                Some(Fault::ResetBeforeSend) => return Ok(()),
                Some(Fault::DropReplyAndReset) => mute.store(true, Ordering::Relaxed),
                None => {}
            }
            to.write_all(&buffer).await?;
            buffer = rest;
        }
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Passes answers and messages on; ends when the connection is to break.
async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mute: &AtomicBool,
    shared: &Shared,
) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        // The answer is there, so the command was carried out: now lose it.
        if length == 0 || mute.load(Ordering::Relaxed) {
            return Ok(());
        }
        shared.until(|switches| !switches.stall_replies).await;
        to.write_all(&buffer[..length]).await?;
    }
}

/// The verb of the first command in `buffer` and the command's length, once it is all there.
fn command(buffer: &[u8]) -> Option<(String, usize)> {
    let (words, mut at) = number(buffer, 0, b'*')?;
    let mut verb = None;
    for _ in 0..words {
        let (length, start) = number(buffer, at, b'$')?;
        let word = buffer.get(start..start + length)?;
        verb.get_or_insert_with(|| String::from_utf8_lossy(word).to_ascii_uppercase());
        at = start + length + 2;
    }
    (at <= buffer.len()).then(|| (verb.unwrap_or_default(), at))
}

/// The number in a line such as `$12`, and where the next line begins.
fn number(buffer: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let line = buffer.get(at..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(line.first(), Some(&mark), "a client that does not speak in arrays of strings");
    let number = std::str::from_utf8(&line[1..end]).ok()?.parse().ok()?;
    Some((number, at + end + 2))
}
