//! When a map is swept of entries that have ended, so that they do not pile up: pure.

use std::hash::Hash;

use crate::host::HashMap;

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

    /// Sweeps a map. It gives back the memory of a crowd that has gone.
    pub(crate) fn sweep<K: Eq + Hash, V>(
        &mut self,
        map: &mut HashMap<K, V>,
        keep: impl FnMut(&K, &mut V) -> bool,
    ) {
        map.retain(keep);
        let room = self.from.max(2 * map.len());
        if map.capacity() / 4 > room {
            map.shrink_to(room);
        }
        self.swept(map.len());
    }

    /// What counts was swept, and `left` entries are left.
    pub(crate) fn swept(&mut self, left: usize) {
        self.at = self.from.max(2 * left);
    }
}

impl Default for Sweep {
    fn default() -> Self {
        Self::from(SWEEP_FROM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_back_the_room_of_a_crowd_that_has_gone() {
        let mut map: HashMap<usize, ()> = (0..100_000).map(|entry| (entry, ())).collect();
        let mut sweep = Sweep::default();
        sweep.sweep(&mut map, |entry, ()| *entry < 90_000);
        assert!(map.len() == 90_000 && !sweep.is_due(179_999) && sweep.is_due(180_000));
        sweep.sweep(&mut map, |entry, ()| *entry < 10);
        assert!(map.len() == 10 && map.capacity() < 4 * SWEEP_FROM, "{}", map.capacity());
        assert!(!sweep.is_due(SWEEP_FROM - 1) && sweep.is_due(SWEEP_FROM));
    }
}
