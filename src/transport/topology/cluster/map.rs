//! Which server has which slot: pure state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;

use crate::slot::SLOTS;

/// Host and port, as the cluster has them.
pub(super) type Address = (String, u16);

/// The slots from the first to the last, the primary that has them, and its replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    primary: Address,
    replicas: Vec<Address>,
}

/// How long a node that had no slots yet stays after an `ASK`, with its connections: while a slot migrates to it, more of
/// these answers follow. One that has lost its slots may be a replica now, which confirms subscriptions.
const ASK_KEPT_FOR: Duration = Duration::from_secs(60);

/// The nodes `N` by address and by slot.
pub(super) struct Map<N> {
    nodes: BTreeMap<Address, Arc<N>>,
    /// When an `ASK` last led to a node.
    ask_redirects: BTreeMap<Address, Instant>,
    /// When a `MOVED` led to the node of a slot, since the last report.
    moved: BTreeMap<u16, Instant>,
    slots: Vec<Option<Arc<N>>>,
    /// Those that had slots as of the last report.
    reported: BTreeSet<Address>,
    /// As of the last report: when all primaries are gone together, one of these knows who has taken over.
    replicas: BTreeSet<Address>,
}

impl<N> Default for Map<N> {
    fn default() -> Self {
        let slots = vec![None; usize::from(SLOTS)];
        let (nodes, ask_redirects, moved, reported, replicas) = Default::default();
        Self { nodes, ask_redirects, moved, slots, reported, replicas }
    }
}

impl<N> Map<N> {
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<N>> {
        self.slots.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Address, &Arc<N>)> {
        self.nodes.iter()
    }

    /// Whether an `ASK` has led to that node lately.
    pub(super) fn is_asked(&self, address: &Address) -> bool {
        self.ask_redirects.contains_key(address)
    }

    pub(super) fn replicas(&self) -> impl Iterator<Item = &Address> {
        self.replicas.iter()
    }

    /// Whether a report says of any slot that another server has it.
    pub(super) fn differs(&self, ranges: &[Range]) -> bool {
        let has_all = |range: &Range| {
            let slots = &self.slots[usize::from(range.first)..=usize::from(range.last)];
            let node = self.nodes.get(&range.primary);
            let is_its = |slot: &Option<Arc<N>>| {
                slot.as_ref().zip(node).is_some_and(|(a, b)| Arc::ptr_eq(a, b))
            };
            slots.iter().all(is_its)
        };
        !ranges.iter().all(has_all)
    }

    pub(super) fn node<E>(
        &mut self,
        address: Address,
        make: impl FnOnce(&Address) -> Result<N, E>,
    ) -> Result<Arc<N>, E> {
        if let Some(node) = self.nodes.get(&address) {
            return Ok(node.clone());
        }
        let node = Arc::new(make(&address)?);
        self.nodes.insert(address, node.clone());
        Ok(node)
    }

    /// An `ASK` has led to that node.
    pub(super) fn note_ask(&mut self, address: Address, now: Instant) {
        self.ask_redirects.insert(address, now);
    }

    /// A `MOVED` says that the slot is at that node. Returns whether that is new.
    pub(super) fn assign(&mut self, slot: u16, node: &Arc<N>, now: Instant) -> bool {
        let Some(owner) = self.slots.get_mut(usize::from(slot)) else { return false };
        let before = owner.replace(node.clone());
        self.moved.insert(slot, now);
        before.is_none_or(|before| !Arc::ptr_eq(&before, node))
    }

    /// Takes over what a node reports of all slots, which was asked at `asked_at`. What a `MOVED` has said since is newer.
    /// Returns the nodes that are gone: those that had slots as of the last report, and those to which no `ASK` has led for
    /// a while.
    pub(super) fn replace<E>(
        &mut self,
        ranges: Vec<Range>,
        asked_at: Instant,
        now: Instant,
        mut make: impl FnMut(&Address) -> Result<N, E>,
    ) -> Result<Vec<Arc<N>>, E> {
        let mut slots = vec![None; usize::from(SLOTS)];
        let mut nodes = BTreeMap::new();
        let mut replicas = BTreeSet::new();
        for Range { first, last, primary, replicas: its } in ranges {
            replicas.extend(its);
            let node = self.node(primary.clone(), &mut make)?;
            slots[usize::from(first)..=usize::from(last)].fill(Some(node.clone()));
            nodes.insert(primary, node);
        }
        let reported = std::mem::replace(&mut self.reported, nodes.keys().cloned().collect());
        self.moved.retain(|_, at| *at >= asked_at);
        for slot in self.moved.keys().map(|slot| usize::from(*slot)) {
            slots[slot].clone_from(&self.slots[slot]);
            let is_its =
                |node: &Arc<N>| slots[slot].as_ref().is_some_and(|its| Arc::ptr_eq(its, node));
            let its = self.nodes.iter().find(|(_, node)| is_its(node));
            nodes.extend(its.map(|(address, node)| (address.clone(), node.clone())));
        }
        self.ask_redirects.retain(|_, at| now < *at + ASK_KEPT_FOR);
        let mut gone = Vec::new();
        for (address, node) in std::mem::replace(&mut self.nodes, nodes) {
            if self.nodes.contains_key(&address) {
                continue;
            }
            let had_slots = reported.contains(&address);
            if self.ask_redirects.contains_key(&address) && !had_slots {
                self.nodes.insert(address, node);
            } else {
                self.ask_redirects.remove(&address);
                gone.push(node);
            }
        }
        (self.slots, self.replicas) = (slots, replicas);
        Ok(gone)
    }
}

