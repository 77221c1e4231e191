//! How a connection is made.
//!
//! **A new connection is ready**: its server has the scripts, and has closed the stale connections
//! (see [`super::stale`]). So the first request takes one round trip. If the server refuses some of
//! that, the requests do it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisResult, Script, Value};
use tokio::sync::mpsc::UnboundedSender;

use super::pace::{FIRST_PAUSE, LONGEST_PAUSE};
use super::stale::Servers;
use super::{Connection, ConnectionInfo};
use crate::clock;
use crate::transport::error_class::{ErrorClass, classify};
use crate::transport::{Push, address};

/// What a client leaves time for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(in crate::transport) answer_timeout: Duration,
    longest_pause: Duration,
}

impl Times {
    /// The watchdog renews leases of that length. No pause is longer than a twelfth of one, or than the shortest pause if
    /// that is more.
    pub(crate) fn new(answer_timeout: Duration, lease: Duration) -> Self {
        let longest_pause = (lease / 12).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        Self { answer_timeout, longest_pause }
    }
}

/// Makes all connections of one client.
pub(in crate::transport) struct Dialer {
    /// The servers that this client has ever connected to.
    servers: Servers,
    scripts: Vec<&'static Script>,
    pub(in crate::transport) pushes: UnboundedSender<Push>,
    /// How long the server may take for one answer.
    pub(in crate::transport) answer_timeout: Duration,
    /// How long a pause between two dials may be.
    pub(in crate::transport) longest_pause: Duration,
    /// What the servers call the connections.
    pub(in crate::transport) name: Arc<str>,
    numbers: AtomicU64,
}

impl Dialer {
    pub(in crate::transport) fn new(
        scripts: Vec<&'static Script>,
        pushes: UnboundedSender<Push>,
        times: Times,
        name: String,
    ) -> Self {
        let Times { answer_timeout, longest_pause } = times;
        let (servers, numbers) = (Servers::default(), AtomicU64::new(1));
        Self { servers, scripts, pushes, answer_timeout, longest_pause, name: name.into(), numbers }
    }

    /// Makes a connection, and asks the server that question. The connection has to be [prepared](Self::prepare), if it
    /// leads to the right server. Each of the round trips may take as long as a command.
    pub(in crate::transport) async fn dial(
        &self,
        client: redis::Client,
        question: Option<Cmd>,
    ) -> RedisResult<Dialed> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let server = address::name(client.get_connection_info());
        let info = ConnectionInfo { number, server, client };
        let connection = Connection::dial(info, self.answer_timeout, self.pushes.clone()).await?;
        let introduced = connection.introduce(&self.name, &self.servers, question, &self.scripts);
        let (answer, missing) = clock::within(self.answer_timeout, introduced).await?;
        Ok(Dialed { connection, answer, missing })
    }

    /// Has the server of a new connection load the scripts that it lacks, and close the stale connections.
    pub(in crate::transport) async fn prepare(
        &self,
        connection: &Connection,
        missing: Vec<&'static Script>,
    ) -> RedisResult<()> {
        let prepared = clock::within(self.answer_timeout, prepare(connection, missing)).await;
        prepared.inspect_err(|_| connection.record().carried_no_request())
    }
}

/// A connection that is not prepared yet.
pub(in crate::transport) struct Dialed {
    pub(in crate::transport) connection: Connection,
    /// Of the server, to the question.
    pub(in crate::transport) answer: RedisResult<Value>,
    /// The scripts that the server lacks.
    pub(in crate::transport) missing: Vec<&'static Script>,
}

/// Loads the missing scripts, and has the stale connections closed: one round trip, if
/// there is anything to do. Fails if the connection breaks.
async fn prepare(connection: &Connection, missing: Vec<&'static Script>) -> RedisResult<()> {
    let (loaded, closed) = tokio::join!(connection.load_scripts(missing), connection.close_stale());
    for error in [loaded, closed].into_iter().filter_map(Result::err) {
        if classify(&error) == ErrorClass::ConnectionLost {
            return Err(error);
        }
        tracing::debug!(%error, "a new connection is not prepared: requests will see to it");
    }
    Ok(())
}
