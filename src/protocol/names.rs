//! What the keys and the channel of one lock are called.

use crate::error::Error;
use crate::slot;
use crate::transport::Router;

/// The names under which Redis knows one lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Names {
    /// The key is a part of it: one string instead of two for each lock that is held.
    channel: Box<str>,
    /// Whether braces were put around the key.
    wrapped: bool,
    /// Whether the channel is one client's own: then that client's id is at its end.
    own_channel: bool,
}

const CHANNEL: &str = "redisson_lock__channel:";
const TOKEN: &str = "redisson_lock_token:";
const QUEUE: &str = "redlatch_queue:";
const WAITING: &str = "redlatch_waiting:";

/// The length of a client's id, which is a uuid.
const CLIENT: usize = 36;

impl Names {
    /// Those of a lock for which clients take turns. A name that brings a hash tag of its own stays as it
    /// is; any other becomes the tag, so that all keys of one lock share a cluster slot.
    pub(crate) fn new(prefix: &str, name: &str) -> Self {
        let wrapped = !prefix.contains('{') && !name.contains('{');
        let (open, close) = if wrapped { ("{", "}") } else { ("", "") };
        let channel = format!("{CHANNEL}{open}{prefix}{name}{close}").into();
        Self { channel, wrapped, own_channel: false }
    }

    /// Those of a lock for which Redis keeps the order: its channel is the client's own.
    pub(crate) fn with_own_channel(self, client: &str) -> Self {
        debug_assert!(client.len() == CLIENT && !self.own_channel, "BUG: no id of a client");
        let channel = format!("{}:{client}", self.channel).into();
        Self { channel, own_channel: true, ..self }
    }

    /// Those of the lock with that key, if this is the channel of a client for it.
    pub(crate) fn of_client(channel: &str, key: &str) -> Option<Self> {
        let names = Self::new("", key);
        let client = channel.strip_prefix(names.channel())?.strip_prefix(':')?;
        (client.len() == CLIENT).then(|| names.with_own_channel(client))
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

    /// Whether Redis keeps the order in which clients wait for it: then each listens on a channel of its own.
    pub(crate) fn is_in_order(&self) -> bool {
        self.own_channel
    }

    /// The client whose channel it is; empty if it has none of its own.
    pub(super) fn client(&self) -> &str {
        if self.own_channel { &self.channel[self.channel.len() - CLIENT..] } else { "" }
    }

    /// The key of the counter from which fencing tokens come.
    pub(super) fn token_key(&self) -> String {
        format!("{TOKEN}{}", self.tagged())
    }

    /// The keys of the clients that wait in order: their places, and until when they count as alive.
    /// The locks `a` and `{a}` have queues of their own.
    pub(super) fn queue_keys(&self) -> [String; 2] {
        let own = if self.wrapped { "" } else { ":" };
        [QUEUE, WAITING].map(|key| format!("{key}{own}{}", self.tagged()))
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
        &self.common_channel()[CHANNEL.len()..]
    }
}