/// Parses the answer to `CLUSTER SLOTS`. A server that does not report its own host is at the host
/// where it was asked.
pub(super) fn parse(answer: &Value, asked_at: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    ranges.iter().map(|range| parse_range(range, asked_at)).collect()
}

fn parse_range(range: &Value, asked_at: &str) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = &**parts else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    (first <= last && last < SLOTS).then_some(())?;
    let primary = parse_node(primary, asked_at)?;
    let replicas = replicas.iter().filter_map(|replica| parse_node(replica, asked_at)).collect();
    Some(Range { first, last, primary, replicas })
}

fn parse_node(node: &Value, asked_at: &str) -> Option<Address> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = &**parts else { return None };
    let host = match host {
        Value::BulkString(host) => str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => "",
    };
    let host = if host.is_empty() || host == "?" { asked_at } else { host };
    Some((host.to_owned(), u16::try_from(*port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = |host, port| {
            let id = Value::BulkString(b"07c37df".to_vec());
            Value::Array(vec![host, Value::Int(port), id, Value::Array(Vec::new())])
        };
        let replica = node(Value::BulkString(b"10.0.0.9".to_vec()), 1);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), replica])
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// Replaces a map of names. Returns the nodes that are gone.
    fn replace(map: &mut Map<String>, ranges: &[(u16, u16, &str)]) -> Vec<String> {
        replace_at(map, ranges, clock::now())
    }

    fn replace_at(map: &mut Map<String>, ranges: &[(u16, u16, &str)], now: Instant) -> Vec<String> {
        replace_asked(map, ranges, now, now)
    }

    fn replace_asked(
        map: &mut Map<String>,
        ranges: &[(u16, u16, &str)],
        asked_at: Instant,
        now: Instant,
    ) -> Vec<String> {
        let range = |(first, last, host): &(u16, u16, &str)| Range {
            first: *first,
            last: *last,
            primary: ((*host).to_owned(), 7),
            replicas: vec![(format!("{host}'"), 7)],
        };
        let make = |(host, _): &Address| Ok::<_, ()>(host.clone());
        let gone = map.replace(ranges.iter().map(range).collect(), asked_at, now, make).unwrap();
        gone.iter().map(|node| node.to_string()).collect()
    }

    fn owner(map: &Map<String>, slot: u16) -> Option<&str> {
        map.owner(slot).map(|node| node.as_str())
    }

    #[test]
    fn the_primary_of_each_range_is_read_wherever_the_server_says_it_is() {
        let answer = Value::Array(vec![
            range(0, 5460, text("10.0.0.1"), 7000),
            range(5461, 10922, Value::Nil, 7001),
            range(10923, 16383, text("?"), 7002),
        ]);
        let parsed = parse(&answer, "seed").unwrap();
        let primary = |at: usize| (parsed[at].primary.0.as_str(), parsed[at].primary.1);
        assert_eq!((parsed[0].first, parsed[0].last, primary(0)), (0, 5460, ("10.0.0.1", 7000)));
        assert_eq!((parsed[1].first, parsed[1].last, primary(1)), (5461, 10922, ("seed", 7001)));
        assert_eq!(primary(2), ("seed", 7002));
        assert!(parsed.iter().all(|range| range.replicas == [("10.0.0.9".to_owned(), 1)]));
    }

    #[test]
    fn an_answer_that_is_none_is_not_taken_for_a_map() {
        for answer in [
            Value::Nil,
            Value::Array(vec![Value::Int(3)]),
            Value::Array(vec![range(5, 4, text("a"), 1)]),
            Value::Array(vec![range(0, 16384, text("a"), 1)]),
            Value::Array(vec![range(0, 1, text("a"), 70_000)]),
        ] {
            assert_eq!(parse(&answer, "seed"), None, "{answer:?}");
        }
        assert_eq!(parse(&Value::Array(Vec::new()), "seed"), Some(Vec::new()));
    }

    #[test]
    fn slots_move_between_nodes_and_a_node_without_any_is_gone() {
        let mut map = Map::default();
        assert_eq!(owner(&map, 0), None);
        assert_eq!(replace(&mut map, &[(0, 99, "a"), (100, 199, "b")]), [""; 0]);
        assert_eq!(
            (owner(&map, 99), owner(&map, 100), owner(&map, 200)),
            (Some("a"), Some("b"), None)
        );

        let c = map.node(("c".into(), 7), |(host, _)| Ok::<_, ()>(host.clone())).unwrap();
        assert!(map.assign(50, &c, clock::now() - Duration::from_secs(1)));
        assert!(!map.assign(50, &c, clock::now() - Duration::from_secs(1)));
        assert_eq!((owner(&map, 49), owner(&map, 50)), (Some("a"), Some("c")));
        assert_eq!(map.nodes().count(), 3);

        let kept = map.owner(0).unwrap().clone();
        assert_eq!(replace(&mut map, &[(0, 199, "a")]), ["b", "c"]);
        assert!(Arc::ptr_eq(map.owner(150).unwrap(), &kept), "a node stays what it is");
        assert_eq!(map.nodes().count(), 1);
    }

    #[test]
    fn a_report_differs_if_any_slot_is_elsewhere_and_its_replicas_are_those_of_the_last() {
        let mut map = Map::default();
        let report = |ranges: &[(u16, u16, &str)]| -> Vec<Range> {
            let range = |(first, last, host): &(u16, u16, &str)| Range {
                first: *first,
                last: *last,
                primary: ((*host).to_owned(), 7),
                replicas: Vec::new(),
            };
            ranges.iter().map(range).collect()
        };
        assert!(map.differs(&report(&[(0, 99, "a")])));
        replace(&mut map, &[(0, 99, "a"), (100, 199, "b")]);
        assert!(!map.differs(&report(&[(0, 49, "a"), (50, 99, "a"), (100, 199, "b")])));
        assert!(map.differs(&report(&[(0, 100, "a"), (101, 199, "b")])));
        assert!(map.differs(&report(&[(0, 99, "a"), (100, 199, "c")])));
        assert!(map.differs(&report(&[(0, 99, "a"), (100, 200, "b")])));
        let replicas = |map: &Map<_>| Vec::from_iter(map.replicas().map(|(host, _)| host.clone()));
        assert_eq!(replicas(&map), ["a'", "b'"]);
        replace(&mut map, &[(0, 199, "b")]);
        assert_eq!(replicas(&map), ["b'"]);
    }

    #[test]
    fn what_a_redirect_says_is_newer_than_a_report_that_was_asked_for_before_it() {
        let mut map = Map::default();
        let (asked_at, second) = (clock::now(), Duration::from_secs(1));
        replace_at(&mut map, &[(0, 99, "a")], asked_at);
        let b = map.node(("b".into(), 7), |(host, _)| Ok::<_, ()>(host.clone())).unwrap();
        map.assign(50, &b, asked_at + second);
        let now = asked_at + 2 * second;
        assert_eq!(replace_asked(&mut map, &[(0, 99, "a")], asked_at, now), [""; 0]);
        assert_eq!((owner(&map, 49), owner(&map, 50)), (Some("a"), Some("b")));
        assert_eq!(map.nodes().count(), 2, "it has requests under way");
        assert_eq!(replace_asked(&mut map, &[(0, 99, "a")], now, now), ["b"]);
        assert_eq!(owner(&map, 50), Some("a"));
    }

    #[test]
    fn w25_a_node_to_which_ask_led_survives_a_new_map_and_goes_a_minute_later() {
        let mut map = Map::default();
        let now = clock::now();
        let (a, b) = ((0, 99, "a"), ("b".to_owned(), 7));
        replace_at(&mut map, &[a], now);
        let asked = map.node(b.clone(), |(host, _)| Ok::<_, ()>(host.clone())).unwrap();
        map.note_ask(b.clone(), now);
        assert!(map.is_asked(&b) && !map.is_asked(&("a".to_owned(), 7)));
        assert_eq!(replace_at(&mut map, &[a], now), [""; 0]);
        assert_eq!(replace_at(&mut map, &[a], now + ASK_KEPT_FOR / 2), [""; 0]);
        let again = map.node(b, |_| Err("a new node")).unwrap();
        assert!(Arc::ptr_eq(&asked, &again));
        assert_eq!(replace_at(&mut map, &[a], now + ASK_KEPT_FOR), ["b"]);
    }

    #[test]
    fn a_node_that_loses_its_slots_is_gone_wherever_ask_led() {
        let mut map = Map::default();
        let (now, second) = (clock::now(), Duration::from_secs(1));
        let b = ("b".to_owned(), 7);
        let make = |(host, _): &Address| Ok::<_, ()>(host.clone());
        let node = map.node(b.clone(), make).unwrap();
        map.note_ask(b.clone(), now);
        map.assign(50, &node, now + second);
        let (before, after) = ([(0, 99, "a")], [(0, 49, "a"), (50, 50, "b"), (51, 99, "a")]);
        // Of a node that has not heard yet that this one has its first slot.
        assert_eq!(replace_at(&mut map, &before, now + 2 * second), [""; 0]);
        assert_eq!(replace_at(&mut map, &after, now + 3 * second), [""; 0]);
        let c = map.node(("c".to_owned(), 7), make).unwrap();
        map.assign(50, &c, now + 4 * second);
        let after = [(0, 49, "a"), (50, 50, "c"), (51, 99, "a")];
        assert_eq!(replace_at(&mut map, &after, now + 5 * second), ["b"]);
        assert!(!map.is_asked(&b));
    }
}
