//! The id under which Redis knows a possession.

use std::fmt;
use std::io::Write;
use std::ops::Deref;

use crate::kind::Kind;
use crate::protocol::WRITER;

use super::Possession;

/// The longest name of an owner: a UUID, a colon, the longest number, and what the writer of a read-write lock has
/// behind that.
const MAX_LENGTH: usize = 36 + 1 + 20 + WRITER.len();

/// `<uuid of the client>:<number>`, without memory of its own: there is one for each acquire.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    text: [u8; MAX_LENGTH],
    length: u8,
}

impl Id {
    pub(super) fn new(client: uuid::Uuid, number: u64) -> Self {
        Self::of(client, number, Kind::Reentrant)
    }

    pub(super) fn of(client: uuid::Uuid, number: u64, kind: Kind) -> Self {
        let mut text = [0; MAX_LENGTH];
        client.as_hyphenated().encode_lower(&mut text);
        let mut rest = &mut text[uuid::fmt::Hyphenated::LENGTH..];
        let writer = if kind.writes() { WRITER } else { "" };
        write!(rest, ":{number}{writer}").expect("BUG: a number of more than 20 digits");
        let length = MAX_LENGTH - rest.len();
        Self { text, length: length as u8 }
    }
}

/// An id as it is without what a writer has at its end.
pub(super) fn without_writer(id: &str) -> &str {
    id.strip_suffix(WRITER).unwrap_or(id)
}

impl Possession {
    /// Whether the possession is that of the writer of a read-write lock.
    pub(crate) fn writes(&self) -> bool {
        self.id.ends_with(WRITER)
    }

    /// The key, and the field of its hash.
    pub(crate) fn key_and_id(&self) -> (&str, &str) {
        (self.names.key(), &self.id)
    }
}

/// What Redis has named, which is one of these.
impl From<&str> for Id {
    fn from(id: &str) -> Self {
        let mut text = [0; MAX_LENGTH];
        let length = id.len().min(MAX_LENGTH);
        text[..length].copy_from_slice(&id.as_bytes()[..length]);
        Self { text, length: length as u8 }
    }
}

impl Deref for Id {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}
