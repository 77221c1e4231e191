//! Stands between a client and its server, counts what passes, and fails on demand.
//!
//! It runs on a thread of its own, so that a test which blocks its runtime does not stop it.
//! Every fault counts itself when it takes effect ([`Proxy::faults`]): a fault that did not
//! happen proves nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use super::{SOON, Server, block_until, wait_until};

/// What happens to one command, and to the connection that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks before the server sees the command.
    ResetBeforeSend,
    /// The server carries the command out; its answer is lost, and the connection breaks.
    DropReplyAndReset,
    /// The server carries the command out, and what follows; no answer comes on this connection
    /// any more. It stays open.
    Mute,
    /// The command, and whatever follows in either direction, vanishes. The connection stays open.
    BlackHole,
    /// The command, and what follows on its connection, reaches the server only after
    /// [`Proxy::let_go`].
    HoldBack,
}

/// Dropping it ends the proxy and every connection through it.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _end: oneshot::Sender<()>,
}

struct Shared {
    upstream: AtomicU16,
    switches: watch::Sender<Switches>,
    log: Mutex<Log>,
}

/// What connections watch while they wait.
#[derive(Default)]
struct Switches {
    refuse: bool,
    stall_replies: bool,
    held: Option<&'static str>,
    /// Raised to let everything go that is held back.
    let_go: u64,
    epoch: Epoch,
}

/// What connections are told at once: whoever is of an older epoch is meant.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Epoch {
    /// Raised to cut every connection there is.
    cut: u64,
    /// Raised to freeze every connection there is.
    frozen: u64,
}

