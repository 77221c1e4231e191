//! How connections are made, and made again when they break.
//!
//! 1. **A dial belongs to the client, not to the caller that needed it first.** Each runtime slot
//!    has one supervisor, a task on the runtime that drives the connection. Callers wait for its
//!    result, each until its own deadline, and the dial goes on without them.
//! 2. **A connection that breaks is made again at once**, whether or not a caller needs one now: a
//!    renewal or a release finds it there.
//! 3. **Dials are paced** by a pause that grows until a connection has lived ([`Pace`]). So the
//!    client does not flood a server that accepts and then resets, whatever it answers in between.
//! 4. **A new connection is ready**: its server has the scripts, and has closed the stale
//!    connections (see [`super::stale`]). So the first request takes one round trip. If the server
//!    refuses some of that, the requests do it.
//! 5. A supervisor holds the router, the node and the slot weakly. It ends with them, with its
//!    runtime, and when a server refuses this client for good. The next caller starts another then.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{RedisError, RedisResult, Script};
use tokio::sync::mpsc::UnboundedSender;

use super::connection::{ConnectionInfo, Role};
use super::error_class::{ErrorClass, classify, is_fatal};
use super::node::{Node, moved};
use super::runtime_slot::RuntimeSlot;
use super::stale::Servers;
use super::{Connection, Push, Router, endpoint};
use crate::clock;

/// The shortest pause between the end of one connection, or of a dial, and the next dial.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// The longest pause. After a connection that has lived for so long there is none.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Makes all connections of one client.
pub(super) struct Dialer {
    /// The servers that this client has ever connected to.
    servers: Servers,
    scripts: Vec<&'static Script>,
    pub(super) pushes: UnboundedSender<Push>,
    /// How long the server may take for one answer.
    pub(super) patience: Duration,
    numbers: AtomicU64,
}

impl Dialer {
    pub(super) fn new(
        scripts: Vec<&'static Script>,
        pushes: UnboundedSender<Push>,
        patience: Duration,
    ) -> Self {
        let (servers, numbers) = (Servers::default(), AtomicU64::new(1));
        Self { servers, scripts, pushes, patience, numbers }
    }

    /// Makes a connection. Each of its round trips may take as long as a command.
    pub(super) async fn dial(
        &self,
        client: redis::Client,
        asks_role: bool,
    ) -> RedisResult<(Connection, Role)> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let server = endpoint::name(client.get_connection_info());
        let info = ConnectionInfo { number, server, client };
        let connection = Connection::dial(info, self.patience, self.pushes.clone()).await?;
        let introduced = connection.introduce(&self.servers, asks_role, &self.scripts);
        let introduced = tokio::time::timeout(self.patience, introduced).await;
        let (role, missing) = introduced.map_err(io::Error::from)??;
        let prepared = tokio::time::timeout(self.patience, prepare(&connection, missing)).await;
        match prepared.map_err(io::Error::from).map_err(RedisError::from).flatten() {
            Ok(()) => Ok((connection, role)),
            Err(error) => {
                connection.carried_no_request();
                Err(error)
            }
        }
    }
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

/// When the next dial may begin: the pure state.
///
/// There are two pauses, and the longer one counts. One doubles with each dial that fails, and is
/// over when one succeeds. The other doubles with each connection that has lived for a shorter time
/// than the pause before it, and is over when one has lived for [`LONGEST_PAUSE`].
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: Duration,
    short_lives: Duration,
    not_before: Option<Instant>,
}

impl Pace {
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = longer(self.failures);
        self.wait(now);
    }

    pub(super) fn connected(&mut self) {
        self.failures = Duration::ZERO;
    }

    /// A connection has ended.
    pub(super) fn ended(&mut self, lived: Duration, now: Instant) {
        self.short_lives = if lived >= LONGEST_PAUSE {
            Duration::ZERO
        } else if lived >= self.short_lives.max(FIRST_PAUSE) {
            FIRST_PAUSE
        } else {
            longer(self.short_lives)
        };
        self.wait(now);
    }

    fn wait(&mut self, now: Instant) {
        self.not_before = Some(now + spread(self.failures.max(self.short_lives)));
    }

    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }
}

