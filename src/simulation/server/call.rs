//! What a command does, and what it works with when it is called.

use super::command::{Command, Keys};
use super::core::Core;
use super::data::{Bytes, Entry, Kind, Value};
use super::number;
use super::reply::{Answer, Failure, NOT_A_FLOAT, NOT_AN_INTEGER, Reply, SYNTAX, printed};
use super::settings::Version;

/// Words, two by two.
type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

/// A row of the table, and what it does.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) command: Command,
    pub(super) run: fn(&mut Call<'_>) -> Answer,
}

pub(super) const fn command(
    name: &'static str,
    arity: i32,
    flags: u32,
    keys: Keys,
    run: fn(&mut Call<'_>) -> Answer,
) -> Row {
    Row { command: Command { name, arity, flags, keys, index: 0 }, run }
}

/// A call of a command.
pub(super) struct Call<'a> {
    pub(super) core: &'a mut Core,
    pub(super) command: &'static Command,
    /// The words, of which the first is the name.
    pub(super) args: &'a [&'a [u8]],
    pub(super) client: u64,
    pub(super) db: usize,
    /// Which version of the protocol the answer is in.
    pub(super) resp3: bool,
}

impl<'a> Call<'a> {
    pub(super) fn many(&self) -> usize {
        self.args.len()
    }

    pub(super) fn arg(&self, at: usize) -> &'a [u8] {
        self.args[at]
    }

    /// The word in lower case.
    pub(super) fn option(&self, at: usize) -> String {
        printed(self.args[at]).to_ascii_lowercase()
    }

    pub(super) fn text(&self, at: usize) -> String {
        printed(self.args[at])
    }

    pub(super) fn int(&self, at: usize) -> Result<i64, Failure> {
        number::integer(self.args.get(at).ok_or(SYNTAX)?).ok_or(NOT_AN_INTEGER)
    }

    /// A number that is not negative.
    pub(super) fn count(&self, at: usize) -> Result<usize, Failure> {
        let count = self.int(at).ok().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| "ERR value is out of range, must be positive".into())
    }

    /// A number whose negative is one, too.
    pub(super) fn signed_count(&self, at: usize) -> Result<i64, Failure> {
        match self.int(at)? {
            i64::MIN => Err("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807".into()),
            count => Ok(count),
        }
    }

    pub(super) fn float(&self, at: usize) -> Result<f64, Failure> {
        number::float(self.args.get(at).ok_or(SYNTAX)?).ok_or(NOT_A_FLOAT)
    }

    pub(super) fn version(&self) -> Version {
        self.core.version()
    }

    /// The value at the key, if it is one of that kind.
    pub(super) fn get<K: Kind>(&mut self, at: usize) -> Result<Option<&K>, Failure> {
        let args = self.args;
        self.core.get(self.db, args[at])
    }

    /// The value at the key, if it is one of that kind, to change it.
    pub(super) fn get_mut<K: Kind>(&mut self, at: usize) -> Result<Option<&mut K>, Failure> {
        let args = self.args;
        self.core.get_mut(self.db, args[at])
    }

    /// The value at the key, of that kind, which is made if there is none. It may not stay empty.
    pub(super) fn make<K: Kind>(&mut self, at: usize) -> Result<&mut K, Failure> {
        let args = self.args;
        self.core.make(self.db, args[at])
    }

    pub(super) fn entry(&mut self, at: usize) -> Option<&mut Entry> {
        let args = self.args;
        self.core.entry(self.db, args[at])
    }

    /// Sets the key, without an end.
    pub(super) fn set(&mut self, at: usize, value: Value) {
        let args = self.args;
        self.core.set(self.db, args[at], Entry { value, expires: None });
    }

    /// The value at the key has changed.
    pub(super) fn changed(&mut self, at: usize) {
        let args = self.args;
        self.core.changed(self.db, args[at]);
    }

    pub(super) fn remove(&mut self, at: usize) -> bool {
        let args = self.args;
        self.core.remove(self.db, args[at])
    }

    /// The words from there on, in pairs.
    pub(super) fn pairs(&self, from: usize) -> Result<Pairs<'a>, Failure> {
        let rest = &self.args[from..];
        if rest.is_empty() || !rest.len().is_multiple_of(2) {
            // Redis 6.2 says it in other words here, and calls MSETNX so, too.
            return Err(match self.command.name {
                "mset" | "msetnx" if self.version() == Version::Redis62 => {
                    "ERR wrong number of arguments for MSET".into()
                }
                _ => self.wrong_arity(),
            });
        }
        Ok(rest.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    pub(super) fn wrong_arity(&self) -> Failure {
        wrong_arity(self.command.name, self.version())
    }

    /// For a subcommand that has words which it does not take.
    pub(super) fn wrong_subcommand(&self) -> Failure {
        let container = self.text(0).to_ascii_uppercase();
        let unknown = if self.version() == Version::Redis62 { "Unknown" } else { "unknown" };
        let name = self.text(1);
        Failure::from(format!(
            "ERR {unknown} subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
        ))
    }

    pub(super) fn owned(&self, from: usize) -> Vec<Bytes> {
        self.args[from..].iter().map(|arg| arg.to_vec()).collect()
    }
}

pub(super) fn wrong_arity(name: &str, version: Version) -> Failure {
    let name = match name.split_once('|') {
        Some((container, _)) if version == Version::Redis62 => container,
        _ => name,
    };
    Failure::from(format!("ERR wrong number of arguments for '{name}' command"))
}

/// What Redis 6.2 says of a subcommand that it does not know.
pub(super) fn no_subcommand(call: &mut Call<'_>) -> Answer {
    Err(match (call.command.name, call.many()) {
        (_, 1) => call.wrong_arity(),
        ("client", _) if call.option(1) == "kill" => SYNTAX,
        _ => call.wrong_subcommand(),
    })
}

pub(super) fn found(yes: bool) -> Answer {
    Ok(Reply::Int(i64::from(yes)))
}
