//! How a request is carried out: sent, sent again and redirected, until it is answered or its
//! deadline passes. [`super::retry`] decides what follows an error.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use redis::{RedisError, Value};

use super::connection::batch::Reply;
use super::error_class::{ErrorClass, classify, is_cross_node, is_fatal, is_unknown_script};
use super::failure::{
    dial_failed, key_of_another_type, not_of_a_queue, nowhere_to_go, refused, unavailable,
};
use super::node::Purpose;
use super::retry::{Retry, Step};
use super::supervisor::DialError;
use super::{Answer, Connection, Request, Router};
use crate::clock;
use crate::error::{Error, ErrorKind};

impl Router {
    /// Sends a request until it is answered or its deadline has passed, first on `connection` if
    /// there is one. Before each sending this leaves the connection in `connection`: a caller that
    /// drops this future can send something behind the request.
    ///
    /// Rare steps are boxed: every waiting request has the size of this future.
    pub(crate) async fn call(
        &self,
        connection: &mut Option<Connection>,
        request: &mut Request<'_>,
    ) -> Result<Answer, Error> {
        // A future around this one would be moved with all that is in it.
        let mut timing = self.events.metrics.asks(request.operation);
        let mut retry = Retry::new();
        // Behind a request that is never sent there is nothing to wait for.
        let mut same = connection.clone().filter(|connection| !connection.is_cancelled());
        let answer = loop {
            let behind = same.is_some();
            let on = match same.take().or_else(|| self.connected(request, &retry)) {
                Some(on) if !on.has_to_wait() => on,
                on => {
                    timing.begins(clock::now);
                    match Box::pin(self.prepare(on, connection, request, &mut retry)).await {
                        Ok(Some(on)) => on,
                        Ok(None) => continue,
                        Err(error) => break Err(error),
                    }
                }
            };
            *connection = Some(on.clone());
            let sent = clock::now();
            timing.begins(|| sent);
            let left = request.deadline.saturating_duration_since(sent);
            if on.is_too_late(left, request.answer_timeout) {
                break Err(self.no_time_left(request, &mut retry));
            }
            if let Some(rebuild) = &request.rebuild {
                request.cmd = rebuild(&on);
            }
            match self.send(&on, connection, request, retry.asking.is_some(), behind).await {
                Reply::Answer(Ok(value)) => {
                    break Ok(self.accept(value, &on, sent, request, &retry));
                }
                Reply::Answer(Err(error)) => {
                    if error.code().is_some() {
                        on.record_answer(sent);
                    }
                    let next = self.recover(error, on, connection, request, &mut retry);
                    match Box::pin(next).await {
                        Ok(connection) => same = connection,
                        Err(error) => break Err(error),
                    }
                }
                Reply::NotSent(error) => self.try_elsewhere(&on, error, &mut retry),
                Reply::TimedOut { sent: executed } => {
                    retry.repeated |= executed;
                    break Err(self.no_answer(connection, sent, request, &mut retry));
                }
                Reply::Unbatched { sent } => {
                    request.batch = None;
                    retry.repeated |= sent;
                }
            }
        };
        self.events.metrics.record_answer(timing, request.counts, answer.as_ref().err());
        answer
    }

    /// This runtime's connection to the server of the key, if there is one.
    fn connected(&self, request: &Request<'_>, retry: &Retry) -> Option<Connection> {
        let node = retry.asking.clone().or_else(|| self.node_of(request.key))?;
        node.runtime_slot(Purpose::Commands).in_use()
    }

    /// This runtime's connection to the server of the key, or a new one by the deadline.
    async fn reach(&self, request: &Request<'_>, retry: &mut Retry) -> Result<Connection, Error> {
        loop {
            let (error, cause) = match self.connect_by(request, retry).await {
                Ok(on) => return Ok(on),
                Err(DialError::TimeUp(error)) => {
                    // Another server may have the key by now: the next call need not wait for this one.
                    self.refresh();
                    (error, retry.cause.take())
                }
                Err(DialError::Failed(error)) if is_fatal(&error) => (Some(error), None),
                Err(DialError::Failed(error)) => {
                    self.refresh();
                    // The slot may stay where it is.
                    retry.asking = None;
                    retry.cause = Some(error);
                    continue;
                }
            };
            // Where no server is known to have the key, an address of the builder would be named: no server may be there,
            // and a password may stand in its place.
            let of_server = error.as_ref().or(cause.as_ref());
            let of_server = of_server.filter(|_| self.node_of(request.key).is_some());
            let redis = self.redis(request.key, of_server);
            let error = dial_failed(&redis, &request.subject(), retry.repeated, error, cause);
            return Err(self.note_unavailable(request, error));
        }
    }

