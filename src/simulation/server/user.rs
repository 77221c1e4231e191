//! What a user may do: pure.

use std::collections::BTreeSet;

use super::command::{CONTAINER, Command, READ, WRITE};
use super::data::Bytes;
use super::glob;
use super::settings::Version;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) is_on: bool,
    pub(super) needs_no_password: bool,
    pub(super) passwords: BTreeSet<String>,
    /// May do everything with everything: nothing has to be looked up.
    is_free: bool,
    commands: BTreeSet<&'static str>,
    /// Patterns, and whether keys that match them may be read and written.
    keys: Vec<(Bytes, bool, bool)>,
    pub(super) channels: Vec<Bytes>,
}

/// What is not permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    Command,
    Key,
    Channel,
}

impl User {
    /// A user that may do nothing.
    pub(super) fn new(all_channels: bool) -> Self {
        Self {
            is_on: false,
            needs_no_password: false,
            passwords: BTreeSet::new(),
            is_free: false,
            commands: BTreeSet::new(),
            keys: Vec::new(),
            channels: if all_channels { vec![b"*".to_vec()] } else { Vec::new() },
        }
    }

    /// Applies a rule of `ACL SETUSER`. The error is the reason why it is none.
    pub(super) fn apply(
        &mut self,
        rule: &[u8],
        table: &'static [Command],
        version: Version,
    ) -> Result<(), &'static str> {
        let text = String::from_utf8_lossy(rule).into_owned();
        match text.to_ascii_lowercase().as_str() {
            "" => {}
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            "resetpass" => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            "allkeys" | "~*" => self.keys = vec![(b"*".to_vec(), true, true)],
            "resetkeys" => self.keys.clear(),
            "allchannels" | "&*" => self.channels = vec![b"*".to_vec()],
            "resetchannels" => self.channels.clear(),
            "allcommands" => self.commands("+@all", table, version)?,
            "nocommands" => self.commands("-@all", table, version)?,
            "reset" => *self = Self::new(version == Version::Redis62),
            _ if rule.starts_with(b"+") || rule.starts_with(b"-") => {
                self.commands(&text, table, version)?;
            }
            _ => self.apply_sign(rule, version)?,
        }
        let has = |pattern: &[u8]| pattern == b"*";
        self.is_free =
            table.iter().all(|one| one.is(CONTAINER) || self.commands.contains(one.name))
                && self.keys.iter().any(|(pattern, read, write)| has(pattern) && *read && *write)
                && self.channels.iter().any(|channel| has(channel));
        Ok(())
    }

    /// A rule that is a sign, and what to add or to remove behind it.
    fn apply_sign(&mut self, rule: &[u8], version: Version) -> Result<(), &'static str> {
        const WORDS: &str = "Syntax error";
        let (sign, rest) = rule.split_first().ok_or(WORDS)?;
        match sign {
            b'>' => {
                self.passwords.insert(String::from_utf8_lossy(rest).into_owned());
                self.needs_no_password = false;
            }
            b'<' => {
                if !self.passwords.remove(&*String::from_utf8_lossy(rest)) {
                    return Err(
                        "The password you are trying to remove from the user does not exist",
                    );
                }
            }
            b'~' => self.key(rest, true, true)?,
            b'%' if version > Version::Redis62 => {
                let at = rest.iter().position(|byte| *byte == b'~').ok_or(WORDS)?;
                let may = |letter: u8| rest[..at].to_ascii_uppercase().contains(&letter);
                if !may(b'R') && !may(b'W') {
                    return Err(WORDS);
                }
                self.key(&rest[at + 1..], may(b'R'), may(b'W'))?;
            }
            b'&' => {
                if self.channels.iter().any(|channel| channel == b"*") {
                    return Err(
                        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels",
                    );
                }
                self.channels.push(rest.to_vec());
            }
            _ => return Err(WORDS),
        }
        Ok(())
    }

    fn key(&mut self, pattern: &[u8], read: bool, write: bool) -> Result<(), &'static str> {
        if self.keys.iter().any(|(all, read, write)| all == b"*" && *read && *write) {
            return Err(
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns",
            );
        }
        self.keys.retain(|(other, ..)| other != pattern);
        self.keys.push((pattern.to_vec(), read, write));
        Ok(())
    }

    fn commands(
        &mut self,
        rule: &str,
        table: &'static [Command],
        version: Version,
    ) -> Result<(), &'static str> {
        const UNKNOWN: &str = "Unknown command or category name in ACL";
        let rule = rule.to_ascii_lowercase();
        let (adds, name) = (rule.starts_with('+'), &rule[1..]);
        if version == Version::Redis62
            && let Some((container, _)) = name.split_once('|')
            && (!adds || !table.iter().any(|one| one.name == container))
        {
            return Err(UNKNOWN);
        }
        let below = format!("{name}|");
        let is_meant = |one: &&Command| match name {
            "@all" => true,
            "@read" => one.is(READ),
            "@write" => one.is(WRITE),
            _ => one.name == name || one.name.starts_with(&below),
        };
        let names: Vec<&'static str> = table.iter().filter(is_meant).map(|one| one.name).collect();
        if names.is_empty() {
            return Err(UNKNOWN);
        }
        for name in names {
            if adds {
                self.commands.insert(name)
            } else {
                self.commands.remove(name)
            };
        }
        Ok(())
    }

    /// Whether the user may have the command carried out.
    pub(super) fn may(
        &self,
        command: &Command,
        args: &[&[u8]],
        version: Version,
    ) -> Result<(), Denied> {
        if self.is_free {
            return Ok(());
        }
        if !self.commands.contains(command.name) && !command.is_open(version) {
            return Err(Denied::Command);
        }
        let all = command.flags & (READ | WRITE) == 0;
        let (reads, writes) = (all || command.is(READ), all || command.is(WRITE));
        let fits = |key: &[u8]| {
            self.keys.iter().any(|(pattern, read, write)| {
                (*read || !reads) && (*write || !writes) && glob::matches(pattern, key)
            })
        };
        let channels: &[&[u8]] = match command.name {
            "publish" | "spublish" => &args[1..2],
            "subscribe" | "ssubscribe" => &args[1..],
            "sunsubscribe" => &[],
            _ => {
                let allowed = command.keys_of(args).into_iter().all(fits);
                return if allowed { Ok(()) } else { Err(Denied::Key) };
            }
        };
        let heard = channels.iter().all(|channel| self.hears(channel));
        if heard { Ok(()) } else { Err(Denied::Channel) }
    }

    /// Whether the user may listen to a channel, and publish there.
    pub(super) fn hears(&self, channel: &[u8]) -> bool {
        self.channels.iter().any(|pattern| glob::matches(pattern, channel))
    }
}
