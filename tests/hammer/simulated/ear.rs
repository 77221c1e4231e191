//! Hears all that the server of a world is asked, and what comes of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use redlatch::simulation::Server;

use super::ground::lock;
use crate::ear::asked;
use crate::history::{Command, Heard, NEVER, Owner};
use crate::names::Names;
use crate::record::now;
use crate::witness::owner;

#[derive(Clone)]
pub(crate) struct Ear(Arc<Mutex<State>>);

struct State {
    numbers: HashMap<String, u16>,
    commands: Vec<Command>,
    /// What was in each lock after the last request.
    held: HashMap<u16, (Owner, u64)>,
}

impl Ear {
    pub(crate) fn new(names: Names) -> Self {
        let numbers = names.all().map(|key| (names.name(key), key)).collect();
        Self(Arc::new(Mutex::new(State { numbers, commands: Vec::new(), held: HashMap::new() })))
    }

    /// The server has received those bytes.
    pub(crate) fn hear(&self, server: &Server, bytes: &[u8]) {
        let mut state = lock(&self.0);
        let mut rest = bytes;
        while let Some((words, behind)) = words(rest) {
            rest = behind;
            state.carried_out(server, &words);
        }
    }

    pub(crate) fn heard(&self) -> Heard {
        Heard { from: 0, to: NEVER, commands: std::mem::take(&mut lock(&self.0).commands) }
    }
}

impl State {
    fn carried_out(&mut self, server: &Server, words: &[&str]) {
        let ["EVALSHA", _, keys, rest @ ..] = words else { return };
        let Some((keys, args)) = keys.parse().ok().and_then(|keys| rest.split_at_checked(keys))
        else {
            return;
        };
        for (name, id) in asked(keys, args) {
            let Some(&key) = self.numbers.get(name) else { continue };
            let (t, owner) = (now(), owner(id));
            if owner == Owner::default() {
                continue;
            }
            let command = Command { t, key, owner, wrote: false };
            self.commands.push(command);
            let count = server.hash(0, name.as_bytes()).and_then(|hash| hash.get(id.as_bytes()));
            let count = count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
            let held = count.map(|count| (owner, count));
            let before = match held {
                Some(held) => self.held.insert(key, held),
                None => self.held.remove(&key),
            };
            if held.is_some() && held != before {
                self.commands.push(Command { wrote: true, ..command });
            }
        }
    }
}

/// The words of the first request, and what is behind it.
fn words(bytes: &[u8]) -> Option<(Vec<&str>, &[u8])> {
    let (count, mut rest) = number(bytes, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, behind) = number(rest, b'$')?;
        words.push(std::str::from_utf8(behind.get(..length)?).unwrap_or_default());
        rest = behind.get(length + 2..)?;
    }
    Some((words, rest))
}

fn number(bytes: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    let line = bytes.strip_prefix(&[mark])?;
    let end = line.iter().position(|byte| *byte == b'\r')?;
    Some((std::str::from_utf8(&line[..end]).ok()?.parse().ok()?, &line[end + 2..]))
}
