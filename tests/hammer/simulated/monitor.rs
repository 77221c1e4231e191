//! Hears all that the server of a world is asked, and what comes of it.

use redlatch::simulation::Server;

use crate::monitor::asked;
use crate::prelude::*;
use crate::support::proxy::resp::command;
use crate::witness::owner;

#[derive(Clone)]
pub(crate) struct Monitor(Arc<Mutex<State>>);

struct State {
    numbers: HashMap<String, u16>,
    commands: Vec<Command>,
    /// What was in each lock after the last request.
    held: HashMap<u16, Vec<(Owner, u64)>>,
}

impl Monitor {
    pub(crate) fn new(names: Names) -> Self {
        let numbers = names.all().map(|key| (names.name(key), key)).collect();
        Self(Arc::new(Mutex::new(State { numbers, commands: Vec::new(), held: HashMap::new() })))
    }

    /// The server has received those bytes.
    pub(crate) fn hear(&self, server: &Server, bytes: &[u8]) {
        let mut state = lock(&self.0);
        let mut rest = bytes;
        while rest.starts_with(b"*")
            && let Some((words, length)) = command(rest)
        {
            rest = &rest[length..];
            let words = words.into_iter().map(|word| std::str::from_utf8(word).unwrap_or_default());
            let words: Vec<&str> = words.collect();
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
        let mut written = Vec::new();
        for name in keys {
            let Some(&key) = self.numbers.get(*name) else { continue };
            let held = server.hash(0, name.as_bytes()).into_iter().flatten();
            // The mode of a read-write lock is no count.
            let held = held.filter_map(|(id, count)| {
                let [id, count] = [id, count].map(|text| std::str::from_utf8(text).ok());
                let count = count?.parse().ok()?;
                Some((owner(id?), count))
            });
            let before = self.held.entry(key).or_default();
            let held: Vec<(Owner, u64)> = held.collect();
            let new = held.iter().filter(|held| !before.contains(held));
            written.extend(new.map(|(owner, _)| (key, *owner)));
            *before = held;
        }
        for (name, id, what) in asked(keys, args) {
            let Some(&key) = self.numbers.get(name) else { continue };
            let owner = owner(id);
            if owner != Owner::default() {
                let wrote = what == What::Asked && written.contains(&(key, owner));
                let command = Command { t: now(), key, owner, what };
                self.commands.push(command);
                self.commands.extend(wrote.then_some(Command { what: What::Wrote, ..command }));
            }
        }
    }
}
