//! The values that labels have.

use crate::error::{Error, ErrorKind, Loss};
#[cfg(feature = "metrics")]
use crate::kind::Kind;

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($value:ident $text:literal)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($value),* }

        #[cfg(feature = "metrics")]
        impl $name {
            pub(crate) const TEXTS: &'static [&'static str] = &[$($text),*];

            pub(crate) fn text(self) -> &'static str {
                Self::TEXTS[self as usize]
            }
        }
    };
}

labels! {
    /// What became of a call that acquires.
    Outcome {
        Granted "granted"
        HandedOff "handed_off"
        Busy "busy"
        Cancelled "cancelled"
        Lost "lost"
        Unavailable "unavailable"
        InvalidArgument "invalid_argument"
        NotALock "not_a_lock"
        WouldDeadlock "would_deadlock"
        Closed "closed"
        Server "server"
    }
}

labels! {
    /// How a hold ended.
    End {
        Released "released"
        Dropped "dropped"
        LeaseEnded "lease_ended"
        KeyGone "key_gone"
        TakenOver "taken_over"
        Closed "closed"
    }
}

labels! {
    /// What a request asks of Redis.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "only the feature looks at scripts"))]
    Operation {
        Acquire "acquire"
        Release "release"
        Renew "renew"
        HandOff "handoff"
        Execute "execute"
        Wait "wait"
        Queue "queue"
        Inspect "inspect"
        ForceUnlock "force_unlock"
        Other "other"
    }
}

labels! {
    /// What the client warns of, and its user can change.
    Warning {
        SharedHandle "shared_handle"
        WaitsForItself "waits_for_itself"
        LongWait "long_wait"
        LongHold "long_hold"
    }
}

impl Outcome {
    pub(crate) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Lost => Self::Lost,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::InvalidArgument => Self::InvalidArgument,
            ErrorKind::NotALock => Self::NotALock,
            ErrorKind::WouldDeadlock => Self::WouldDeadlock,
            ErrorKind::Closed => Self::Closed,
            ErrorKind::Server => Self::Server,
        }
    }
}

impl From<Loss> for End {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::LeaseEnded => Self::LeaseEnded,
            Loss::KeyGone => Self::KeyGone,
            Loss::TakenOver => Self::TakenOver,
            Loss::Closed => Self::Closed,
        }
    }
}

/// What the kinds are called.
#[cfg(feature = "metrics")]
pub(super) const KIND_TEXTS: [&str; KINDS] = [
    "lock",
    "fenced",
    "fair",
    "fenced_fair",
    "read",
    "write",
    "fenced_read",
    "fenced_write",
    "multi",
];

/// How many kinds there are, with several locks at once as one.
#[cfg(feature = "metrics")]
pub(super) const KINDS: usize = 9;

/// The number of a kind, and what it is called. `None` is several locks at once.
#[cfg(feature = "metrics")]
pub(super) fn kind(kind: Option<Kind>) -> (usize, &'static str) {
    let at = match kind {
        Some(Kind::Reentrant) => 0,
        Some(Kind::Fenced) => 1,
        Some(Kind::Fair) => 2,
        Some(Kind::FencedFair) => 3,
        Some(Kind::Read) => 4,
        Some(Kind::Write) => 5,
        Some(Kind::FencedRead) => 6,
        Some(Kind::FencedWrite) => 7,
        None => 8,
    };
    (at, KIND_TEXTS[at])
}
