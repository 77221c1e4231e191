//! One connection through the proxy.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;

use super::resp::{Frame, command, frame};
use super::{Epoch, Fault, Shared};
use crate::support::unpoisoned;

/// How the requests of a connection end.
enum End {
    Break,
    Freeze,
}

/// What is to become of the answers on a connection.
#[derive(Default)]
struct Answers<'a> {
    /// The next one breaks it.
    reset: AtomicBool,
    /// They are thrown away.
    mute: AtomicBool,
    /// The client has closed its side, or the proxy has.
    client_gone: AtomicBool,
    /// The commands that the server has not answered yet, in their order.
    pending: Mutex<VecDeque<Pending<'a>>>,
    /// The server has sent something.
    answered: Notify,
}

struct Pending<'a> {
    /// Several messages may answer it.
    subscription: bool,
    held: Option<Held<'a>>,
}

/// A command that was held back. Dropping it says that the server never executed it.
struct Held<'a> {
    shared: &'a Shared,
    executed: bool,
}

impl<'a> Held<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.log().held += 1;
        Self { shared, executed: false }
    }

    fn executed(mut self, late: bool) {
        self.executed = true;
        let mut log = self.shared.log();
        log.executed_late += u64::from(late);
        log.executed_slow += u64::from(!late);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.executed {
            self.shared.log().came_to_nothing += 1;
        }
    }
}

impl<'a> Answers<'a> {
    fn pending(&self) -> MutexGuard<'_, VecDeque<Pending<'a>>> {
        unpoisoned(&self.pending)
    }

    /// The server has sent this.
    fn take(&self, frame: Frame) {
        let mut pending = self.pending();
        let fits = pending.front().is_some_and(|front| match frame {
            Frame::Answer => !front.subscription,
            Frame::Subscription => front.subscription,
            Frame::Error => true,
            Frame::Push => false,
        });
        let answered = if fits { pending.pop_front() } else { None };
        self.answered.notify_one();
        let held = answered.and_then(|answered| answered.held);
        if let Some(held) = held.filter(|_| frame != Frame::Error) {
            held.executed(self.client_gone.load(Ordering::Relaxed));
        }
    }

    /// Waits until the server has answered each command that it has.
    async fn all(&self) {
        while !self.pending().is_empty() {
            self.answered.notified().await;
        }
    }

    /// Whether commands are with the server that were held back, or had to wait behind one.
    fn are_late(&self) -> bool {
        let gone = self.client_gone.load(Ordering::Relaxed);
        self.pending().iter().any(|pending| gone || pending.held.is_some())
    }
}

/// Cuts what the server sends into frames.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    fn take(&mut self, bytes: &[u8], answers: &Answers<'_>) {
        self.0.extend_from_slice(bytes);
        while let Some((frame, length)) = frame(&self.0) {
            self.0.drain(..length);
            answers.take(frame);
        }
    }
}

pub(super) async fn serve(mut client: TcpStream, number: u64, epoch: Epoch, shared: &Shared) {
    let upstream = shared.upstream.load(Ordering::SeqCst);
    let connected = tokio::select! {
        // Where many wait for a server that is stopped, this may take seconds.
        connected = TcpStream::connect(("127.0.0.1", upstream)) => connected.ok(),
        () = shared.until(|switches| switches.epoch.cut != epoch.cut) => None,
    };
    let Some(mut server) = connected else { return };
    // As the ends set it: otherwise a command may wait for 40 ms until the one before is acknowledged.
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let answers = Answers::default();
    let mut frames = Frames::default();
    let end = tokio::select! {
        // A cut comes first: what is let go at the same time does not get through.
        biased;
        () = shared.until(|switches| switches.epoch.cut != epoch.cut) => End::Break,
        () = shared.until(|switches| switches.epoch.frozen != epoch.frozen) => End::Freeze,
        end = requests(&mut from_client, &mut to_server, &answers, shared) => {
            end.unwrap_or(End::Break)
        }
        _ = replies(&mut from_server, &mut to_client, &answers, &mut frames, shared) => End::Break,
    };
    if let End::Freeze = end {
        shared.log().open.insert(number, (epoch, true));
        shared.until(|switches| switches.epoch.cut != epoch.cut).await;
    }
    drop(client);
    if answers.are_late() {
        // To the client the connection is broken; what was held back is with the server.
        shared.log().open.remove(&number);
        answers.client_gone.store(true, Ordering::Relaxed);
        fates(&mut from_server, &answers, &mut frames).await;
    }
}

