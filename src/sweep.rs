//! When a map is swept of entries that have ended, so that they do not pile up: pure.

/// Maps below this size are not swept.
pub(crate) const SWEEP_FROM: usize = 1024;

/// Each sweep looks at all entries. So the next one comes when there could be as many again as are left now.
#[derive(Debug)]
pub(crate) struct Sweep {
    from: usize,
    at: usize,
}

impl Sweep {
    /// For a map that is not swept below this size.
    pub(crate) const fn from(from: usize) -> Self {
        Self { from, at: from }
    }

    /// Whether a map with this many entries has to be swept before it has one more.
    pub(crate) fn is_due(&self, entries: usize) -> bool {
        entries >= self.at
    }

    /// The map was swept, and `left` entries are left.
    pub(crate) fn swept(&mut self, left: usize) {
        self.at = self.from.max(2 * left);
    }
}

impl Default for Sweep {
    fn default() -> Self {
        Self::from(SWEEP_FROM)
    }
}
