//! Random numbers from a seed: pure. (SplitMix64.)

use std::time::Duration;

/// A source of random numbers; the same seed gives the same ones.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below that one, which is not zero.
    pub fn below(&mut self, many: u64) -> u64 {
        self.number() % many
    }

    /// True so many times in a thousand.
    pub fn permille(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// At most so long, in whole milliseconds.
    pub fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_millis(self.below(longest.as_millis() as u64 + 1))
    }

    /// Another source, whose numbers have nothing to do with the next ones of this.
    pub fn fork(&mut self) -> Self {
        Self(self.number())
    }
}