    async fn connect_by(
        &self,
        request: &Request<'_>,
        retry: &Retry,
    ) -> Result<Connection, DialError> {
        let deadline = request.deadline;
        let Some(node) = retry.asking.clone().or_else(|| self.node_of(request.key)) else {
            // Until some node has the slot, or reports it.
            return Err(match self.looks_for_servers(request.key, deadline).await {
                true => DialError::Failed(no_node()),
                false => DialError::TimeUp(Some(no_node())),
            });
        };
        self.connection(&node, Purpose::Commands, deadline).await
    }

    /// Waits for what has to be there, or over, before the request is sent: a connection, the request that it
    /// goes behind, and stale connections to the same server. `None` if the request has to begin again.
    async fn prepare(
        &self,
        on: Option<Connection>,
        connection: &mut Option<Connection>,
        request: &Request<'_>,
        retry: &mut Retry,
    ) -> Result<Option<Connection>, Error> {
        let on = match on {
            Some(on) => on,
            None => self.reach(request, retry).await?,
        };
        *connection = Some(on.clone());
        let asked = clock::now();
        if let Some(entry) = &on.entry
            && clock::timeout_at(request.deadline, entry.done()).await.is_err()
        {
            return Err(self.no_answer(connection, asked, request, retry));
        }
        match clock::timeout_at(request.deadline, on.close_stale()).await {
            Ok(Ok(())) => Ok(Some(on)),
            Ok(Err(error)) => {
                if classify(&error) == ErrorClass::ConnectionLost {
                    self.drop_connection(&on);
                }
                let left = request.deadline.saturating_duration_since(clock::now());
                clock::sleep(retry.backoff.next().min(left)).await;
                retry.cause = Some(error);
                Ok(None)
            }
            Err(_) => Err(self.no_answer(connection, asked, request, retry)),
        }
    }

    /// Sends the request once: in a batch, or at once if few requests are under way.
    async fn send(
        &self,
        on: &Connection,
        connection: &mut Option<Connection>,
        request: &mut Request<'_>,
        asking: bool,
        behind: bool,
    ) -> Reply {
        request.was_sent.iter_mut().for_each(|was_sent| **was_sent = true);
        let deadline = request.deadline;
        request.counts = true;
        if asking {
            return Box::pin(on.ask_with_asking(&request.cmd, deadline)).await;
        }
        if behind {
            // The runtime that drives the connection may be blocked, and its timers with it.
            let answer = clock::timeout_at(deadline, on.ask(&request.cmd, deadline));
            return Box::pin(answer).await.unwrap_or(Reply::TimedOut { sent: true });
        }
        let Some(batch) = request.batch else {
            return Box::pin(on.ask(&request.cmd, deadline)).await;
        };
        if let Some(_in_flight) = on.at_once() {
            return Box::pin(on.ask(&request.cmd, deadline)).await;
        }
        let entry = on.entry(request.cmd.take(), batch, deadline, request.operation);
        connection.insert(on.clone()).entry = Some(entry.clone());
        let reply = entry.reply().await;
        request.counts = entry.request.counts.load(Ordering::Relaxed);
        if !matches!(reply, Reply::Answer(Ok(_))) {
            request.cmd = entry.request.cmd.clone();
        }
        reply
    }

    /// What a caller gets for the answer that came on that connection.
    fn accept(
        &self,
        value: Value,
        on: &Connection,
        sent: Instant,
        request: &Request<'_>,
        retry: &Retry,
    ) -> Answer {
        on.record_answer(sent);
        self.log_answer(on.server(), sent);
        let asking = retry.asking.is_some();
        if asking {
            self.publish_at_source(request.key, request.publishes_on);
        }
        Answer { value, sent, repeated: retry.repeated, asking }
    }

    /// Prepares the next sending after an error. Gives the connection back if the request is sent
    /// there again.
    async fn recover(
        &self,
        error: RedisError,
        on: Connection,
        connection: &mut Option<Connection>,
        request: &mut Request<'_>,
        retry: &mut Retry,
    ) -> Result<Option<Connection>, Error> {
        let error = match self.load(error, on.clone(), connection, request, retry).await? {
            Ok(next) => return Ok(next),
            Err(error) => error,
        };
        let at_once = match retry.next_step(&error, request) {
            Step::Fail(kind) => return Err(self.refusal(kind, error, request, retry.repeated)),
            Step::Unbatch => {
                request.batch = None;
                return Ok(None);
            }
            Step::GiveUp => {
                (retry.repeated, retry.cause) = (true, Some(error));
                *connection = None;
                self.drop_connection(&on);
                return Err(self.unanswered(request, retry));
            }
            Step::Reconnect => {
                retry.repeated = true;
                self.try_elsewhere(&on, error, retry);
                return Ok(None);
            }
            Step::Redirect { at_once } => {
                let Some((node, for_good)) = self.note_redirect(&error, on.server()) else {
                    let redis = self.redis(request.key, None);
                    return Err(nowhere_to_go(&redis, retry.repeated, error));
                };
                retry.asking = (!for_good).then_some(node);
                retry.redirections += 1;
                at_once
            }
            Step::Pause { refresh, drop_connection } => {
                retry.asking = None;
                if refresh {
                    self.refresh();
                }
                if drop_connection {
                    self.drop_connection(&on);
                }
                false
            }
        };
        if !at_once {
            // A try with no time left for its answer would turn "not executed" into "unknown".
            let pause = retry.backoff.next();
            if clock::now() + 2 * pause >= request.deadline {
                return Err(self.cannot_serve(error, request, retry.repeated));
            }
            clock::sleep(pause).await;
        }
        retry.cause = Some(error);
        Ok(None)
    }

