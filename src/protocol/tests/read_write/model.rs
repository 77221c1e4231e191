//! A read-write lock and its queue, so simple that they are hardly wrong.

use super::*;

/// A reader that leaves looks at so many others at most.
const LOOKED_AT: usize = 4;

/// A lock so simple that it is hardly wrong.
#[derive(Default)]
pub(super) struct Model {
    /// The owners, with their counts: readers, or one writer, which may have one reader beside it.
    pub(super) owners: BTreeMap<String, u32>,
    /// Readers whose markers have ended.
    pub(super) dead: Vec<String>,
    /// The clients that wait, first come first.
    pub(super) queue: Vec<(usize, Came)>,
    /// The last token that a writer drew, unless a writer gave it back.
    pub(super) last: Option<u64>,
}

impl Model {
    pub(super) fn mode(&self) -> Option<&'static str> {
        let writes = self.owners.keys().any(|owner| owner.ends_with(":write"));
        (!self.owners.is_empty()).then_some(if writes { "write" } else { "read" })
    }

    pub(super) fn enter(&mut self, client: usize, came: Option<Came>, ticket: u64) {
        let known = self.queue.iter().position(|(one, _)| *one == client);
        let ticket = came.map_or(ticket, |came| came.ticket);
        if known.is_some_and(|at| ticket < self.queue[at].1.ticket) {
            return;
        }
        let before = known.map(|at| self.queue.remove(at).1);
        let before = before.filter(|before| before.ticket == ticket).and_then(|one| one.writer);
        self.queue.extend(came.map(|came| {
            let writer = came.writer.map(|writer| writer.min(before.unwrap_or(writer)));
            (client, Came { writer, ..came })
        }));
        self.queue.sort_by_key(|(_, came)| came.at);
    }

    pub(super) fn ask(&mut self, ask: &Ask) -> Reply {
        let has = self.owners.contains_key(&ask.owner);
        let stands = ask.beside.as_ref().is_some_and(|other| self.owners.contains_key(other));
        if !has && (ask.count > 1 || ask.beside.is_some() && !stands) {
            return if self.owners.is_empty() { Reply::Gone } else { Reply::Taken };
        }
        if ask.writes && self.mode() == Some("read") {
            let is_out = |owner: &String| ask.beside.as_ref() != Some(owner);
            let out: Vec<_> = self.dead.extract_if(.., |owner| is_out(owner)).collect();
            self.owners.retain(|owner, _| !out.contains(owner));
        }
        let (fits, joins) = match self.mode() {
            None => (true, false),
            Some("read") if ask.writes => (false, stands && self.owners.len() == 1),
            Some("read") => (true, false),
            Some(_) => (ask.writes && has, stands && !ask.writes),
        };
        let waits = !joins && (!has || ask.in_turn);
        if waits && ask.came.is_some() {
            self.enter(ask.client, ask.came, 0);
        }
        let is_own = |client: usize| ask.came.is_some() && client == ask.client;
        let is_next = if ask.writes {
            self.queue.first().is_none_or(|(first, _)| is_own(*first))
        } else {
            // It waits for the writers of others that came before it.
            let came = self.queue.iter().find(|(client, _)| is_own(*client));
            let came = came.map_or(u64::MAX, |(_, came)| came.at);
            let mut others = self.queue.iter().filter(|(client, _)| !is_own(*client));
            others.all(|(_, other)| other.writer.is_none_or(|writer| writer > came))
        };
        if !(fits || joins) || waits && !is_next {
            return Reply::Refused;
        }
        if waits && ask.came.is_some() {
            let is_own = |(client, _): &(usize, Came)| *client == ask.client;
            let at = self.queue.iter().position(is_own).expect("it has entered");
            let (_, own) = self.queue.remove(at);
            // A reader leaves the entry to the writer behind it.
            let writer = own.writer.filter(|_| !ask.writes);
            let stays = writer.map(|writer| Came { at: writer, writes: true, ..own });
            self.queue.extend(stays.map(|stays| (ask.client, stays)));
            self.queue.sort_by_key(|(_, came)| came.at);
        } else if let Some(came) = ask.came.filter(|_| ask.writes) {
            self.enter(ask.client, None, came.ticket);
        }
        self.owners.insert(ask.owner.clone(), if ask.writes { ask.count } else { 1 });
        Reply::Granted
    }

    pub(super) fn release(&mut self, owner: &str, says: &Says) -> Value {
        let was = self.mode();
        if self.owners.remove(owner).is_none() {
            return said(if was.is_some() { Loss::TakenOver } else { Loss::KeyGone });
        }
        self.dead.retain(|dead| dead != owner);
        let all_are_dead = self.owners.keys().all(|owner| self.dead.contains(owner));
        if !owner.ends_with(":write") && self.owners.len() <= LOOKED_AT && all_are_dead {
            self.owners.clear();
            self.dead.clear();
        }
        if says.came.is_some() || !self.queue.is_empty() {
            self.enter(says.client, says.came, says.ticket);
        }
        Value::Int(0)
    }

    /// Of many readers, a release may have taken out some that have died: those that are not there any more.
    pub(super) fn taken_out(&mut self, left: &BTreeMap<String, String>) {
        if self.owners.len() > LOOKED_AT {
            self.owners.retain(|owner, _| left.contains_key(owner) || !self.dead.contains(owner));
            self.dead.retain(|dead| left.contains_key(dead));
        }
    }

    /// That request was granted, with that token.
    pub(super) fn draws(&mut self, ask: &Ask, granted: Option<u64>) {
        if ask.tokens == 0 || !ask.writes {
            assert_eq!(granted, self.last.filter(|_| ask.tokens > 0), "{ask:?}");
            return;
        }
        let last = granted.expect("a token for a writer");
        let before = self.last.unwrap_or_default();
        assert!(last >= before + u64::from(ask.tokens), "{before}, {last}: {ask:?}");
        self.last = Some(last);
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
