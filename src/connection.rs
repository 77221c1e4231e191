//! The one room that talks to Redis: connections, sending again, and what an answer means.
//!
//! **A connection belongs to the runtime that drives it.** Every Tokio runtime that calls gets
//! one connection of its own, made on first use and made again when it broke. The client's own
//! thread is such a runtime too. So a runtime whose threads are blocked, or which has ended,
//! delays no other runtime's commands: renewals, releases of dropped guards and incoming messages
//! never wait behind a user's code or a user's flood of commands. (The undo of a call that was
//! dropped half-way goes behind that call, on its runtime's connection, for a command timeout at
//! most.) And an uncontended call crosses no thread. Calls that come in numbers share commands
//! (see [`together`]).
//!
//! 1. A request is sent again after a cut, because every command of this crate may be executed
//!    twice and count once. Nothing is sent again after its deadline.
//! 2. A connection on which an answer did not come in time is not used for new requests, and
//!    what it may still have under way comes to nothing (see [`abandoned`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, ProtocolVersion, RedisError, Script, Value};
use tokio::runtime::{self, Handle};
use tokio::sync::mpsc::UnboundedSender;

use crate::clock;
use crate::error::Error;

mod abandoned;
mod failure;
mod lane;
mod pulse;
mod together;
mod verdict;
mod wire;

use abandoned::Abandoned;
use failure::{bad_address, dial_failed, refused, unavailable};
use lane::Lane;
pub(crate) use together::Together;
use together::Told;
use verdict::{Verdict, verdict};
pub(crate) use wire::Wire;

/// Before the second try of what Redis cannot serve now.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Before the try after that.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(Duration::from_millis(200))
}

/// What comes unasked.
#[derive(Debug)]
pub(crate) enum Push {
    /// A message on a subscribed channel. What it says does not matter: it is a reason to look.
    Message { channel: String },
    /// The connection of that number is gone, and what it had subscribed.
    Cut { number: u64 },
}

/// The way to one Redis.
pub(crate) struct Link {
    client: redis::Client,
    dial_timeout: Duration,
    pushes: UnboundedSender<Push>,
    lanes: Mutex<Vec<(runtime::Id, Arc<Lane>)>>,
    abandoned: Abandoned,
    numbers: AtomicU64,
}

/// A command, and how it is to be sent.
pub(crate) struct Request<'a> {
    pub(crate) cmd: Cmd,
    /// If it calls one, for a server that does not know it.
    pub(crate) script: Option<&'static Script>,
    /// If it may share a call with others.
    pub(crate) together: Option<Together>,
    /// What an error says that it was about.
    pub(crate) what: &'a str,
    pub(crate) deadline: Instant,
}

/// A command's answer.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// Taken before the request that was answered left.
    pub(crate) sent: Instant,
    /// Whether an earlier sending of it was never answered.
    pub(crate) repeated: bool,
}

impl Link {
    /// Checks the address, with no I/O. `pushes` hears what subscriptions bring.
    pub(crate) fn new(
        info: &redis::ConnectionInfo,
        dial_timeout: Duration,
        pushes: UnboundedSender<Push>,
    ) -> Result<Self, Error> {
        // RESP3 lets messages and commands share a connection, so that a message can never
        // arrive before the answer to the SUBSCRIBE that asked for it, and a cut of one is a cut
        // of the other. Without TCP_NODELAY the second of two commands waits for the first's ACK.
        let redis = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("redlatch", env!("CARGO_PKG_VERSION"));
        // What a connection that was given up has not sent yet goes with its socket. What the
        // network or the server has of it already is seen to by closing it there.
        let tcp = info.tcp_settings().clone().set_nodelay(true).set_linger_time(Duration::ZERO);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(dial_timeout);
        let info = info.clone().set_redis_settings(redis).set_tcp_settings(tcp);
        let client = redis::Client::open(info).map_err(bad_address)?;
        Ok(Self {
            client,
            dial_timeout,
            pushes,
            lanes: Mutex::default(),
            abandoned: Abandoned::default(),
            numbers: AtomicU64::new(1),
        })
    }

