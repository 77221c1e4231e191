//! How one node sees the cluster.

use std::collections::BTreeMap;

use super::super::Server;

const SLOTS: usize = 16_384;

/// What a node says of all nodes, itself included.
pub(super) struct View {
    nodes: BTreeMap<String, Seen>,
    /// The port of the node that has the slot.
    slots: Vec<Option<u16>>,
}

struct Seen {
    flags: Vec<String>,
    linked: bool,
    epoch: u64,
}

impl View {
    pub(super) fn of(node: &Server) -> Self {
        let text: String = node.ask(&["CLUSTER", "NODES"]);
        let mut view = Self { nodes: BTreeMap::new(), slots: vec![None; SLOTS] };
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, address, flags, _, _, _, epoch, link, slots @ ..] = &*words else {
                panic!("what is {line:?}?");
            };
            let flags: Vec<String> = flags.split(',').map(str::to_owned).collect();
            let (host, _) = address.split_once('@').expect("a bus");
            let port = host.rsplit_once(':').expect("a port").1.parse().expect("a number");
            // Slots on their way come in brackets, beside those that are there.
            for range in slots.iter().filter(|range| !range.starts_with('[')) {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let number = |text: &str| text.parse::<usize>().expect("a slot");
                view.slots[number(first)..=number(last)].fill(Some(port));
            }
            let epoch = epoch.parse().expect("a number");
            let seen = Seen { flags, linked: *link == "connected", epoch };
            view.nodes.insert((*id).to_owned(), seen);
        }
        view
    }

    /// The port of the node that has the slot.
    pub(super) fn owner_of(&self, slot: u16) -> Option<u16> {
        self.slots[usize::from(slot)]
    }

    /// Whether it sees the slots at the same nodes, and knows as well as the other since when: who
    /// does not may still take the word of an earlier owner for the newest.
    pub(super) fn serves_the_same_as(&self, other: &Self) -> bool {
        let epochs = |view: &Self| -> Vec<(String, u64)> {
            let masters = view.nodes.iter().filter(|(_, seen)| seen.has("master"));
            masters.map(|(id, seen)| (id.clone(), seen.epoch)).collect()
        };
        self.slots == other.slots && epochs(self) == epochs(other)
    }

    /// Whether that node is there, and has this role.
    pub(super) fn sees(&self, id: &str, role: &str) -> bool {
        self.nodes.get(id).is_some_and(|seen| seen.linked && seen.has(role) && !seen.fails())
    }

    /// Whether that node is believed to be down.
    pub(super) fn misses(&self, id: &str) -> bool {
        self.nodes.get(id).is_none_or(Seen::fails)
    }

    /// Whether it knows as many nodes, each of them by its name.
    pub(super) fn knows(&self, count: usize) -> bool {
        let known = self.nodes.values().filter(|seen| !seen.has("handshake"));
        known.count() == count && self.nodes.len() == count
    }

    pub(super) fn serves_all(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }
}

impl Seen {
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|mine| mine == flag)
    }

    fn fails(&self) -> bool {
        self.has("fail")
    }
}
