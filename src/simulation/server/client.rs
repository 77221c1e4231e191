//! A client as its server knows it: pure.

use std::collections::BTreeSet;

use super::data::Bytes;

/// Which answers a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Wants {
    #[default]
    All,
    None,
    /// Not the next one.
    SkipsNext,
    /// Not this one.
    SkipsThis,
}

/// Why the input of a client has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Blocked {
    /// Until so many replicas have this offset, or until that time.
    Wait { replicas: i64, offset: u64, until: Option<i64> },
    /// Clients are paused.
    Paused,
}

/// A transaction that is being queued.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) requests: Vec<Vec<Bytes>>,
    /// A command was refused: there will be no `EXEC`.
    pub(super) is_broken: bool,
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
    pub(super) queue: Option<Queue>,
    /// How many commands the transaction has that is carried out.
    pub(super) executing: Option<usize>,
    /// It has begun a transaction, or something that belongs to one.
    pub(super) has_begun: bool,
    /// Keys whose change ends the transaction, with the databases that they are in.
    pub(super) watched: BTreeSet<(usize, Bytes)>,
    /// One of them has changed.
    pub(super) is_dirty: bool,
    pub(super) channels: BTreeSet<Bytes>,
    pub(super) patterns: BTreeSet<Bytes>,
    pub(super) sharded: BTreeSet<Bytes>,
    pub(super) wants: Wants,
    pub(super) no_evict: bool,
    pub(super) tracking: bool,
    /// May read from a replica of the cluster.
    pub(super) reads_only: bool,
    /// The next command may be about a slot that is coming in.
    pub(super) is_asking: bool,
    /// The command at work may.
    pub(super) was_asking: bool,
    pub(super) blocked: Option<Blocked>,
    pub(super) is_closing: bool,
    /// When it came, and when its last request came, in milliseconds.
    pub(super) since: i64,
    pub(super) active: i64,
    pub(super) last_command: &'static str,
    /// Up to where what was written for it goes in the stream of replication.
    pub(super) offset: u64,
}

impl Client {
    pub(super) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether it may only listen, in the older version of the protocol.
    pub(super) fn listens(&self) -> bool {
        !self.resp3 && self.subscriptions() + self.sharded.len() > 0
    }
}