    /// Redis has refused the request for good.
    fn refusal(
        &self,
        kind: ErrorKind,
        error: RedisError,
        request: &Request<'_>,
        sent: bool,
    ) -> Error {
        let (redis, what) = (self.redis(request.key, None), request.subject());
        let refused = match key_of_another_type(&error, &request.cmd) {
            Some(key) => not_of_a_queue(&key, &redis, &what, sent, error),
            None => refused(kind, &redis, &what, sent, error),
        };
        refused.replied()
    }

    /// Redis has refused the request for now, and there is no time for another try.
    fn cannot_serve(&self, error: RedisError, request: &Request<'_>, sent: bool) -> Error {
        let redis = self.redis(request.key, None);
        let message = format!("{redis} cannot serve {} now", request.subject());
        // A slot that moves is no outage of a server.
        let moves = is_cross_node(&error) || matches!(classify(&error), ErrorClass::Redirect);
        let unavailable = unavailable(&message, sent, Some(error));
        if moves { unavailable } else { self.note_unavailable(request, unavailable) }
    }

    /// The connection is lost. The next sending is on another one, to the server that has the key then.
    fn try_elsewhere(&self, on: &Connection, error: RedisError, retry: &mut Retry) {
        self.drop_connection(on);
        (retry.asking, retry.cause) = (None, Some(error));
    }

    /// Has the server load the script, if the error is that it does not know that. Gives the connection back if the
    /// request is sent there again, and nothing if that is lost: the server has refused the request. Else returns the
    /// error that is left: another one, or a refusal to load the script.
    async fn load(
        &self,
        error: RedisError,
        on: Connection,
        connection: &mut Option<Connection>,
        request: &Request<'_>,
        retry: &mut Retry,
    ) -> Result<Result<Option<Connection>, RedisError>, Error> {
        let Some(script) = request.script.filter(|_| is_unknown_script(&error)) else {
            return Ok(Err(error));
        };
        let asked = clock::now();
        match clock::timeout_at(request.deadline, on.load_script(script)).await {
            Ok(Ok(())) => Ok(Ok(Some(on))),
            Ok(Err(error)) if classify(&error) == ErrorClass::ConnectionLost => {
                self.try_elsewhere(&on, error, retry);
                Ok(Ok(None))
            }
            Ok(Err(error)) => Ok(Err(error)),
            Err(_) => Err(self.no_answer(connection, asked, request, retry)),
        }
    }

    /// No answer has come in time to what was sent at `asked`. Drops the connection if it is silent:
    /// then the caller sends the undo on another one, and else behind the request.
    fn no_answer(
        &self,
        connection: &mut Option<Connection>,
        asked: Instant,
        request: &Request<'_>,
        retry: &mut Retry,
    ) -> Error {
        if let Some(silent) = connection.take_if(|on| on.is_silent(asked, request.answer_timeout)) {
            self.drop_connection(&silent);
        }
        self.unanswered(request, retry)
    }

    /// No answer could come by the deadline: it was not sent this time.
    fn no_time_left(&self, request: &Request<'_>, retry: &mut Retry) -> Error {
        let redis = self.redis(request.key, retry.cause.as_ref());
        let message = format!("no time left to ask {redis} for {}", request.subject());
        retry.unavailable(&message)
    }

    fn unanswered(&self, request: &Request<'_>, retry: &mut Retry) -> Error {
        let redis = self.redis(request.key, retry.cause.as_ref());
        let message = format!("no answer from {redis} for {}", request.subject());
        self.note_unavailable(request, retry.unavailable(&message))
    }

    /// The error of a request that its server did not answer, or could not serve.
    fn note_unavailable(&self, request: &Request<'_>, error: Error) -> Error {
        if error.kind() == ErrorKind::Unavailable
            && let Some(node) = self.node_of(request.key)
        {
            self.log_failure(&node, &error);
        }
        error
    }
}

fn no_node() -> RedisError {
    let message = "no server is known to have the key: no sentinel, or no node, has named one";
    io::Error::new(io::ErrorKind::NotConnected, message).into()
}
