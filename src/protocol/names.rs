//! What the keys and the channel of one lock are called.

use std::hash::{Hash, Hasher};

use crate::error::Error;
use crate::host;
use crate::metrics::Series;
use crate::slot;
use crate::transport::Router;

/// The names under which Redis knows one lock.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The key is a part of it: one string instead of two for each lock that is held.
    channel: Box<str>,
    /// Whether braces were put around the key.
    wrapped: bool,
    /// Whether the channel is one client's own: then that client's id is at its end.
    own_channel: bool,
    /// Whether the lock is a read-write lock.
    read_write: bool,
    /// The hash of the channel, computed once: a client looks its locks up by their names many times for each hold.
    hash: u64,
    /// Where the client counts what happens to the lock.
    pub(crate) series: Series,
}

const CHANNEL: &str = "redisson_lock__channel:";
const READ_WRITE_CHANNEL: &str = "redisson_rwlock:";
const TOKEN: &str = "redisson_lock_token:";
const QUEUE: &str = "redlatch_queue:";
const WAITING: &str = "redlatch_waiting:";
const READ_WRITE_QUEUE: &str = "redlatch_rw_queue:";
const READ_WRITE_WAITING: &str = "redlatch_rw_waiting:";

/// The length of a client's id, which is a uuid.
const CLIENT: usize = 36;

impl Names {
    /// The names of a lock for which clients take turns. A name that brings a hash tag of its own stays as it is; any
    /// other becomes the tag, so that all keys of one lock share a cluster slot.
    pub(crate) fn new(prefix: &str, name: &str) -> Self {
        Self::on(CHANNEL, prefix, name)
    }

    /// The names of a read-write lock, for which Redis keeps the order.
    pub(crate) fn of_read_write(prefix: &str, name: &str, client: &str) -> Self {
        let names = Self::on(READ_WRITE_CHANNEL, prefix, name);
        Self { read_write: true, ..names.with_own_channel(client) }
    }

    fn on(channel: &str, prefix: &str, name: &str) -> Self {
        let wrapped = !prefix.contains('{') && !name.contains('{');
        let (open, close) = if wrapped { ("{", "}") } else { ("", "") };
        let channel: Box<str> = format!("{channel}{open}{prefix}{name}{close}").into();
        Self {
            hash: host::hash(&channel),
            channel,
            wrapped,
            own_channel: false,
            read_write: false,
            series: Series::default(),
        }
    }

    /// The names of a lock for which Redis keeps the order: its channel is the client's own.
    pub(crate) fn with_own_channel(self, client: &str) -> Self {
        debug_assert!(client.len() == CLIENT && !self.own_channel, "BUG: no id of a client");
        let channel: Box<str> = format!("{}:{client}", self.channel).into();
        Self { hash: host::hash(&channel), channel, own_channel: true, ..self }
    }

    /// What happens to the lock counts there.
    pub(crate) fn counted_in(self, series: Series) -> Self {
        Self { series, ..self }
    }

    /// The names of the lock with that key, if this is the channel of a client for it.
    pub(crate) fn of_client(channel: &str, key: &str) -> Option<Self> {
        let names = Self::new("", key);
        let client = channel.strip_prefix(names.channel())?.strip_prefix(':')?;
        (client.len() == CLIENT).then(|| names.with_own_channel(client))
    }

    /// Whether a client that listens on that channel waits for a lock of that key, of whatever kind.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_heard_on(key: &str, channel: &str) -> bool {
        [CHANNEL, READ_WRITE_CHANNEL].into_iter().any(|kind| {
            let common = Self::on(kind, "", key);
            let client = channel.strip_prefix(common.channel());
            let is_of_one = |rest: &str| rest.starts_with(':') && rest.len() == 1 + CLIENT;
            client.is_some_and(|rest| rest.is_empty() || is_of_one(rest))
        })
    }

    pub(crate) fn key(&self) -> &str {
        let tagged = self.tagged();
        if self.wrapped { &tagged[1..tagged.len() - 1] } else { tagged }
    }

    /// The channel on which this client listens.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// The channel of the lock, which is the same for all clients.
    pub(crate) fn common_channel(&self) -> &str {
        if self.own_channel {
            &self.channel[..self.channel.len() - CLIENT - 1]
        } else {
            &self.channel
        }
    }

    /// Whether Redis keeps the order in which clients wait for the lock: then each listens on a channel of its own.
    pub(crate) fn is_in_order(&self) -> bool {
        self.own_channel
    }

    /// Whether the lock is a read-write lock, with scripts of its own.
    pub(crate) fn is_read_write(&self) -> bool {
        self.read_write
    }

    /// The client whose own channel this is; empty if it is the channel of all.
    pub(crate) fn client(&self) -> &str {
        if self.own_channel { &self.channel[self.channel.len() - CLIENT..] } else { "" }
    }

    /// The key of the counter from which fencing tokens come.
    pub(super) fn token_key(&self) -> String {
        format!("{TOKEN}{}", self.tagged())
    }

    /// The keys of the clients that wait in order: their entries, and until when they count as alive.
    /// The locks `a` and `{a}` have queues of their own.
    pub(super) fn queue_keys(&self) -> [String; 2] {
        self.queue_keys_of(self.read_write)
    }

    /// The queue keys of the read-write lock of that name, or of the fair lock.
    pub(super) fn queue_keys_of(&self, read_write: bool) -> [String; 2] {
        let own = if self.wrapped { "" } else { ":" };
        let keys = match read_write {
            true => [READ_WRITE_QUEUE, READ_WRITE_WAITING],
            false => [QUEUE, WAITING],
        };
        keys.map(|key| format!("{key}{own}{}", self.tagged()))
    }

    /// The key whose TTL is the lease of a reader, one for each of its holds, from 1 on.
    pub(crate) fn marker_key(&self, owner: &str, number: u32) -> String {
        format!("{}:{owner}:rwlock_timeout:{number}", self.tagged())
    }

    /// Refuses a name whose own braces put its key and its channel into two slots of a cluster.
    pub(crate) fn check(&self, router: &Router) -> Result<(), Error> {
        let key = self.key();
        if router.slot_of(key).is_some() && slot::tag(key) != slot::tag(self.channel()) {
            return Err(Error::invalid(format!(
                "the name `{key}` cannot be used in a cluster: its braces are no hash tag, \
                 so that its key and its channel are in different slots"
            )));
        }
        Ok(())
    }

    fn tagged(&self) -> &str {
        let channel = if self.read_write { READ_WRITE_CHANNEL } else { CHANNEL };
        &self.common_channel()[channel.len()..]
    }

    /// What differs between any two locks.
    fn identity(&self) -> (&str, bool, bool, bool) {
        (&self.channel, self.wrapped, self.own_channel, self.read_write)
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.identity() == other.identity()
    }
}

impl Eq for Names {}

impl Hash for Names {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}
