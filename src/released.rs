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
use crate::protocol::Names;
use crate::sweep::Sweep;
use crate::transport::ServerEpoch;

/// Longer than any replica lags behind before it is promoted.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// The most names that the client remembers. While it has this many, it adds none.
const MAX_NAMES: usize = 65_536;

#[derive(Default)]
pub(crate) struct ReleasedNames {
    state: Mutex<State>,
    /// Notified when another server became responsible while a release was under way.
    pub(crate) moved_meanwhile: Notify,
}

#[derive(Default)]
struct State {
    names: HashMap<Box<str>, LastRelease>,
    sweep: Sweep,
    /// The last sweep, once there was one.
    swept: Option<Instant>,
}

/// When a name was released last, and where.
struct LastRelease {
    names: Arc<Names>,
    at: Instant,
    server: ServerEpoch,
    /// The server was another one before, and this client has yet to ask the new one.
    has_moved: bool,
    /// The server's time of the last grant that Redis made by itself and that this client has released; zero if there
    /// was none.
    granted: u64,
}

impl ReleasedNames {
    /// Notes that this client has released that name, or handed it off between two of its owners. Redis had granted it by
    /// itself at the time `granted`, or not.
    pub(crate) fn note(
        &self,
        names: &Arc<Names>,
        granted: Option<u64>,
        server: ServerEpoch,
        now: Instant,
    ) {
        let granted = granted.unwrap_or_default();
        let mut state = self.state.lock();
        if let Some(last) = state.names.get_mut(names.key()) {
            // The new one may have missed the release before this one.
            last.has_moved |= last.server != server;
            (last.at, last.server) = (now, server);
            last.granted = last.granted.max(granted);
            // To release a fair lock again is to tell the client whose turn it is.
            if names.is_in_order() {
                last.names = names.clone();
            }
            return;
        }
        let rested = state.swept.is_none_or(|swept| now >= swept + REMEMBERED_FOR / 10);
        if state.sweep.is_due(state.names.len()) && (rested || state.names.len() < MAX_NAMES) {
            state.names.retain(|_, last| now < last.at + REMEMBERED_FOR);
            let left = state.names.len();
            state.sweep.swept(left.min(MAX_NAMES / 2));
            state.swept = Some(now);
        }
        if state.names.len() < MAX_NAMES {
            let last =
                LastRelease { names: names.clone(), at: now, server, has_moved: false, granted };
            state.names.insert(names.key().into(), last);
        }
    }

    /// This client has heard of each grant of that name that Redis made by itself up to that time of the server.
    pub(crate) fn granted_until(&self, names: &Names) -> u64 {
        self.state.lock().names.get(names.key()).map_or(0, |last| last.granted)
    }

    /// The names for which another server is responsible now than at their release, or at the last
    /// call of this, by this server.
    pub(crate) fn moved(
        &self,
        server_of: impl Fn(&str) -> ServerEpoch,
        now: Instant,
    ) -> HashMap<ServerEpoch, Vec<Arc<Names>>> {
        let mut state = self.state.lock();
        let mut moved: HashMap<_, Vec<_>> = HashMap::default();
        state.names.retain(|_, last| now < last.at + REMEMBERED_FOR);
        for (key, last) in &mut state.names {
            let server = server_of(key);
            let has_moved = std::mem::take(&mut last.has_moved);
            if std::mem::replace(&mut last.server, server) != server || has_moved {
                moved.entry(server).or_default().push(last.names.clone());
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn names(name: &str) -> Arc<Names> {
        Arc::new(Names::new("", name))
    }

    fn keys(moved: HashMap<ServerEpoch, Vec<Arc<Names>>>) -> Vec<String> {
        let moved = moved.into_values().flatten();
        let mut keys: Vec<_> = moved.map(|names| names.key().to_owned()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn w26_a_name_is_looked_at_once_for_each_change_of_its_server() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let [old, new] = [ServerEpoch::numbered(1), ServerEpoch::numbered(2)];
        released.note(&names("a"), None, old, now);
        released.note(&names("b"), None, new, now);
        released.note(&names("a"), None, old, now);
        assert_eq!(keys(released.moved(|_| new, now)), ["a"]);
        assert_eq!(keys(released.moved(|_| new, now)), [""; 0]);
        assert_eq!(keys(released.moved(|_| old, now)), ["a", "b"]);
        let later = now + REMEMBERED_FOR;
        assert_eq!(keys(released.moved(|_| new, later)), [""; 0], "forgotten after a while");
    }

    /// A reader comes and goes beside one that the new server counts still.
    #[test]
    fn w26_a_name_whose_server_has_changed_is_looked_at_though_it_was_released_there_since() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let [old, new] = [ServerEpoch::numbered(1), ServerEpoch::numbered(2)];
        released.note(&names("a"), None, old, now);
        released.note(&names("a"), None, new, now);
        assert_eq!(keys(released.moved(|_| new, now)), ["a"]);
        released.note(&names("a"), None, new, now);
        assert_eq!(keys(released.moved(|_| new, now)), [""; 0]);
    }

    #[test]
    fn w26_it_knows_the_last_grant_of_redis_itself_that_was_released() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let noted = |granted, name| {
            released.note(&names(name), granted, ServerEpoch::numbered(1), now);
            released.granted_until(&names("a"))
        };
        assert_eq!(released.granted_until(&names("a")), 0);
        assert_eq!([noted(None, "a"), noted(Some(7), "b"), noted(Some(7), "a")], [0, 0, 7]);
        assert_eq!([noted(None, "a"), noted(Some(5), "a"), noted(Some(8), "a")], [7, 7, 8]);
    }

    #[test]
    fn names_do_not_pile_up() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let server = ServerEpoch::numbered(1);
        for number in 0..MAX_NAMES + 10 {
            released.note(&names(&number.to_string()), None, server, now);
        }
        assert_eq!(released.state.lock().names.len(), MAX_NAMES);
        released.note(&names("later"), None, server, now + REMEMBERED_FOR);
        assert_eq!(released.state.lock().names.len(), 1);
    }
}
