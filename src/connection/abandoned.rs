//! Connections that were given up, and what they may still have under way.
//!
//! A request on a connection that was given up may be executed yet: it can be in the network, in a
//! proxy, in the server's socket. Executed after what was sent later on another connection, an old
//! release would free a new hold, and an old acquire would leave a lock that nobody holds.
//!
//! 1. **Nothing is sent before the server has closed what was given up.** What it has not executed
//!    by then it never will. That is one round trip, for each connection that was lost. (Where
//!    another server has become the master, what its predecessor still executes is lost with it.)
//! 2. A connection is named by its id *and* its address, because a server that was restarted
//!    counts ids from one again and must not close somebody else's.
//! 3. A user without permission for `CLIENT INFO` or `CLIENT KILL` goes without.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis::{RedisError, RedisResult};

use super::Wire;
use super::verdict::{Verdict, verdict};
use super::version;

/// A connection as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    id: String,
    address: String,
}

impl Identity {
    /// Asks the server; `None` if it does not say. Fails if it is too old to say.
    pub(super) async fn of(wire: &Wire) -> RedisResult<Option<Self>> {
        let mut ask = redis::cmd("CLIENT");
        ask.arg("INFO");
        let info: RedisResult<String> =
            wire.answer(async |mut connection| ask.query_async(&mut connection).await).await;
        match info {
            Ok(info) => Ok(Self::parse(&info)),
            Err(error) if verdict(&error) == Verdict::Broken => Err(error),
            Err(error) => {
                tracing::debug!(%error, "the server does not say which connection this is");
                version::check(wire).await?;
                Ok(None)
            }
        }
    }

    fn parse(info: &str) -> Option<Self> {
        let field = |name| info.split_whitespace().find_map(|word| word.strip_prefix(name));
        Some(Self { id: field("id=")?.to_owned(), address: field("addr=")?.to_owned() })
    }
}

#[derive(Default)]
pub(super) struct Abandoned {
    /// Whether `list` has anything in it: all that a request has to look at as a rule.
    any: AtomicBool,
    list: Mutex<Vec<Entry>>,
}

#[derive(Clone)]
struct Entry {
    number: u64,
    server: Arc<str>,
    identity: Arc<Identity>,
}

impl Abandoned {
    pub(super) fn add(&self, wire: &Wire) {
        if let Some(identity) = wire.identity() {
            let (number, server) = (wire.number(), wire.server().into());
            let mut list = self.list.lock();
            list.push(Entry { number, server, identity: identity.clone() });
            self.any.store(true, Ordering::Release);
        }
    }

    /// Only that server matters from now on.
    pub(super) fn keep_only(&self, server: &str) {
        let mut list = self.list.lock();
        list.retain(|entry| &*entry.server == server);
        self.any.store(!list.is_empty(), Ordering::Release);
    }

    /// Whether there is anything to close: mostly not.
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire) && !seeded!("late-requests")
    }

    /// Has the server close what was given up, by way of `wire`; whoever comes meanwhile does the
    /// same by way of its own. Fails if `wire` broke or was itself given up, and while the server
    /// is busy.
    pub(super) async fn close(&self, wire: &Wire) -> RedisResult<()> {
        let list = self.list.lock().clone();
        if list.iter().any(|entry| entry.number == wire.number()) {
            return Err(given_up());
        }
        for Entry { number, server, identity } in list {
            if &*server != wire.server() {
                continue;
            }
            let mut kill = redis::cmd("CLIENT");
            kill.arg("KILL").arg("ID").arg(&identity.id).arg("ADDR").arg(&identity.address);
            match wire.answer(async |mut connection| kill.exec_async(&mut connection).await).await {
                Ok(()) => {}
                Err(error) if matches!(verdict(&error), Verdict::Final(_)) => {
                    tracing::debug!(%error, "may not close a connection that was given up");
                }
                Err(error) => return Err(error),
            }
            let mut list = self.list.lock();
            list.retain(|entry| entry.number != number);
            self.any.store(!list.is_empty(), Ordering::Release);
        }
        Ok(())
    }
}

fn given_up() -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was given up").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_named_by_its_id_and_its_address() {
        let info = "id=37 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name= user=default";
        let (id, address) = ("37".to_owned(), "127.0.0.1:4711".to_owned());
        assert_eq!(Identity::parse(info), Some(Identity { id, address }));
        assert_eq!(Identity::parse("id=37 laddr=127.0.0.1:6379"), None);
    }
}
