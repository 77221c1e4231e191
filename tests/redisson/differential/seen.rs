//! What came of a step, and how the lock stands then; and in what ours may differ from Redisson.

use std::collections::BTreeMap;

use super::{Act, Step};
use crate::parties::{Kind, tagged};
use crate::setup::Setup;
use crate::sides::Side;

/// By how much a TTL may differ on a busy machine. No two leases of a case are as near to each other, unless they are short.
const NEAR: i64 = 4_000;

/// What stands in Redis of the lock, by party.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) mode: Option<String>,
    pub(super) lasts: i64,
    pub(super) reads: BTreeMap<usize, u32>,
    pub(super) writes: BTreeMap<usize, u32>,
    /// How many markers it has, and how long the longest lasts.
    pub(super) markers: BTreeMap<usize, (u32, i64)>,
}

/// The fields of the hash, its TTL, and the markers with theirs.
type Looked = (Vec<(String, String)>, i64, Vec<(String, i64)>);

const LOOK: &str = "local marked = {} \
    for _, key in ipairs(redis.call('KEYS', ARGV[1])) do \
      table.insert(marked, {key, redis.call('PTTL', key)}) end \
    return {redis.call('HGETALL', KEYS[1]), redis.call('PTTL', KEYS[1]), marked}";

impl Seen {
    pub(super) fn new(setup: &Setup, name: &str, ids: &[String]) -> Self {
        let prefix = format!("{}:", tagged(name));
        let pattern = format!("{prefix}*:rwlock_timeout:*");
        let (fields, lasts, marked): Looked =
            setup.ask_at(name, &["EVAL", LOOK, "1", name, &pattern]);
        let whose = |owner: &str| {
            ids.iter().position(|id| owner.starts_with(&**id)).unwrap_or_else(|| panic!("{owner}?"))
        };
        let mut seen = Self { lasts, ..Self::default() };
        for (field, value) in fields {
            if field == "mode" {
                seen.mode = Some(value);
                continue;
            }
            let count = value.parse().expect("a hold count");
            let side = if field.ends_with(":write") { &mut seen.writes } else { &mut seen.reads };
            assert_eq!(side.insert(whose(&field), count), None, "{field} is the second one");
        }
        for (key, left) in marked {
            let marker = seen.markers.entry(whose(&key[prefix.len()..])).or_default();
            *marker = (marker.0 + 1, marker.1.max(left));
        }
        seen
    }

    /// What should stand there if these parties are ours.
    pub(super) fn of_ours(mut self, kinds: &[Kind]) -> Self {
        let is_ours = |who: &usize| kinds[*who] == Kind::Rust;
        for (_, count) in self.reads.iter_mut().filter(|(who, _)| is_ours(who)) {
            *count = 1;
        }
        for (_, marker) in self.markers.iter_mut().filter(|(who, _)| is_ours(who)) {
            marker.0 = 1;
        }
        self
    }

    /// The same, and how long it may last where a writer of these kinds has it, if no lease is longer. Redisson adds up the
    /// leases of a writer, and its watchdog, which looks at all locks of a process at one time, sets one lease again.
    pub(super) fn of_a_writer(mut self, kinds: &[Kind], longest: i64) -> (Self, Option<i64>) {
        let Some((who, count)) = self.writes.first_key_value() else { return (self, None) };
        let leases = if kinds[*who] == Kind::Rust { 1 } else { i64::from(*count) };
        self.lasts = self.lasts.min(longest);
        (self, Some(longest * leases))
    }

    /// Whether they are the same, with TTLs that are near to each other. Where one of ours has had it, it may last longer,
    /// but for no longer than the longest lease.
    pub(super) fn matches(&self, found: &Self, longest: Option<i64>) -> bool {
        let without = |seen: &Self| {
            let markers = seen.markers.iter().map(|(who, (many, _))| (*who, *many));
            let markers: Vec<_> = markers.collect();
            (seen.mode.clone(), seen.reads.clone(), seen.writes.clone(), markers)
        };
        let lasts = |expected: i64, found: i64| {
            let longer = longest.is_some_and(|longest| (expected..=longest).contains(&found));
            (expected - found).abs() <= NEAR || longer
        };
        let mut markers = self.markers.values().zip(found.markers.values());
        without(self) == without(found)
            && lasts(self.lasts, found.lasts)
            && markers.all(|(expected, found)| lasts(expected.1, found.1))
    }
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    Done,
    Said(bool),
    /// It had nothing to give back.
    Failed,
}

impl Came {
    /// Whether one of ours may say so, where Redisson says this. `seen` is how the lock stands.
    pub(super) fn fits(self, found: Self, step: Step, has_ended: bool, seen: &Seen) -> bool {
        let differs = match step.act {
            Act::GivesBack(_) => has_ended && found == Self::Failed,
            Act::AsksWhetherLocked(Side::Read) => !seen.writes.is_empty() && !seen.reads.is_empty(),
            _ => false,
        };
        self == found || differs
    }
}
