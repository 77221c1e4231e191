//! The kinds of locks: all that differs between them outside their scripts and their handles.
//!
//! A new kind is a variant here, its scripts, its handle and its tests. The rest of the crate asks
//! these questions and never which kind it is.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Redisson's `RLock`.
    Reentrant,
    /// The same, with a fencing token for the first hold of an owner: Redisson's `RFencedLock`.
    Fenced,
}

impl Kind {
    /// Whether a first hold needs a token, which only Redis can give. So a hand-off inside a client
    /// grants the lock when Redis has confirmed it, and not before.
    pub(crate) fn has_token(self) -> bool {
        match self {
            Self::Reentrant => false,
            Self::Fenced => true,
        }
    }
}
