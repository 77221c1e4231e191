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
use crate::transport::ServerEpoch;

/// Longer than any replica lags behind before it is promoted.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// The most names that the client remembers. It forgets those first that have not been released for longest: a replica can
/// have missed the last releases.
const MAX_NAMES: usize = 65_536;

#[derive(Default)]
pub(crate) struct ReleasedNames {
    state: Mutex<State>,
    /// Notified when another server became responsible while a release was under way.
    pub(crate) moved_meanwhile: Notify,
}

#[derive(Default)]
struct State {
    newer: HashMap<Box<str>, LastRelease>,
    /// When the newer ones are half of all, or their time is over, they become the older ones.
    older: HashMap<Box<str>, LastRelease>,
    /// Since when there are newer ones.
    since: Option<Instant>,
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

impl LastRelease {
    /// The name was released once more.
    fn follow(&mut self, last: Self) {
        // The new server may have missed the release before this one.
        self.has_moved |= self.server != last.server;
        (self.at, self.server) = (last.at, last.server);
        self.granted = self.granted.max(last.granted);
        // To release a fair lock again is to tell the client whose turn it is.
        if last.names.is_in_order() {
            self.names = last.names;
        }
    }
}

impl State {
    fn get(&self, key: &str) -> Option<&LastRelease> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    /// Returns what it forgets, for the caller to drop without the mutex.
    fn make_room(&mut self, now: Instant) -> HashMap<Box<str>, LastRelease> {
        let since = *self.since.get_or_insert(now);
        if self.newer.len() < MAX_NAMES / 2 && now < since + REMEMBERED_FOR {
            return HashMap::default();
        }
        self.since = Some(now);
        let newer = std::mem::take(&mut self.newer);
        std::mem::replace(&mut self.older, newer)
    }
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
        let mut last = LastRelease {
            names: names.clone(),
            at: now,
            server,
            has_moved: false,
            granted: granted.unwrap_or_default(),
        };
        let mut state = self.state.lock();
        let forgotten = state.make_room(now);
        if let Some(before) = state.newer.get_mut(names.key()) {
            before.follow(last);
        } else {
            if let Some(mut before) = state.older.remove(names.key()) {
                before.follow(last);
                last = before;
            }
            state.newer.insert(names.key().into(), last);
        }
        drop(state);
        drop(forgotten);
    }

    /// This client has heard of each grant of that name that Redis made by itself up to that time of the server.
    pub(crate) fn granted_until(&self, names: &Names) -> u64 {
        self.state.lock().get(names.key()).map_or(0, |last| last.granted)
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
        let State { newer, older, .. } = &mut *state;
        for all in [&mut *newer, older] {
            all.retain(|_, last| now < last.at + REMEMBERED_FOR);
        }
        for (key, last) in newer.iter_mut().chain(older) {
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
    fn of_many_names_it_knows_those_that_were_released_last() {
        let (released, now) = (ReleasedNames::default(), clock::now());
        let server = ServerEpoch::numbered(1);
        let knows = |name: usize| released.granted_until(&names(&name.to_string())) > 0;
        let note = |name: usize, at| {
            released.note(&names(&name.to_string()), Some(1), server, at);
        };
        let many = 2 * MAX_NAMES + 10;
        for name in 1..=many {
            note(name, now);
            // One that is released again and again is not forgotten.
            note(0, now);
        }
        {
            let state = released.state.lock();
            assert!(state.newer.len() + state.older.len() <= MAX_NAMES);
        }
        assert!(knows(0) && knows(many) && knows(many - MAX_NAMES / 4), "the last ones");
        assert!(!knows(1) && !knows(many - MAX_NAMES), "and not more of them");
        // Without a failover, too, none is there for ever.
        note(many, now + REMEMBERED_FOR);
        note(many, now + 2 * REMEMBERED_FOR);
        assert!(knows(many) && !knows(0));
    }
}
