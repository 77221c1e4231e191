//! The names that are locked.

use crate::support::channel;

/// So many names at the end of the list belong to the operator, who deletes their keys.
const TAMPERED: u16 = 4;

/// Before those are names that few ask for: where a wake-up that got lost is not made good by the
/// next caller's.
const STILL: u16 = 2;

/// So many, every other one, are also locked together with others.
const SEVERAL: u16 = 8;

/// A few of them are in demand.
const HOT: u16 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Fenced,
    Fair,
    FencedFair,
    ReadWrite,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    count: u16,
}

impl Names {
    pub(crate) fn new(count: u16) -> Self {
        Self { count: count.max(HOT + 2 + STILL + TAMPERED) }
    }

    pub(crate) fn all(self) -> std::ops::Range<u16> {
        0..self.count
    }

    pub(crate) fn name(self, key: u16) -> String {
        // With a brace of its own, and without: their channels have different forms.
        if key % 5 == 4 { format!("n{{{key}}}") } else { format!("name-{key}") }
    }

    /// How a name is locked. A few calls lock a fenced one with a plain handle.
    pub(crate) fn kind(key: u16) -> Kind {
        match key % 4 {
            0 => Kind::Fenced,
            1 if key % 8 == 5 => Kind::FencedFair,
            1 => Kind::Fair,
            2 => Kind::Plain,
            _ => Kind::ReadWrite,
        }
    }

    /// Whether the writers of a read-write lock have tokens: those of every other one.
    pub(crate) fn has_tokens(key: u16) -> bool {
        Self::kind(key) == Kind::ReadWrite && key % 8 == 7
    }

    /// Whether a queue at the server says who has it next.
    pub(crate) fn is_in_order(key: u16) -> bool {
        matches!(Self::kind(key), Kind::Fair | Kind::FencedFair | Kind::ReadWrite)
    }

    /// On which a release is told.
    pub(crate) fn channel(self, key: u16) -> String {
        let channel = channel(&self.name(key));
        match Self::kind(key) {
            Kind::ReadWrite => channel.replacen("redisson_lock__channel", "redisson_rwlock", 1),
            _ => channel,
        }
    }

    /// The keys of a read-write lock that say whether its readers are alive: what stands before the
    /// owner, and behind it.
    pub(crate) fn marker(self, key: u16) -> (String, &'static str) {
        let name = self.name(key);
        let tagged = if name.contains('{') { name } else { format!("{{{name}}}") };
        (tagged + ":", ":rwlock_timeout:1")
    }

    /// Those of a set of names that are locked together: a bit for each.
    pub(crate) fn several(set: u8) -> impl Iterator<Item = u16> {
        (0..SEVERAL).filter(move |bit| set >> bit & 1 == 1).map(|bit| 2 * bit)
    }

    /// Whether it is one of the names of which some are locked together.
    pub(crate) fn is_of_several(key: u16) -> bool {
        key < 2 * SEVERAL && key.is_multiple_of(2)
    }

    /// One of them.
    pub(crate) fn pick_of_several(self, rng: &mut fastrand::Rng) -> u16 {
        2 * rng.u16(..SEVERAL.min(self.count.div_ceil(2)))
    }

    /// Mostly two to four of them.
    pub(crate) fn pick_several(self, rng: &mut fastrand::Rng) -> u8 {
        let many = [1, 2, 2, 2, 2, 3, 3, 4, 4, 8][rng.usize(..10)];
        (0..many).fold(0, |set, _| set | 1 << (self.pick_of_several(rng) / 2))
    }

    pub(crate) fn is_tampered(self, key: u16) -> bool {
        key >= self.count - TAMPERED
    }

    pub(crate) fn tampered(self) -> std::ops::Range<u16> {
        self.count - TAMPERED..self.count
    }

    /// Half of all calls go to the few names that are in demand.
    pub(crate) fn pick(self, rng: &mut fastrand::Rng) -> u16 {
        let any = rng.u16(..self.count);
        if rng.bool() || self.is_still(any) { rng.u16(..HOT) } else { any }
    }

    pub(crate) fn pick_still(self, rng: &mut fastrand::Rng) -> u16 {
        self.count - TAMPERED - 1 - rng.u16(..STILL)
    }

    fn is_still(self, key: u16) -> bool {
        (self.count - TAMPERED - STILL..self.count - TAMPERED).contains(&key)
    }

    /// A name that is seldom held for long: where calls are many.
    pub(crate) fn pick_brisk(self, rng: &mut fastrand::Rng) -> u16 {
        rng.u16(HOT..HOT + self.brisk())
    }

    /// Whether a hold of it may be long. Elsewhere that would only keep others from calling.
    pub(crate) fn is_slow(self, key: u16) -> bool {
        key >= HOT + self.brisk()
    }

    /// Half of what is left.
    fn brisk(self) -> u16 {
        ((self.count - TAMPERED - STILL - HOT) / 2).max(1)
    }
}
