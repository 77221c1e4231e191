//! The number by which a store tells an old holder from a new one.

use std::fmt;
use std::num::NonZeroU64;

/// A number that grows with every hold of a fenced lock, or with every one that writes of a fenced
/// read-write lock, for a store to compare: it refuses a write whose token is lower than one that it
/// has seen.
///
/// Tokens of one name are in the order of the holds. They are not dense, and tokens of two names
/// have nothing to do with each other. They fit a signed 64-bit column.
///
/// # Examples
///
/// A store that keeps the highest token that it has seen:
///
/// ```
/// use redlatch::FencingToken;
///
/// #[derive(Default)]
/// struct Store {
///     seen: Option<FencingToken>,
///     value: String,
/// }
///
/// impl Store {
///     fn write(&mut self, token: FencingToken, value: &str) -> bool {
///         if self.seen.is_some_and(|seen| token < seen) {
///             return false;
///         }
///         (self.seen, self.value) = (Some(token), value.to_owned());
///         true
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    pub(crate) fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    pub(crate) fn of(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number, as it is in Redis.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing tokens that a request has drawn for the holds of one possession, which get them one
/// after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TokenBlock {
    /// The token before the next one.
    before: u64,
    left: u32,
}

impl TokenBlock {
    /// The last `drawn` tokens up to `last`.
    pub(crate) fn up_to(last: FencingToken, drawn: u32) -> Self {
        let left = drawn.min(u32::try_from(last.get()).unwrap_or(u32::MAX));
        Self { before: last.get() - u64::from(left), left }
    }

    /// For more calls than that a block is no larger.
    pub(crate) const MOST_CALLS: usize = 512;

    /// How many tokens to draw for so many calls: enough for those that come while a request for more is under way.
    pub(crate) fn size_for(calls: usize) -> u32 {
        let tokens = 2 * calls.min(Self::MOST_CALLS);
        if calls == 0 { 0 } else { u32::try_from(tokens).unwrap_or(u32::MAX).max(64) }
    }

    /// The next token.
    pub(crate) fn draw(&mut self) -> Option<FencingToken> {
        self.left = self.left.checked_sub(1)?;
        self.before += 1;
        NonZeroU64::new(self.before).map(FencingToken)
    }

    pub(crate) fn left(self) -> u32 {
        self.left
    }

    /// The last token, if one is left.
    fn last(self) -> Option<FencingToken> {
        (self.left > 0).then_some(())?;
        NonZeroU64::new(self.before + u64::from(self.left)).map(FencingToken)
    }
}

/// What a release says of the fencing tokens of its possession.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// The token of the possession's last holder.
    used: Option<FencingToken>,
    /// The last token that was drawn, if there are some left.
    last: Option<FencingToken>,
}

impl Drawn {
    /// `None` if the lock is not fenced.
    pub(crate) fn of(used: Option<FencingToken>, rest: TokenBlock) -> Option<Self> {
        let last = rest.last();
        (used.is_some() || last.is_some()).then_some(Self { used, last })
    }

    /// The token of the last holder and the last one that was drawn, if no holder has those in between.
    pub(crate) fn ahead(self) -> Option<(FencingToken, FencingToken)> {
        self.used.zip(self.last)
    }
}