    /// One try to connect this runtime, for a caller who wants to hear at once why not.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        let lane = self.lane();
        let wire = self.dial().await.map_err(|error| match verdict(&error) {
            Verdict::Broken | Verdict::Later => {
                unavailable("could not connect to Redis", false, Some(error))
            }
            Verdict::Final(kind) => refused(kind, "Redis refused the connection", false, error),
        })?;
        lane.install(wire);
        Ok(())
    }

    /// Sends a request until it is answered or its deadline has passed, first on `wire` if there
    /// is one. Before each sending the connection in use is left in `wire`, so that whoever drops
    /// this call half-way can send something behind it.
    pub(crate) async fn call(
        &self,
        wire: &mut Option<Wire>,
        request: Request<'_>,
    ) -> Result<Answer, Error> {
        let Request { mut cmd, script, mut together, what, deadline } = request;
        let lane = self.lane();
        // Behind a request that never left there is nothing to wait for.
        let mut given = wire.clone().filter(|wire| !wire.is_left());
        let mut repeated = false;
        let mut pause = FIRST_PAUSE;
        let mut trouble: Option<RedisError> = None;
        loop {
            let behind = given.is_some();
            let on = match given.take().or_else(|| lane.in_use()) {
                Some(wire) => wire,
                None => Box::pin(lane.wire(self, deadline))
                    .await
                    .map_err(|error| dial_failed(what, repeated, error, trouble.take()))?,
            };
            *wire = Some(on.clone());
            if let Some(seat) = &on.seat
                && !seeded!("undo-does-not-wait")
                && clock::timeout_at(deadline, seat.over()).await.is_err()
            {
                return Err(self.no_answer(wire, what, repeated, trouble));
            }
            if self.abandoned.any() {
                match Box::pin(clock::timeout_at(deadline, self.abandoned.close(&on))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        if verdict(&error) == Verdict::Broken {
                            self.forget(on.number());
                        }
                        tokio::time::sleep(pause).await;
                        trouble = Some(error);
                        continue;
                    }
                    Err(_) => return Err(self.no_answer(wire, what, repeated, trouble)),
                }
            }
            let sent = clock::now();
            if sent >= deadline {
                return Err(unavailable(&format!("no time left for {what}"), repeated, trouble));
            }
            let told = match together.filter(|_| !behind) {
                Some(together) => match on.line().at_once() {
                    Some(_under_way) => on.ask(&cmd, deadline).await,
                    None => {
                        let seat = on.seat(cmd.take(), together, deadline);
                        wire.insert(on.clone()).seat = Some(seat.clone());
                        let told = seat.told().await;
                        if !matches!(told, Told::Answer(Ok(_))) {
                            cmd = seat.cmd.clone();
                        }
                        told
                    }
                },
                None => on.ask(&cmd, deadline).await,
            };
            let mut error = match told {
                Told::Answer(Ok(value)) => {
                    lane.answered();
                    return Ok(Answer { value, sent, repeated });
                }
                Told::Answer(Err(error)) => error,
                Told::Silence { sent } => {
                    return Err(self.no_answer(wire, what, repeated || sent, trouble));
                }
                Told::Alone { sent } => {
                    together = None;
                    repeated |= sent;
                    continue;
                }
            };
            if let Some(script) = script
                && verdict::is_unknown_script(&error)
            {
                match Box::pin(clock::timeout_at(deadline, on.teach(script))).await {
                    Ok(Ok(())) => {
                        given = Some(on);
                        continue;
                    }
                    Ok(Err(refusal)) => error = refusal,
                    Err(_) => return Err(self.no_answer(wire, what, repeated, trouble)),
                }
            }
            match verdict(&error) {
                Verdict::Broken => {
                    self.forget(on.number());
                    repeated = !seeded!("resend-forgets");
                    if seeded!("no-resend") {
                        return Err(unavailable(what, true, Some(error)));
                    }
                }
                Verdict::Later => {
                    if verdict::is_read_only(&error) {
                        // As good as no answer: connections to a replica are made ever more
                        // slowly, however many calls find that out.
                        self.forget(on.number());
                    } else {
                        lane.answered();
                    }
                    // A try with no time left for its answer would make "not executed" of now
                    // into "unknown".
                    if clock::now() + 2 * pause >= deadline {
                        return Err(unavailable(
                            &format!("Redis cannot serve {what} now"),
                            repeated,
                            Some(error),
                        ));
                    }
                    tokio::time::sleep(pause).await;
                    pause = longer(pause);
                }
                Verdict::Final(kind) => {
                    lane.answered();
                    return Err(refused(kind, what, repeated, error));
                }
            }
            trouble = Some(error);
        }
    }

    /// This runtime's connection, for subscriptions; made if there is none, however long it takes.
    pub(crate) async fn subscriber(&self) -> Wire {
        let lane = self.lane();
        loop {
            let far = clock::now() + Duration::from_secs(3600);
            if let Some(wire) = lane.in_use() {
                return wire;
            }
            if let Ok(wire) = lane.wire(self, far).await {
                return wire;
            }
        }
    }

    /// Subscribes and unsubscribes; done when Redis has confirmed all of it.
    pub(crate) async fn resubscribe(
        &self,
        wire: &Wire,
        subscribe: &[Arc<str>],
        unsubscribe: &[Arc<str>],
        deadline: Instant,
    ) -> Result<(), Error> {
        let lane = self.lane();
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = wire.answer(async |mut connection| {
                if !unsubscribe.is_empty() {
                    connection.unsubscribe(channels(unsubscribe)).await?;
                }
                if !subscribe.is_empty() {
                    connection.subscribe(channels(subscribe)).await?;
                }
                Ok(())
            });
            let error = match clock::timeout_at(deadline, asked).await {
                Ok(Ok(())) => {
                    lane.answered();
                    return Ok(());
                }
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            match error.as_ref().map(verdict) {
                Some(Verdict::Final(kind)) => {
                    lane.answered();
                    let error = error.expect("BUG: a verdict on no error");
                    return Err(refused(kind, "a subscription", false, error));
                }
                // Busy with a script, say. What is subscribed already stays so meanwhile.
                Some(Verdict::Later) if clock::now() + pause < deadline => {
                    lane.answered();
                    tokio::time::sleep(pause).await;
                    pause = longer(pause);
                }
                _ => {
                    self.forget(wire.number());
                    return Err(unavailable("no answer to a subscription", true, error));
                }
            }
        }
    }

    /// No new request goes to that connection (invariant 2), and what it subscribed is gone.
    pub(crate) fn forget(&self, number: u64) {
        let forgotten = self
            .lanes
            .lock()
            .iter()
            .find_map(|(_, lane)| lane.wire.lock().take_if(|wire| wire.number() == number));
        if let Some(wire) = forgotten {
            self.abandoned.add(&wire);
            tracing::warn!(connection = number, "lost a connection to Redis");
            // Its driver may be stopped before it can say so itself.
            let _ = self.pushes.send(Push::Cut { number });
        }
    }

    /// Gives the connection up that did not answer in time. What has to be undone goes over
    /// another one then.
    fn no_answer(
        &self,
        wire: &mut Option<Wire>,
        what: &str,
        sent: bool,
        trouble: Option<RedisError>,
    ) -> Error {
        if let Some(silent) = wire.take_if(|_| !seeded!("silence-is-kept")) {
            self.forget(silent.number());
        }
        unavailable(&format!("no answer for {what}"), sent, trouble)
    }

    /// Lets go of all connections; they close when the last request on them is done.
    pub(crate) fn hang_up(&self) {
        let lanes: Vec<_> = self.lanes.lock().iter().map(|(_, lane)| lane.clone()).collect();
        for lane in lanes {
            // Outside the mutex: the last clone stops its driver.
            let wire = lane.wire.lock().take();
            drop(wire);
        }
    }

    fn lane(&self) -> Arc<Lane> {
        let handle = Handle::current();
        let runtime = handle.id();
        let mut lanes = self.lanes.lock();
        if let Some((_, lane)) = lanes.iter().find(|(id, _)| *id == runtime) {
            return lane.clone();
        }
        // Lanes of ended runtimes go when a new runtime comes, so that they cannot pile up.
        lanes.retain(|(_, lane)| !lane.runtime_has_ended());
        let lane = Arc::new(Lane::new(&handle));
        lanes.push((runtime, lane.clone()));
        lane
    }

    async fn dial(&self) -> Result<Wire, RedisError> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Wire::dial(&self.client, number, self.dial_timeout, self.pushes.clone()).await
    }
}

fn channels(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}
