//! Waiting until replicas have what was granted, for many grants at a time.
//!
//! `WAIT` holds up everything behind it on its connection. So it has a connection of its own, for
//! each runtime and server, and does not hold up what the grants came on.
//!
//! 1. Whoever comes while one `WAIT` is under way goes with the next, together with all others who
//!    come meanwhile. So none takes longer than two of them.
//! 2. A `WAIT` is about what was written on its own connection, and before. So one of the locks is
//!    touched there, and stands for all that were granted before.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use redis::{Cmd, RedisError, RedisResult, Script, Value};
use tokio::sync::oneshot;

use super::lane::{Lane, Undialled};
use super::node::{Node, Purpose};
use super::verdict::{Verdict, is_unknown_script, verdict};
use super::{Link, Wire};
use crate::clock;
use crate::config::Replicas;
use crate::turn::turn;

/// A lock that was granted, and how it is written again as it is.
pub(crate) struct Touch {
    pub(crate) cmd: Cmd,
    pub(crate) script: &'static Script,
}

/// How many replicas have it, or what kept anybody from finding out.
type Told = Result<u64, Option<RedisError>>;

/// Those who wait for replicas of one server.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<(Touch, oneshot::Sender<Told>)>,
    /// Somebody sends for those who wait.
    busy: bool,
}

impl Queue {
    /// Says whether somebody has to be sent.
    fn join(&self, touch: Touch, told: oneshot::Sender<Told>) -> bool {
        let mut state = self.0.lock();
        state.waiting.push((touch, told));
        !std::mem::replace(&mut state.busy, true)
    }

    /// Empty if nobody waits: then the next to join sends somebody again.
    fn take(&self) -> Vec<(Touch, oneshot::Sender<Told>)> {
        let mut state = self.0.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        // Whoever has gone has no need of an answer.
        waiting.retain(|(_, told)| !told.is_closed());
        state.busy = !waiting.is_empty();
        waiting
    }
}

impl Link {
    /// Waits until so many replicas have a lock, or all that time has passed. Says how many have.
    pub(crate) async fn replicated(
        self: &Arc<Self>,
        key: &str,
        touch: Touch,
        replicas: Replicas,
    ) -> Result<u64, Option<RedisError>> {
        let Some(node) = self.node_of(Some(key)) else { return Err(None) };
        let lane = node.lane(Purpose::Replicas);
        let (tell, told) = oneshot::channel();
        if lane.queue.join(touch, tell) {
            let carrier = Carrier { link: self.clone(), node, lane, replicas };
            tokio::spawn(carrier.carry());
        }
        // Nobody tells any more if the runtime ends.
        told.await.unwrap_or(Err(None))
    }
}

/// Sends one `WAIT` after the other while somebody waits.
struct Carrier {
    link: Arc<Link>,
    node: Arc<Node>,
    lane: Arc<Lane>,
    replicas: Replicas,
}

impl Carrier {
    async fn carry(self) {
        loop {
            // Whoever is granted a lock by the same answers comes along.
            turn().await;
            let batch = self.lane.queue.take();
            if batch.is_empty() {
                return;
            }
            let (touches, told): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let answer = self.wait(&touches).await;
            for told in told {
                let _ = told.send(answer.clone());
            }
        }
    }

    async fn wait(&self, touches: &[Touch]) -> Told {
        let deadline = clock::now() + self.replicas.timeout + self.link.dial_timeout;
        let mut trouble = None;
        while clock::now() < deadline {
            let wire = match self.lane.wire(&self.link, &self.node, deadline).await {
                Ok(wire) => wire,
                Err(Undialled::TimeUp(error)) => return Err(error.or(trouble)),
                Err(Undialled::Failed(error)) if verdict(&error) == Verdict::Broken => {
                    trouble = Some(error);
                    continue;
                }
                Err(Undialled::Failed(error)) => return Err(Some(error)),
            };
            match self.ask(&wire, touches, deadline).await {
                Ok(have) => {
                    wire.answered();
                    return Ok(have);
                }
                Err(error) if verdict(&error) == Verdict::Broken => {
                    self.link.forget(wire.number());
                    trouble = Some(error);
                }
                Err(error) => return Err(Some(error)),
            }
        }
        Err(trouble)
    }

    /// The first lock that is still there stands for all: what was granted after it was granted
    /// before it is touched.
    async fn ask(&self, wire: &Wire, touches: &[Touch], deadline: Instant) -> RedisResult<u64> {
        let mut touches = touches.iter();
        let mut next = touches.next();
        while let Some(touch) = next {
            let mut both = redis::pipe();
            both.add_command(touch.cmd.clone());
            let timeout = u64::try_from(self.replicas.timeout.as_millis()).unwrap_or(u64::MAX);
            both.cmd("WAIT").arg(self.replicas.count).arg(timeout);
            let answers = clock::timeout_at(deadline, wire.send_all(&both)).await;
            let answers = answers.map_err(io::Error::from)??;
            match <[Value; 2]>::try_from(answers) {
                Ok([Value::Int(1), Value::Int(have)]) => return Ok(have.try_into().unwrap_or(0)),
                Ok([Value::Int(0), _]) => next = touches.next(),
                Ok([Value::ServerError(error), _] | [_, Value::ServerError(error)]) => {
                    let error = RedisError::from(error);
                    if !is_unknown_script(&error) {
                        return Err(error);
                    }
                    let taught = clock::timeout_at(deadline, wire.teach(touch.script)).await;
                    taught.map_err(io::Error::from)??;
                }
                _ => {
                    let nonsense = "WAIT was answered with something else";
                    return Err((redis::ErrorKind::Parse, nonsense).into());
                }
            }
        }
        // None of them is held any more: nobody has anything to be sure of.
        Ok(0)
    }
}
