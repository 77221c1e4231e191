//! A client as its server knows it: pure.

use std::collections::BTreeSet;

use super::data::Bytes;

/// A `WAIT`, until so many replicas have this offset, or until that time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) replicas: i64,
    pub(super) offset: u64,
    pub(super) until: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Client {
    /// As `CLIENT ID` says.
    pub(super) id: u64,
    pub(super) address: String,
    pub(super) name: Bytes,
    pub(super) library: Bytes,
    pub(super) library_version: Bytes,
    pub(super) user: String,
    pub(super) is_known: bool,
    pub(super) resp3: bool,
    pub(super) db: usize,
    /// What has arrived and was not executed.
    pub(super) input: Vec<u8>,
    pub(super) channels: BTreeSet<Bytes>,
    pub(super) sharded: BTreeSet<Bytes>,
    /// The next command may be about a slot that is coming in.
    pub(super) is_asking: bool,
    /// The command at work may.
    pub(super) was_asking: bool,
    pub(super) waits: Option<Wait>,
    /// The client's next request waits until clients go on that are paused.
    pub(super) is_paused: bool,
    pub(super) is_closing: bool,
    /// When it came, and when its last request came, in milliseconds.
    pub(super) since: i64,
    pub(super) active: i64,
    pub(super) last_command: &'static str,
    /// Up to where what was written for it goes in the stream of replication.
    pub(super) offset: u64,
}

impl Client {
    /// Whether messages come to it.
    pub(super) fn hears(&self) -> bool {
        !self.channels.is_empty() || !self.sharded.is_empty()
    }

    /// Whether the client may only listen, in the older version of the protocol.
    pub(super) fn listens(&self) -> bool {
        !self.resp3 && self.hears()
    }
}
