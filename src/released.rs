//! The names that this client has released lately.
//!
//! The client remembers them only where another server can become responsible for a name (behind
//! Sentinels, in a cluster), because only there a release that Redis has confirmed can be missing
//! later (see [`crate::reclaim`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::host::HashMap;
use crate::possession::Possession;
use crate::protocol::Names;
use crate::transport::Server;

/// Longer than any replica lags behind before it is promoted.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// The most names that the client remembers. While it has so many, it adds none.
const MOST: usize = 65_536;

/// Below this many names there is no sweep.
const SWEEP_FROM: usize = 1024;

#[derive(Default)]
pub(crate) struct ReleasedNames {
    state: Mutex<State>,
    /// Notified when another server became responsible while a release was under way.
    pub(crate) moved_meanwhile: Notify,
}

struct State {
    names: HashMap<Box<str>, LastRelease>,
    sweep_at: usize,
    /// The last sweep, once there was one.
    swept: Option<Instant>,
}

/// One name, when it was released last, and where.
struct LastRelease {
    names: Arc<Names>,
    at: Instant,
    server: Server,
    /// Until when the key was to stay after that release.
    held_until: Option<Instant>,
    /// The server's time of the last grant that Redis made by itself and that this client has released; zero if there
    /// was none.
    granted: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { names: HashMap::default(), sweep_at: SWEEP_FROM, swept: None }
    }
}

impl ReleasedNames {
    /// Notes that this client has released the name of that possession, or handed it off between two of its owners.
    pub(crate) fn note(
        &self,
        possession: &Possession,
        server: Server,
        held_until: Option<Instant>,
        now: Instant,
    ) {
        let (names, granted) = (&possession.names, possession.granted_at().unwrap_or_default());
        let mut state = self.state.lock();
        if let Some(last) = state.names.get_mut(names.key()) {
            (last.at, last.server, last.held_until) = (now, server, held_until);
            last.granted = last.granted.max(granted);
            // To release a fair lock again is to tell the client whose turn it is.
            if names.is_in_order() {
                last.names = names.clone();
            }
            return;
        }
        let rested = state.swept.is_none_or(|swept| now >= swept + REMEMBERED_FOR / 10);
        if state.names.len() >= state.sweep_at && (rested || state.names.len() < MOST) {
            state.names.retain(|_, last| now < last.at + REMEMBERED_FOR);
            state.sweep_at = (2 * state.names.len()).clamp(SWEEP_FROM, MOST);
            state.swept = Some(now);
        }
        if state.names.len() < MOST {
            let last = LastRelease { names: names.clone(), at: now, server, held_until, granted };
            state.names.insert(names.key().into(), last);
        }
    }

    /// Until when the key was to stay after the last release of that name.
    pub(crate) fn held_until(&self, names: &Names) -> Option<Instant> {
        self.state.lock().names.get(names.key())?.held_until
    }

    /// This client has heard of each grant of that name that Redis made by itself up to that time of the server.
    pub(crate) fn granted_until(&self, names: &Names) -> u64 {
        self.state.lock().names.get(names.key()).map_or(0, |last| last.granted)
    }

    /// The names for which another server is responsible now than at their release, or at the last
    /// call of this.
    pub(crate) fn moved(
        &self,
        server_of: impl Fn(&str) -> Server,
        now: Instant,
    ) -> Vec<Arc<Names>> {
        let mut state = self.state.lock();
        let mut moved = Vec::new();
        state.names.retain(|_, last| now < last.at + REMEMBERED_FOR);
        for (key, last) in &mut state.names {
            let server = server_of(key);
            if std::mem::replace(&mut last.server, server) != server {
                moved.push(last.names.clone());
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn possession(name: &str, number: i64) -> Possession {
        let id = format!("0c2b5a3e-7a4e-4d56-9f0e-1d2c3b4a5968:{number}");
        Possession::new(Arc::new(Names::new("", name)), id.as_str().into())
    }

    fn keys(moved: Vec<Arc<Names>>) -> Vec<String> {
        let mut keys: Vec<_> = moved.iter().map(|names| names.key().to_owned()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn w26_a_name_is_looked_at_once_for_each_change_of_its_server() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let [old, new] = [Server::numbered(1), Server::numbered(2)];
        released.note(&possession("a", 1), old, None, now);
        released.note(&possession("b", 1), new, None, now);
        released.note(&possession("a", 1), old, None, now);
        assert_eq!(keys(released.moved(|_| new, now)), ["a"]);
        assert_eq!(keys(released.moved(|_| new, now)), [""; 0]);
        assert_eq!(keys(released.moved(|_| old, now)), ["a", "b"]);
        let later = now + REMEMBERED_FOR;
        assert_eq!(keys(released.moved(|_| new, later)), [""; 0], "forgotten after a while");
    }

    #[test]
    fn w26_it_knows_the_last_grant_of_redis_itself_that_was_released() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let granted = |number, name| {
            released.note(&possession(name, number), Server::numbered(1), None, now);
            released.granted_until(&possession("a", 1).names)
        };
        assert_eq!(released.granted_until(&possession("a", 1).names), 0);
        assert_eq!([granted(3, "a"), granted(-7, "b"), granted(-7, "a")], [0, 0, 7]);
        assert_eq!([granted(9, "a"), granted(-5, "a"), granted(-8, "a")], [7, 7, 8]);
    }

    #[test]
    fn names_do_not_pile_up() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let server = Server::numbered(1);
        for number in 0..MOST + 10 {
            released.note(&possession(&number.to_string(), 1), server, None, now);
        }
        assert_eq!(released.state.lock().names.len(), MOST);
        released.note(&possession("later", 1), server, None, now + REMEMBERED_FOR);
        assert_eq!(released.state.lock().names.len(), 1);
    }
}
