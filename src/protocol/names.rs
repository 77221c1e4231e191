//! What the keys and the channel of one lock are called.

use crate::error::Error;
use crate::slot;
use crate::transport::Router;

/// The names under which Redis knows one lock.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The key is a part of it: one string instead of two for each lock that is held.
    channel: Box<str>,
    /// Whether braces were put around the key.
    wrapped: bool,
}

const CHANNEL: &str = "redisson_lock__channel:";
const TOKEN: &str = "redisson_lock_token:";

impl Names {
    /// A name that brings a hash tag of its own stays as it is; any other becomes the tag, so
    /// that all keys of one lock share a cluster slot.
    pub(crate) fn new(prefix: &str, name: &str) -> Self {
        let wrapped = !prefix.contains('{') && !name.contains('{');
        let (open, close) = if wrapped { ("{", "}") } else { ("", "") };
        let channel = format!("{CHANNEL}{open}{prefix}{name}{close}").into();
        Self { channel, wrapped }
    }

    pub(crate) fn key(&self) -> &str {
        let tagged = self.tagged();
        if self.wrapped { &tagged[1..tagged.len() - 1] } else { tagged }
    }

    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// The key of the counter from which fencing tokens come.
    pub(super) fn token_key(&self) -> String {
        format!("{TOKEN}{}", self.tagged())
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
        &self.channel[CHANNEL.len()..]
    }
}
