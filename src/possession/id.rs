//! The id under which Redis knows a possession.

use std::fmt;
use std::io::Write;
use std::ops::Deref;

use crate::protocol::WRITER;

use super::Possession;

/// The longest name of an owner: a UUID, a colon, the longest number, and what the writer of a read-write lock has
/// behind that.
const MAX_LENGTH: usize = 36 + 1 + 20 + WRITER.len();

/// `<uuid of the client>:<number>`, without memory of its own: it is made for each request that names it.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    text: [u8; MAX_LENGTH],
    length: u8,
}

impl Id {
    /// The id of a handle or of a possession. What Redis has made has a negative number.
    pub(super) fn new(client: uuid::Uuid, number: u64, writes: bool) -> Self {
        let mut text = [0; MAX_LENGTH];
        client.as_hyphenated().encode_lower(&mut text);
        let mut rest = &mut text[uuid::fmt::Hyphenated::LENGTH..];
        let (number, writer) = (number.cast_signed(), if writes { WRITER } else { "" });
        write!(rest, ":{number}{writer}").expect("BUG: a number of more than 20 characters");
        let length = MAX_LENGTH - rest.len();
        Self { text, length: length as u8 }
    }

    /// The number in an id of that client, and whether it is that of a writer. Those that Redis has made are negative,
    /// and have the numbers here that no possession is given.
    pub(super) fn parse(client: uuid::Uuid, id: &str) -> Option<(u64, bool)> {
        let mut text = uuid::Uuid::encode_buffer();
        let number = id.strip_prefix(&*client.as_hyphenated().encode_lower(&mut text))?;
        let number = number.strip_prefix(':')?;
        let (number, writes) = match number.strip_suffix(WRITER) {
            Some(number) => (number, true),
            None => (number, false),
        };
        let number: i64 = number.parse().ok()?;
        Some((number.cast_unsigned(), writes))
    }
}

impl Possession {
    /// The field in the hash.
    pub(crate) fn id(&self) -> Id {
        Id::new(self.registry.id(), self.number, self.writes)
    }

    /// The same, for those who borrow it.
    pub(crate) fn owner(&self) -> &str {
        &self.seldom().id
    }

    /// Whether the possession is that of the writer of a read-write lock.
    pub(crate) fn writes(&self) -> bool {
        self.writes
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