/// Reads on until every command has its answer, or the server closes the connection.
async fn fates(from: &mut ReadHalf<'_>, answers: &Answers<'_>, frames: &mut Frames) {
    let mut buffer = [0; 16 * 1024];
    while !answers.pending().is_empty() {
        match from.read(&mut buffer).await {
            Ok(length @ 1..) => frames.take(&buffer[..length], answers),
            _ => return,
        }
    }
}

/// Passes commands on one at a time.
async fn requests<'a>(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    answers: &Answers<'a>,
    shared: &'a Shared,
) -> io::Result<End> {
    let mut buffer = Vec::new();
    loop {
        while let Some((words, length)) = command(&buffer) {
            let verb = words.first().copied().unwrap_or_default();
            let verb = String::from_utf8_lossy(verb).to_ascii_uppercase();
            let mut rest = buffer.split_off(length);
            let let_go = shared.switches.borrow().let_go;
            let (fault, waits) = shared.passes(&verb);
            let subscription = verb.ends_with("SUBSCRIBE");
            // A subscription ends with its connection: it cannot come too late.
            let new_held = || (!subscription).then(|| Held::new(shared));
            let mut held = None;
            if waits || fault == Some(Fault::HoldBack) {
                held = new_held();
                let end = shared.until(|switches| switches.let_go != let_go);
                hold_back(from, &mut rest, end, answers).await;
            }
            let gone = answers.client_gone.load(Ordering::Relaxed);
            if let Some(Fault::DropReplyAndReset | Fault::Mute) = fault
                && !gone
            {
                // It befalls the answer to this command, and not one to a command before.
                hold_back(from, &mut rest, answers.all(), answers).await;
            }
            match fault {
                Some(Fault::ResetBeforeSend) => {
                    shared.breaks();
                    return Ok(End::Break);
                }
                Some(Fault::BlackHole) => return Ok(End::Freeze),
                Some(Fault::DropReplyAndReset) => answers.reset.store(true, Ordering::Relaxed),
                Some(Fault::Mute) => answers.mute.store(true, Ordering::Relaxed),
                Some(Fault::HoldBackFor(time)) => {
                    held = new_held();
                    hold_back(from, &mut rest, tokio::time::sleep(time), answers).await;
                }
                Some(Fault::HoldBack) | None => {}
            }
            answers.pending().push_back(Pending { subscription, held });
            to.write_all(&buffer).await?;
            buffer = rest;
        }
        let gone = answers.client_gone.load(Ordering::Relaxed);
        if gone || from.read_buf(&mut buffer).await? == 0 {
            return Ok(End::Break);
        }
    }
}

/// Waits for `end`. Only notes what the client sends meanwhile, and that it closes its side: what
/// it has sent before goes on to the server all the same.
async fn hold_back(
    from: &mut ReadHalf<'_>,
    rest: &mut Vec<u8>,
    end: impl Future<Output = ()>,
    answers: &Answers<'_>,
) {
    let mut end = pin!(end);
    while !answers.client_gone.load(Ordering::Relaxed) {
        tokio::select! {
            biased;
            read = from.read_buf(rest) => {
                let gone = !matches!(read, Ok(1..));
                answers.client_gone.store(gone, Ordering::Relaxed);
            }
            () = &mut end => return,
        }
    }
    end.await;
}

/// Passes answers and messages on; ends when the connection is to break.
async fn replies(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    answers: &Answers<'_>,
    frames: &mut Frames,
    shared: &Shared,
) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        frames.take(&buffer[..length], answers);
        let mute = answers.mute.load(Ordering::Relaxed);
        let reset = answers.reset.load(Ordering::Relaxed);
        if mute || reset || shared.switches.borrow().stall_replies {
            shared.log().withheld += 1;
        }
        // The answer is there, so the command was carried out: now lose it.
        if reset {
            shared.breaks();
            return Ok(());
        }
        if mute {
            continue;
        }
        shared.until(|switches| !switches.stall_replies).await;
        to.write_all(&buffer[..length]).await?;
    }
}
