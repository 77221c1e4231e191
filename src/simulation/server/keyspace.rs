//! Keys: how they are found, made, changed, and how they end. Pure.

use super::core::{Core, Db};
use super::data::{Bytes, Entry, Kind};
use super::reply::{Failure, WRONG_TYPE};
use super::settings::Version;

/// How long a server lets pass between two looks for keys that have ended.
const CYCLE: i64 = 100;

impl Core {
    /// Whether the key has ended. A primary removes it then, a replica waits to be told.
    fn is_over(&mut self, db: usize, key: &[u8]) -> bool {
        let now = self.millis();
        let over = |entry: &Entry| entry.expires.is_some_and(|end| end < now);
        if !self.dbs[db].get(key).is_some_and(over) {
            return false;
        }
        if self.is_replica() {
            // The scripts of Redis 6.2 still see it there.
            return self.version() > Version::Redis62 || self.script.is_none();
        }
        self.remove_now(db, key);
        true
    }

    /// Whether an entry is there for a command that looks now.
    pub(super) fn is_visible(&self, entry: &Entry) -> bool {
        entry.expires.is_none_or(|end| end >= self.millis())
    }

    pub(super) fn entry(&mut self, db: usize, key: &[u8]) -> Option<&mut Entry> {
        if self.is_over(db, key) {
            return None;
        }
        self.dbs[db].get_mut(key)
    }

    pub(super) fn exists(&mut self, db: usize, key: &[u8]) -> bool {
        self.entry(db, key).is_some()
    }

    pub(super) fn get<K: Kind>(&mut self, db: usize, key: &[u8]) -> Result<Option<&K>, Failure> {
        Ok(self.get_mut(db, key)?.map(|value| &*value))
    }

    pub(super) fn get_mut<K: Kind>(
        &mut self,
        db: usize,
        key: &[u8],
    ) -> Result<Option<&mut K>, Failure> {
        let Some(entry) = self.entry(db, key) else { return Ok(None) };
        K::of_mut(&mut entry.value).ok_or(WRONG_TYPE).map(Some)
    }

    pub(super) fn make<K: Kind>(&mut self, db: usize, key: &[u8]) -> Result<&mut K, Failure> {
        self.is_over(db, key);
        let keys = &mut self.dbs[db];
        if !keys.contains_key(key) {
            let empty = Entry { value: K::default().wrap(), expires: None };
            keys.insert(key.to_vec(), empty);
        }
        let entry = keys.get_mut(key).expect("made above");
        K::of_mut(&mut entry.value).ok_or(WRONG_TYPE)
    }

    pub(super) fn set(&mut self, db: usize, key: &[u8], entry: Entry) {
        self.expects_end(entry.expires);
        self.dbs[db].insert(key.to_vec(), entry);
        self.changed(db, key);
    }

    /// Removes a key. False if there was none.
    pub(super) fn remove(&mut self, db: usize, key: &[u8]) -> bool {
        self.exists(db, key) && self.remove_now(db, key)
    }

    fn remove_now(&mut self, db: usize, key: &[u8]) -> bool {
        let was = self.dbs[db].remove(key).is_some();
        if was {
            self.changed(db, key);
        }
        was
    }

    /// The key has another value, or another end, or is gone.
    pub(super) fn changed(&mut self, db: usize, key: &[u8]) {
        if self.dbs[db].get(key).is_some_and(|entry| entry.value.is_gone()) {
            self.dbs[db].remove(key);
        }
        self.note_change(db, key);
    }

    /// Gives a key another end. A time that has passed removes it, but on a replica.
    pub(super) fn expire_at(&mut self, db: usize, key: &[u8], end: i64) {
        if end <= self.millis() && !self.is_replica() {
            self.remove_now(db, key);
            return;
        }
        self.expects_end(Some(end));
        if let Some(entry) = self.dbs[db].get_mut(key) {
            entry.expires = Some(end);
        }
        self.changed(db, key);
    }

    pub(super) fn expects_end(&mut self, end: Option<i64>) {
        if let Some(end) = end {
            self.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
        }
    }

    /// When keys that have ended are looked for next.
    pub(super) fn next_cycle(&self) -> Option<i64> {
        let first = self.first_end.filter(|_| !self.is_replica())?;
        Some(first.saturating_add(1).max(self.last_cycle + CYCLE))
    }

    /// Removes all keys that have ended.
    pub(super) fn cycle(&mut self) {
        let now = self.millis();
        // A clock that was set back is no reason to wait.
        self.last_cycle = self.last_cycle.min(now);
        if self.next_cycle().is_none_or(|next| next > now) {
            return;
        }
        self.last_cycle = now;
        self.first_end = None;
        for db in 0..self.dbs.len() {
            let mut over: Vec<Bytes> = Vec::new();
            for (key, entry) in &self.dbs[db] {
                match entry.expires {
                    Some(end) if end < now => over.push(key.clone()),
                    Some(end) => {
                        self.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
                    }
                    None => {}
                }
            }
            for key in over {
                self.remove_now(db, &key);
            }
        }
    }

    /// The keys that are there for a command that looks now.
    pub(super) fn visible(&self, db: usize) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.dbs[db].iter().filter(|(_, entry)| self.is_visible(entry))
    }

    /// Removes all keys of these databases.
    pub(super) fn flush(&mut self, dbs: std::ops::Range<usize>) {
        for db in dbs {
            let keys: Db = std::mem::take(&mut self.dbs[db]);
            for key in keys.keys() {
                self.changed(db, key);
            }
        }
    }
}
