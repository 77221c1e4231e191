//! Stands between a client and its server, counts what passes, and fails on demand.
//!
//! It runs on a thread of its own, so that a test which blocks its runtime does not stop it.
//! Every fault counts itself when it befalls a command ([`Proxy::faults`]): a fault that did not
//! happen proves nothing. One that takes an answer away waits for the answers to what came before.
//!
//! A command that is held back goes on to the server even if the client closes its side of the
//! connection meanwhile: that is a late request. [`Proxy::held`] counts the commands that were held
//! back, and each of them is counted once more when its fate is known:
//! [`Proxy::executed_late`], [`Proxy::executed_slow`] or [`Proxy::came_to_nothing`].

mod connection;
pub(crate) mod resp;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::{SOON, Server, block_until, listen, runtime, unpoisoned, wait_until};
use connection::serve;

/// What happens to one command, and to the connection that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection breaks before the server sees the command.
    ResetBeforeSend,
    /// The server carries the command out; its answer is lost, and the connection breaks. The answers to what came
    /// before are not.
    DropReplyAndReset,
    /// The server carries the command out, and what follows. The answers to what came before are the last that come on
    /// this connection. It stays open.
    Mute,
    /// The command, and whatever follows in either direction, vanishes. The connection stays open.
    BlackHole,
    /// The command, and what follows on its connection, reaches the server only after
    /// [`Proxy::let_go`].
    HoldBack,
    /// As [`Fault::HoldBack`], but the command goes on by itself after this time.
    HoldBackFor(Duration),
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
    resets: Vec<Instant>,
    withheld: u64,
    held: u64,
    executed_late: u64,
    executed_slow: u64,
    came_to_nothing: u64,
    /// Faults to come: a verb, and how many more of it until then.
    planned: Vec<(&'static str, u64, Fault)>,
    /// Of so many of a hundred calls of scripts the answer is lost, and how many those were.
    loses: u32,
    lost: u64,
}

impl Proxy {
    pub(crate) fn new(server: &Server) -> Self {
        let shared = Arc::new(Shared {
            upstream: server.port().into(),
            switches: watch::Sender::default(),
            log: Mutex::default(),
        });
        let listener = listen();
        listener.set_nonblocking(true).expect("a listener for tokio");
        let port = listener.local_addr().expect("an address").port();
        let (end, ended) = oneshot::channel();
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            runtime().block_on(async {
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

    /// From now on the answers to so many of a hundred calls of scripts are lost, and their connections with them.
    #[allow(dead_code, reason = "for the hammer")]
    pub(crate) fn lose_answers(&self, percent: u32) {
        self.shared.log().loses = percent;
    }

    /// How many of those have been lost.
    #[allow(dead_code, reason = "for the hammer")]
    pub(crate) fn answers_lost(&self) -> u64 {
        self.shared.log().lost
    }

    /// How many planned faults of that kind have not taken effect yet.
    #[allow(dead_code, reason = "for the hammer")]
    pub(crate) fn to_come(&self, fault: Fault) -> usize {
        self.shared.log().planned.iter().filter(|plan| plan.2 == fault).count()
    }

    /// Planned faults of that kind take effect no more. Returns how many that were.
    #[allow(dead_code, reason = "for the hammer")]
    pub(crate) fn give_up(&self, fault: Fault) -> usize {
        let mut log = self.shared.log();
        let before = log.planned.len();
        log.planned.retain(|plan| plan.2 != fault);
        before - log.planned.len()
    }

    /// How many planned faults have befallen a command, and commands been held back.
    pub(crate) fn faults(&self) -> u64 {
        self.shared.log().faults
    }

    /// When a planned fault broke a connection.
    #[allow(dead_code, reason = "for the hammer")]
    pub(crate) fn resets(&self) -> Vec<Instant> {
        self.shared.log().resets.clone()
    }

    /// How many commands have been held back, subscriptions apart.
    pub(crate) fn held(&self) -> u64 {
        self.shared.log().held
    }

    /// How many commands that had been held back the server executed after the client had closed
    /// its side of the connection.
    pub(crate) fn executed_late(&self) -> u64 {
        self.shared.log().executed_late
    }

    /// How many commands that had been held back the server executed while the client still had
    /// the connection.
    pub(crate) fn executed_slow(&self) -> u64 {
        self.shared.log().executed_slow
    }

    /// How many commands that had been held back were never executed: the server had closed the
    /// connection, or answered with an error, or the proxy cut the connection first.
    pub(crate) fn came_to_nothing(&self) -> u64 {
        self.shared.log().came_to_nothing
    }

    /// Whether the fate of every command is known that has been held back.
    pub(crate) fn fates_are_known(&self) -> bool {
        let log = self.shared.log();
        log.held == log.executed_late + log.executed_slow + log.came_to_nothing
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
        unpoisoned(&self.log)
    }

    /// Counts a command, and says what is to happen to it and whether it is to wait.
    fn passes(&self, verb: &str) -> (Option<Fault>, bool) {
        let held = self.switches.borrow().held == Some(verb);
        let mut log = self.log();
        *log.commands.entry(verb.to_owned()).or_default() += 1;
        log.faults += u64::from(held);
        for plan in log.planned.iter_mut().filter(|plan| plan.0 == verb) {
            // Of two that are due for one command, the other befalls the next.
            plan.1 = plan.1.saturating_sub(1);
        }
        let Some(due) = log.planned.iter().position(|plan| plan.0 == verb && plan.1 == 0) else {
            let is_lost = verb == "EVALSHA" && fastrand::u32(..100) < log.loses;
            log.lost += u64::from(is_lost);
            return (is_lost.then_some(Fault::DropReplyAndReset), held);
        };
        log.faults += 1;
        (Some(log.planned.remove(due).2), held)
    }

    fn breaks(&self) {
        self.log().resets.push(Instant::now());
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