#[derive(Default)]
struct Log {
    commands: BTreeMap<String, u64>,
    attempts: u64,
    /// The connections there are: of which epoch, and whether frozen.
    open: BTreeMap<u64, (Epoch, bool)>,
    faults: u64,
    withheld: u64,
    /// Faults to come: a verb, and how many more of it until then.
    planned: Vec<(&'static str, u64, Fault)>,
}

impl Proxy {
    pub(crate) fn new(server: &Server) -> Self {
        let shared = Arc::new(Shared {
            upstream: server.port().into(),
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

    /// Breaks every connection there is, and says how many that were. New ones are taken.
    pub(crate) fn cut_all(&self) -> usize {
        self.tell(|epoch| epoch.cut += 1, |now, (of, _)| of.cut < now.cut)
    }

    /// From now on nothing passes on the connections there are, in either direction, and none of
    /// them breaks; says how many that were. New ones work.
    pub(crate) fn freeze_all(&self) -> usize {
        self.tell(|epoch| epoch.frozen += 1, |now, (of, is)| !is && of.frozen < now.frozen)
    }

    /// Begins an epoch, and returns when none is left of the connections that are `meant`.
    fn tell(&self, raise: impl Fn(&mut Epoch), meant: fn(&Epoch, &(Epoch, bool)) -> bool) -> usize {
        let left = |now| self.shared.log().open.values().filter(|open| meant(&now, open)).count();
        let mut told = 0;
        self.shared.switches.send_modify(|switches| {
            raise(&mut switches.epoch);
            // Before anybody can have heard of it.
            told = left(switches.epoch);
        });
        let now = self.shared.switches.borrow().epoch;
        block_until("the end of the connections", SOON, || left(now) == 0);
        told
    }

    /// New connections go to another server, as at an address that follows the primary.
    pub(crate) fn lead_to(&self, server: &Server) {
        self.shared.upstream.store(server.port(), Ordering::SeqCst);
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
        self.shared.switches.send_modify(|switches| {
            switches.held = None;
            switches.let_go += 1;
        });
    }

    /// `fault` befalls the `nth` command of that verb from now on, the first being 1.
    pub(crate) fn plan(&self, verb: &'static str, nth: u64, fault: Fault) {
        self.shared.log().planned.push((verb, nth, fault));
    }

    /// How many planned faults have taken effect, and commands been held back.
    pub(crate) fn faults(&self) -> u64 {
        self.shared.log().faults
    }

    /// How often an answer or a message came from the server and was not passed on at once, or
    /// never.
    pub(crate) fn withheld(&self) -> u64 {
        self.shared.log().withheld
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

    /// Counts a command, and says what is to happen to it and whether it is to wait.
    fn passes(&self, verb: &str) -> (Option<Fault>, bool) {
        let held = self.switches.borrow().held == Some(verb);
        let mut log = self.log();
        *log.commands.entry(verb.to_owned()).or_default() += 1;
        log.faults += u64::from(held);
        for plan in log.planned.iter_mut().filter(|plan| plan.0 == verb) {
            plan.1 -= 1;
        }
        let Some(due) = log.planned.iter().position(|plan| plan.1 == 0) else {
            return (None, held);
        };
        log.faults += 1;
        (Some(log.planned.remove(due).2), held)
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
        // A reset, not an orderly end.
        client.set_zero_linger()?;
        let (refuse, epoch) = {
            let switches = shared.switches.borrow();
            (switches.refuse, switches.epoch)
        };
        let number = {
            let mut log = shared.log();
            log.attempts += 1;
            log.attempts
        };
        if !refuse {
            shared.log().open.insert(number, (epoch, false));
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                serve(client, number, epoch, &shared).await;
                // By now both streams are dropped: whatever ended first took the rest with it.
                shared.log().open.remove(&number);
            });
        }
    }
}

/// How the requests of a connection end.
enum End {
    Break,
    Freeze,
}

/// What is to become of the answers on a connection.
#[derive(Default)]
struct Answers {
    /// The next one breaks it.
    reset: AtomicBool,
    /// They are thrown away.
    mute: AtomicBool,
}

async fn serve(mut client: TcpStream, number: u64, epoch: Epoch, shared: &Shared) {
    let upstream = shared.upstream.load(Ordering::SeqCst);
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", upstream)).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let answers = Answers::default();
    let end = tokio::select! {
        // A cut comes first: what is let go at the same time does not get through.
        biased;
        () = shared.until(|switches| switches.epoch.cut != epoch.cut) => End::Break,
        () = shared.until(|switches| switches.epoch.frozen != epoch.frozen) => End::Freeze,
        end = requests(&mut from_client, &mut to_server, &answers, shared) => {
            end.unwrap_or(End::Break)
        }
        _ = replies(&mut from_server, &mut to_client, &answers, shared) => End::Break,
    };
    if let End::Freeze = end {
        shared.log().open.insert(number, (epoch, true));
        shared.until(|switches| switches.epoch.cut != epoch.cut).await;
    }
}

/// Passes commands on one at a time.
async fn requests(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    answers: &Answers,
    shared: &Shared,
) -> io::Result<End> {
    let mut buffer = Vec::new();
    loop {
        while let Some((verb, length)) = command(&buffer) {
            let rest = buffer.split_off(length);
            let let_go = shared.switches.borrow().let_go;
            let (fault, held) = shared.passes(&verb);
            if held || fault == Some(Fault::HoldBack) {
                shared.until(|switches| switches.let_go != let_go).await;
            }
            match fault {
                Some(Fault::ResetBeforeSend) => return Ok(End::Break),
                Some(Fault::BlackHole) => return Ok(End::Freeze),
                Some(Fault::DropReplyAndReset) => answers.reset.store(true, Ordering::Relaxed),
                Some(Fault::Mute) => answers.mute.store(true, Ordering::Relaxed),
                Some(Fault::HoldBack) | None => {}
            }
            to.write_all(&buffer).await?;
            buffer = rest;
        }
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(End::Break);
        }
    }
}

/// Passes answers and messages on; ends when the connection is to break.
async fn replies(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    answers: &Answers,
    shared: &Shared,
) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let mute = answers.mute.load(Ordering::Relaxed);
        let reset = answers.reset.load(Ordering::Relaxed);
        if mute || reset || shared.switches.borrow().stall_replies {
            shared.log().withheld += 1;
        }
        // The answer is there, so the command was carried out: now lose it.
        if reset {
            return Ok(());
        }
        if mute {
            continue;
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
