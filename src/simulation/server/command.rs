//! The rows of the table of commands, without what they do: pure.

use super::number;
use super::settings::Version;

/// Where the keys of a command are among its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    /// From the first to the last, which is counted from the end if negative, every so many words.
    At(usize, i32, usize),
    /// As many as that word says, from the next one on.
    Counted(usize),
    /// Channels that are in slots, from the first word to the end.
    Channels,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    /// In lower case; with a bar in front of a subcommand.
    pub(super) name: &'static str,
    /// The number of words, the command's name included; the least number if negative.
    pub(super) arity: i32,
    pub(super) flags: u32,
    pub(super) keys: Keys,
    /// The position of the command in the table.
    pub(super) index: usize,
}

pub(super) const READ: u32 = 1;
pub(super) const WRITE: u32 = 2;
/// May need memory.
pub(super) const GROWS: u32 = 4;
/// Not in scripts.
pub(super) const NO_SCRIPT: u32 = 8;
/// While data is loaded, too.
pub(super) const LOADING: u32 = 16;
/// On a replica that has lost its primary, too.
pub(super) const STALE: u32 = 32;
pub(super) const NO_AUTH: u32 = 64;
/// While a script runs for too long, too.
pub(super) const BUSY: u32 = 128;
/// Has subcommands; alone it is no command.
pub(super) const CONTAINER: u32 = 256;

pub(super) const NO_KEYS: Keys = Keys::None;
/// The first word behind the name is the one key.
pub(super) const KEY: Keys = Keys::At(1, 1, 1);
/// All words behind the name are keys.
pub(super) const ALL_KEYS: Keys = Keys::At(1, -1, 1);
pub(super) const TWO_KEYS: Keys = Keys::At(1, 2, 1);

/// Commands that came with a later version than the first.
const NEWER: [(&str, Version); 7] = [
    ("ssubscribe", Version::Redis70),
    ("sunsubscribe", Version::Redis70),
    ("spublish", Version::Redis70),
    ("pubsub|shardnumsub", Version::Redis70),
    ("expiretime", Version::Redis70),
    ("pexpiretime", Version::Redis70),
    ("client|setinfo", Version::Redis80),
];

/// Commands that had another number of words, up to that version.
const OLD_ARITIES: [(&str, Version, i32); 8] = [
    ("zrank", Version::Redis70, 3),
    ("zrevrank", Version::Redis70, 3),
    ("expire", Version::Redis62, 3),
    ("pexpire", Version::Redis62, 3),
    ("expireat", Version::Redis62, 3),
    ("pexpireat", Version::Redis62, 3),
    ("config|get", Version::Redis62, 3),
    ("config|set", Version::Redis62, 4),
];

impl Command {
    pub(super) fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether a client that is not known may ask for it, and any user.
    pub(super) fn is_open(&self, version: Version) -> bool {
        match version {
            Version::Redis62 => ["auth", "hello", "quit"].contains(&self.name),
            _ => self.is(NO_AUTH),
        }
    }

    /// Whether that version has it.
    pub(super) fn is_in(&self, version: Version) -> bool {
        NEWER.iter().all(|(name, since)| *name != self.name || version >= *since)
    }

    /// Whether the command may have that many words.
    pub(super) fn fits(&self, words: usize, version: Version) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        let old =
            OLD_ARITIES.iter().find(|(name, until, _)| *name == self.name && version <= *until);
        let arity = old.map_or(self.arity, |(.., arity)| *arity);
        if arity < 0 { words >= -arity } else { words == arity }
    }

    /// The keys among the words.
    pub(super) fn keys_of<'a>(&self, words: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let many = words.len();
        let (first, last, step) = match self.keys {
            Keys::None => return Vec::new(),
            Keys::Channels => (1, many - 1, 1),
            Keys::At(first, last, step) if last < 0 => {
                (first, many.saturating_sub(last.unsigned_abs() as usize), step)
            }
            Keys::At(first, last, step) => (first, last as usize, step),
            Keys::Counted(at) => {
                let count = words.get(at).map_or(0, |word| number::leading(word));
                let count = usize::try_from(count).unwrap_or(0);
                (at + 1, if at + count < many { at + count } else { 0 }, 1)
            }
        };
        let keys = words.get(first..=last.min(many - 1)).unwrap_or_default();
        keys.iter().step_by(step).copied().collect()
    }
}
