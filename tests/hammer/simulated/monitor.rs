//! Hears all that the servers of a world are asked, and what comes of it.

use std::collections::HashSet;

use redlatch::simulation::{ClusterNode, Server};

use super::servers::Servers;
use crate::monitor::asked;
use crate::prelude::*;
use crate::support::proxy::resp::command;
use crate::witness::owner;

#[derive(Clone)]
pub(crate) struct Monitor(Arc<Mutex<State>>);

struct State {
    /// With their slots in a cluster.
    numbers: HashMap<String, (u16, Option<u16>)>,
    commands: Vec<Command>,
    /// What was in each lock after the last request.
    held: HashMap<u16, Vec<(Owner, u64)>>,
}

impl Monitor {
    pub(crate) fn new(names: Names, servers: &Servers) -> Self {
        let number = |key| {
            let name = names.name(key);
            let slot = servers.slot_of(&name);
            (name, (key, slot))
        };
        let numbers = names.all().map(number).collect();
        Self(Arc::new(Mutex::new(State { numbers, commands: Vec::new(), held: HashMap::new() })))
    }

    /// The server has received those bytes.
    pub(crate) fn hear(&self, server: &Server, bytes: &[u8]) {
        let mut state = lock(&self.0);
        let (mut rest, mut asking) = (bytes, false);
        // All of them have been carried out by now.
        let mut given_back = HashSet::new();
        while rest.starts_with(b"*")
            && let Some((words, length)) = command(rest)
        {
            rest = &rest[length..];
            let words = words.into_iter().map(|word| std::str::from_utf8(word).unwrap_or_default());
            let words: Vec<&str> = words.collect();
            state.carried_out(server, &words, asking, &mut given_back);
            asking = words == ["ASKING"];
        }
    }

    pub(crate) fn heard(&self) -> Heard {
        Heard { from: 0, to: NEVER, commands: std::mem::take(&mut lock(&self.0).commands) }
    }
}

impl State {
    fn carried_out(
        &mut self,
        server: &Server,
        words: &[&str],
        asking: bool,
        given_back: &mut HashSet<u16>,
    ) {
        let ["EVALSHA", _, keys, rest @ ..] = words else { return };
        let Some((keys, args)) = keys.parse().ok().and_then(|keys| rest.split_at_checked(keys))
        else {
            return;
        };
        let mut written = Vec::new();
        for name in keys {
            let Some(&(key, slot)) = self.numbers.get(*name) else { continue };
            let hash = server.hash(0, name.as_bytes());
            let before = self.held.entry(key).or_default();
            match place(server, slot) {
                Place::Here => {}
                // What is not there is elsewhere, unless it was given back just now.
                Place::Leaving if hash.is_some() || given_back.contains(&key) => {}
                Place::Leaving if !before.is_empty() => {
                    given_back.insert(key);
                }
                Place::Coming if asking => {}
                _ => return,
            }
            let held = hash.into_iter().flatten();
            // The mode of a read-write lock is no count.
            let held = held.filter_map(|(id, count)| {
                let [id, count] = [id, count].map(|text| std::str::from_utf8(text).ok());
                let count = count?.parse().ok()?;
                Some((owner(id?), count))
            });
            let held: Vec<(Owner, u64)> = held.collect();
            let new = held.iter().filter(|held| !before.contains(held));
            written.extend(new.map(|(owner, _)| (key, *owner)));
            *before = held;
        }
        for (name, id, what) in asked(keys, args) {
            let Some(&(key, _)) = self.numbers.get(name) else { continue };
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

/// Where a slot is, for a server.
enum Place {
    Here,
    /// On its way from here.
    Leaving,
    /// On its way to here.
    Coming,
    Elsewhere,
}

fn place(server: &Server, slot: Option<u16>) -> Place {
    if server.is_replica() {
        return Place::Elsewhere;
    }
    let (Some(view), Some(slot)) = (server.view(), slot) else { return Place::Here };
    let has = |node: &&ClusterNode| node.slots.iter().any(|(a, b)| (*a..=*b).contains(&slot));
    let is_here = view.nodes.iter().find(has).is_some_and(|node| node.id == view.me);
    match (view.migrating.contains_key(&slot), view.importing.contains_key(&slot)) {
        (true, _) => Place::Leaving,
        (_, true) => Place::Coming,
        _ if is_here => Place::Here,
        _ => Place::Elsewhere,
    }
}
