//! How a request is carried out: sent, sent again, sent elsewhere, until it is answered or its
//! time is up.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::RedisError;

use super::failure::{dial_failed, nowhere_to_go, refused, unavailable};
use super::lane::Undialled;
use super::node::{Node, Purpose};
use super::together::Told;
use super::verdict::{self, Verdict, is_final, verdict};
use super::{Answer, Link, Request, Way, Wire};
use crate::clock;
use crate::error::{Error, ErrorKind};

/// Before the second try of what Redis cannot serve now.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Before the next look for a server that nobody has named yet.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// So many redirections are followed at once: more come of nodes that do not agree yet.
pub(super) const REDIRECTIONS: u32 = 3;

/// Before the try after that.
pub(super) fn longer(pause: Duration) -> Duration {
    (pause * 2).min(Duration::from_millis(200))
}

impl Link {
    /// Sends a request until it is answered or its deadline has passed, first on `wire` if there
    /// is one. Before each sending the connection in use is left in `wire`, so that whoever drops
    /// this call half-way can send something behind it.
    pub(crate) async fn call(
        &self,
        wire: &mut Option<Wire>,
        request: Request<'_>,
    ) -> Result<Answer, Error> {
        let Request { mut cmd, script, mut together, key, tells, divisible, what, deadline } =
            request;
        // Behind a request that never left there is nothing to wait for.
        let mut given = wire.clone().filter(|wire| !wire.is_left());
        // Where the slot of the key is about to be.
        let mut aside: Option<Arc<Node>> = None;
        let mut redirections = 0;
        let mut repeated = false;
        let mut pause = FIRST_PAUSE;
        let mut trouble: Option<RedisError> = None;
        loop {
            let behind = given.is_some();
            let on = match given.take() {
                Some(wire) => wire,
                None => match self.reach(aside.as_ref(), key, deadline).await {
                    Ok(wire) => wire,
                    Err(Undialled::Failed(error)) if !is_final(&error) => {
                        self.look_again();
                        // The slot may stay where it is.
                        aside = None;
                        trouble = Some(error);
                        continue;
                    }
                    Err(Undialled::Failed(error)) => {
                        return Err(dial_failed(what, repeated, Some(error), None));
                    }
                    Err(Undialled::TimeUp(error)) => {
                        return Err(dial_failed(what, repeated, error, trouble));
                    }
                },
            };
            *wire = Some(on.clone());
            if let Some(seat) = &on.seat
                && !seeded!("undo-does-not-wait")
                && clock::timeout_at(deadline, seat.over()).await.is_err()
            {
                return Err(self.no_answer(wire, what, repeated, trouble));
            }
            if let Some(stale) = on.stale_connections().filter(|stale| stale.any()) {
                match Box::pin(clock::timeout_at(deadline, stale.close(&on))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        if verdict(&error) == Verdict::Broken {
                            self.drop_connection(&on);
                        }
                        tokio::time::sleep(pause).await;
                        pause = longer(pause);
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
                _ if aside.is_some() && !seeded!("asks-without-asking") => {
                    Box::pin(on.ask_aside(&cmd, deadline)).await
                }
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
                // The runtime that drives the connection may stand still, and its timers with it.
                None if behind => {
                    let told = Box::pin(clock::timeout_at(deadline, on.ask(&cmd, deadline)));
                    told.await.unwrap_or(Told::Silence { sent: true })
                }
                None => on.ask(&cmd, deadline).await,
            };
            let mut error = match told {
                Told::Answer(Ok(value)) => {
                    let aside = aside.is_some();
                    if aside && !seeded!("told-aside-only") {
                        self.tell_there(key, tells);
                    }
                    return Ok(Answer { value, sent, repeated, aside });
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
            if together.is_some() && verdict::is_divided(&error) {
                // Another request of the same call may have taken its key away.
                together = None;
                continue;
            }
            let verdict = verdict(&error);
            let at_once = match &verdict {
                Verdict::Broken => {
                    self.drop_connection(&on);
                    repeated = !seeded!("resend-forgets");
                    if seeded!("no-resend") {
                        return Err(unavailable(what, true, Some(error)));
                    }
                    aside = None;
                    true
                }
                Verdict::Elsewhere => {
                    let Some((node, for_good)) = self.follow(&error, on.server()) else {
                        return Err(nowhere_to_go(repeated, error));
                    };
                    aside = (!for_good).then_some(node);
                    redirections += 1;
                    redirections <= REDIRECTIONS
                }
                Verdict::Later if divisible && verdict::is_divided(&error) => {
                    return Err(refused(ErrorKind::Server, what, repeated, error));
                }
                Verdict::Later => {
                    aside = None;
                    if verdict::is_misplaced(&error) {
                        self.look_again();
                    }
                    if verdict::is_read_only(&error) {
                        // As good as no answer: connections to a replica are made ever more
                        // slowly, however many calls find that out.
                        self.drop_connection(&on);
                    }
                    false
                }
                Verdict::Final(kind) => {
                    return Err(refused(*kind, what, repeated, error));
                }
            };
            if !at_once {
                // A try with no time left for its answer would make "not executed" of now
                // into "unknown".
                if clock::now() + 2 * pause >= deadline {
                    let message = format!("Redis cannot serve {what} now");
                    return Err(unavailable(&message, repeated, Some(error)));
                }
                tokio::time::sleep(pause).await;
                pause = longer(pause);
            }
            trouble = Some(error);
        }
    }

    /// This runtime's connection to the node, or to whichever has the key by `deadline`.
    async fn reach(
        &self,
        node: Option<&Arc<Node>>,
        key: Option<&str>,
        deadline: Instant,
    ) -> Result<Wire, Undialled> {
        let node = match node.cloned().or_else(|| self.node_of(key)) {
            Some(node) => node,
            None => {
                // Until somebody has the slot, or says so.
                self.look_again();
                if clock::timeout_at(deadline, tokio::time::sleep(LEAST_PAUSE)).await.is_err() {
                    return Err(Undialled::TimeUp(Some(no_node())));
                }
                return Err(Undialled::Failed(no_node()));
            }
        };
        let lane = node.lane(Purpose::Commands);
        match lane.in_use() {
            Some(wire) => Ok(wire),
            None => Box::pin(lane.wire(self, &node, deadline)).await,
        }
    }

    /// Where a `MOVED` or an `ASK` of that server points to, and whether for good.
    pub(super) fn follow(&self, error: &RedisError, from: &str) -> Option<(Arc<Node>, bool)> {
        match &self.way {
            Way::Cluster(cluster) => cluster.follow(error, from),
            Way::One(_) | Way::Sentinel(_) => None,
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
            self.drop_connection(&silent);
        }
        unavailable(&format!("no answer for {what}"), sent, trouble)
    }
}

fn no_node() -> RedisError {
    io::Error::new(io::ErrorKind::NotConnected, "no node of the cluster has the slot").into()
}
