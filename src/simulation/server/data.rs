//! The values that a server keeps: pure.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

pub(super) type Bytes = Vec<u8>;
pub(super) type Hash = BTreeMap<Bytes, Bytes>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(Bytes),
    Hash(Hash),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Sorted(Sorted),
}

impl Value {
    /// As `TYPE` calls it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Sorted(_) => "zset",
        }
    }

    /// A collection without elements is no key.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(hash) => hash.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::Sorted(sorted) => sorted.is_empty(),
        }
    }
}

/// A type of values, for [`Keyspace`](super::keyspace) to find or to make.
pub(super) trait Kind: Default {
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn wrap(self) -> Value;
}

macro_rules! kinds {
    ($($kind:ty => $variant:ident),*) => {$(
        impl Kind for $kind {
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(inner) = value { Some(inner) } else { None }
            }

            fn wrap(self) -> Value {
                Value::$variant(self)
            }
        }
    )*};
}

kinds!(Bytes => Text, Hash => Hash, VecDeque<Bytes> => List, BTreeSet<Bytes> => Set, Sorted => Sorted);

/// A key's value and its end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// In milliseconds since the epoch.
    pub(super) expires: Option<i64>,
}

/// Scores are numbers, never NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Score(pub(super) f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).expect("no NaN")
    }
}

/// A sorted set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sorted {
    scores: BTreeMap<Bytes, f64>,
    order: BTreeSet<(Score, Bytes)>,
}

impl Sorted {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        if let Some(old) = self.scores.insert(member.to_vec(), score) {
            self.order.remove(&(Score(old), member.to_vec()));
        }
        self.order.insert((Score(score), member.to_vec()));
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(old) = self.scores.remove(member) else { return false };
        self.order.remove(&(Score(old), member.to_vec()))
    }

    pub(super) fn remove_all(&mut self, members: &[(Bytes, f64)]) {
        for (member, _) in members {
            self.remove(member);
        }
    }

    /// From the lowest score to the highest.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.order.iter().map(|(score, member)| (member, score.0))
    }

    /// The members from that score on.
    pub(super) fn from(&self, score: f64) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        let from = Bound::Included((Score(score), Bytes::new()));
        self.order.range((from, Bound::Unbounded)).map(|(score, member)| (member, score.0))
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.range(..(Score(score), member.to_vec())).count())
    }
}
