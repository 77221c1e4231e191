//! A read-write lock and its queue, so simple that they are hardly wrong.

use super::*;

/// A lock so simple that it is hardly wrong.
#[derive(Default)]
pub(super) struct Model {
    /// The owners, with their counts: readers, or one writer.
    pub(super) owners: BTreeMap<String, u32>,
    /// Readers whose markers have ended.
    pub(super) dead: Vec<String>,
    /// The clients that wait, first come first.
    pub(super) queue: Vec<(usize, Came)>,
}

impl Model {
    pub(super) fn mode(&self) -> Option<&'static str> {
        let (owner, _) = self.owners.first_key_value()?;
        Some(if owner.ends_with(":write") { "write" } else { "read" })
    }

    pub(super) fn enter(&mut self, client: usize, came: Option<Came>, ticket: u64) {
        let known = self.queue.iter().position(|(one, _)| *one == client);
        let ticket = came.map_or(ticket, |came| came.ticket);
        if known.is_some_and(|at| ticket < self.queue[at].1.ticket) {
            return;
        }
        if let Some(at) = known {
            self.queue.remove(at);
        }
        self.queue.extend(came.map(|came| (client, came)));
        self.queue.sort_by_key(|(_, came)| came.at);
    }

    pub(super) fn ask(&mut self, ask: &Ask) -> Reply {
        let has = self.owners.contains_key(&ask.owner);
        if ask.count > 1 && !has {
            return if self.owners.is_empty() { Reply::Gone } else { Reply::Taken };
        }
        if ask.count > 1 && !ask.in_turn {
            self.owners.insert(ask.owner.clone(), if ask.writes { ask.count } else { 1 });
            return Reply::Granted;
        }
        if has && !ask.in_turn {
            if let Some(came) = ask.came {
                self.enter(ask.client, None, came.ticket);
            }
            return Reply::Granted;
        }
        if ask.came.is_some() {
            self.enter(ask.client, ask.came, 0);
        }
        if ask.writes && self.mode() == Some("read") {
            let dead = std::mem::take(&mut self.dead);
            self.owners.retain(|owner, _| !dead.contains(owner));
        }
        let fits = match self.mode() {
            None => true,
            Some(mode) => mode == "read" && !ask.writes,
        };
        let is_next = match self.queue.first() {
            None => true,
            Some((first, _)) => ask.came.is_some() && *first == ask.client,
        };
        if !fits || !is_next {
            return Reply::Refused;
        }
        if ask.came.is_some() {
            self.queue.retain(|(client, _)| *client != ask.client);
        }
        self.owners.insert(ask.owner.clone(), 1);
        Reply::Granted
    }

    pub(super) fn release(&mut self, owner: &str, says: &Says) -> Value {
        let was = self.mode();
        if self.owners.remove(owner).is_none() {
            return said(if was.is_some() { Loss::TakenOver } else { Loss::KeyGone });
        }
        self.dead.retain(|dead| dead != owner);
        if says.came.is_some() || !self.queue.is_empty() {
            self.enter(says.client, says.came, says.ticket);
        }
        Value::Int(0)
    }

    pub(super) fn hash(&self) -> BTreeMap<String, String> {
        let mode = self.mode().map(|mode| ("mode".to_owned(), mode.to_owned()));
        self.owners
            .iter()
            .map(|(owner, count)| (owner.clone(), count.to_string()))
            .chain(mode)
            .collect()
    }
}
