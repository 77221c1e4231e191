//! The kinds of locks: all that differs between them outside their scripts and their handles.
//!
//! A new kind is a variant here, its scripts, its handle and its tests. The rest of the crate asks
//! these questions and never which kind it is.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Redisson's `RLock`.
    Reentrant,
    /// The same, with a fencing token for the first hold of a handle: Redisson's `RFencedLock`.
    Fenced,
    /// First come, first served over all clients. The lock is that of an `RLock`, the queue is our
    /// own.
    Fair,
    /// The same, with a fencing token.
    FencedFair,
}

impl Kind {
    /// Whether a first hold needs a token, which only Redis can give. The client draws several at once, for
    /// the holders to which it hands the lock on; where none is left, it releases the lock instead.
    pub(crate) fn has_token(self) -> bool {
        match self {
            Self::Reentrant | Self::Fair => false,
            Self::Fenced | Self::FencedFair => true,
        }
    }

    /// Whether Redis keeps the order in which clients wait. Then each client listens on a channel of
    /// its own, on which it is told of its turn, and never defers to others.
    pub(crate) fn has_queue(self) -> bool {
        match self {
            Self::Reentrant | Self::Fenced => false,
            Self::Fair | Self::FencedFair => true,
        }
    }
}
