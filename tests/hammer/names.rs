//! The names that are locked.

/// So many names at the end of the list belong to the operator, who deletes their keys.
const TAMPERED: u16 = 4;

/// A few of them are in demand.
const HOT: u16 = 5;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    count: u16,
}

impl Names {
    pub(crate) fn new(count: u16) -> Self {
        Self { count: count.max(TAMPERED + HOT + 2) }
    }

    pub(crate) fn all(self) -> std::ops::Range<u16> {
        0..self.count
    }

    pub(crate) fn name(self, key: u16) -> String {
        // With a brace of its own, and without: their channels have different forms.
        if key % 5 == 4 { format!("n{{{key}}}") } else { format!("name-{key}") }
    }

    pub(crate) fn is_fenced(self, key: u16) -> bool {
        key % 3 == 0
    }

    pub(crate) fn is_tampered(self, key: u16) -> bool {
        key >= self.count - TAMPERED
    }

    pub(crate) fn tampered(self) -> std::ops::Range<u16> {
        self.count - TAMPERED..self.count
    }

    /// Half of all calls go to the few names that are in demand.
    pub(crate) fn pick(self, rng: &mut fastrand::Rng) -> u16 {
        if rng.bool() { rng.u16(..HOT) } else { rng.u16(..self.count) }
    }

    /// A name that is seldom held for long: where calls are many.
    pub(crate) fn pick_brisk(self, rng: &mut fastrand::Rng) -> u16 {
        rng.u16(HOT..HOT + self.brisk())
    }

    /// Whether a hold of it may be long. Elsewhere that would only keep others from calling.
    pub(crate) fn is_slow(self, key: u16) -> bool {
        key >= HOT + self.brisk()
    }

    /// Half of those that are neither in demand nor tampered with.
    fn brisk(self) -> u16 {
        ((self.count - TAMPERED - HOT) / 2).max(1)
    }
}