fn longer(pause: Duration) -> Duration {
    (2 * pause).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

/// Up to a quarter less at random, so that many clients do not dial at the same times.
fn spread(pause: Duration) -> Duration {
    pause - pause / 4 * u32::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255
}

/// Keeps the connection of one runtime slot.
pub(super) struct Supervisor {
    router: Weak<Router>,
    node: Weak<Node>,
    runtime_slot: Weak<RuntimeSlot>,
}

impl Supervisor {
    pub(super) fn new(router: &Router, node: &Arc<Node>, runtime_slot: &Arc<RuntimeSlot>) -> Self {
        let (node, runtime_slot) = (Arc::downgrade(node), Arc::downgrade(runtime_slot));
        Self { router: router.weak(), node, runtime_slot }
    }

    /// Dials until there is a connection, and again when that one has ended.
    pub(super) async fn run(self) {
        while let Some(connection) = self.connect().await {
            let (number, record) = (connection.number(), connection.record().clone());
            drop(connection);
            record.ended().await;
            let Some((router, node, _)) = self.all() else { return };
            // The task that noticed first has logged it.
            router.forget(number);
            if node.is_left() {
                return;
            }
        }
    }

    /// `None` if the supervisor has to end.
    async fn connect(&self) -> Option<Connection> {
        loop {
            let (_, node, runtime_slot) = self.all()?;
            let (mut moves, not_before) = (node.moves(), runtime_slot.not_before());
            drop((node, runtime_slot));
            if let Some(at) = not_before {
                tokio::select! {
                    () = clock::sleep_until(at) => {}
                    // What happened at another server says nothing about this one.
                    _ = moves.changed() => {}
                }
            }
            let (router, node, runtime_slot) = self.all()?;
            // Before it reads where the node is.
            let mut moves = node.moves();
            let begun = clock::now();
            let dial = node.dial(router.dialer.clone());
            drop((router, node, runtime_slot));
            let dialed = tokio::select! {
                biased;
                // The earlier server may be dead.
                _ = moves.changed() => Err(moved()),
                dialed = dial => dialed,
            };
            let (router, node, runtime_slot) = self.all()?;
            let error = match dialed {
                Ok((connection, Role::Replica)) => {
                    connection.carried_no_request();
                    router.is_not_primary(connection.server());
                    io::Error::other("the server is a replica").into()
                }
                Ok((connection, Role::Primary))
                    if runtime_slot.install(&node, &connection, begun) =>
                {
                    return Some(connection);
                }
                Ok((connection, Role::Primary)) => {
                    connection.carried_no_request();
                    moved()
                }
                Err(error) => error,
            };
            let ends = is_fatal(&error) || node.is_left();
            runtime_slot.failed(error);
            if ends {
                return None;
            }
        }
    }

    fn all(&self) -> Option<(Arc<Router>, Arc<Node>, Arc<RuntimeSlot>)> {
        Some((self.router.upgrade()?, self.node.upgrade()?, self.runtime_slot.upgrade()?))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(runtime_slot) = self.runtime_slot.upgrade() {
            runtime_slot.has_no_supervisor();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The pauses, without their spread, after dials that failed, and after connections that have
    /// lived for so long.
    fn pauses(all: impl IntoIterator<Item = Option<Duration>>) -> Vec<u128> {
        let (mut pace, now) = (Pace::default(), clock::now());
        let pause = |lived| {
            match lived {
                None => pace.failed(now),
                Some(lived) => {
                    pace.connected();
                    pace.ended(lived, now);
                }
            }
            let pause = pace.failures.max(pace.short_lives);
            let until = pace.not_before().expect("a time") - now;
            assert!(until <= pause && until >= pause * 3 / 4, "{until:?}");
            pause.as_millis()
        };
        all.into_iter().map(pause).collect()
    }

    #[test]
    fn dials_that_fail_slow_down_to_half_a_second() {
        assert_eq!(pauses([None; 7]), [25, 50, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn the_first_dial_and_one_after_a_connection_that_has_lived_are_at_once() {
        assert_eq!(Pace::default().not_before(), None);
        assert_eq!(pauses([Some(500 * MS)]), [0]);
        assert_eq!(pauses([None, None, Some(500 * MS), Some(MS)]), [25, 50, 0, 25]);
    }

    #[test]
    fn a_pause_grows_until_a_connection_has_lived_for_longer() {
        assert_eq!(pauses([Some(MS); 5]), [25, 50, 100, 200, 400]);
        assert_eq!(pauses([Some(MS), Some(MS), Some(60 * MS), Some(60 * MS)]), [25, 50, 25, 25]);
    }

    #[test]
    fn w28_whatever_two_connections_live_for_they_are_made_fifty_times_a_second_at_most() {
        for lived in 0..500 {
            let mut pace = Pace::default();
            let (mut now, begun) = (clock::now(), clock::now());
            for _ in 0..100 {
                pace.ended(lived * MS, now);
                now = pace.not_before().expect("a time") + lived * MS;
            }
            assert!(now - begun >= Duration::from_secs(4), "{lived} ms: {:?}", now - begun);
        }
    }

    #[test]
    fn pauses_differ() {
        let spread: Vec<_> = (0..40).map(|_| spread(LONGEST_PAUSE)).collect();
        assert!(spread.windows(2).any(|two| two[0] != two[1]));
    }
}
