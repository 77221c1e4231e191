//! The scripts in `lua/`, written in plain Rust for one key: a model so simple that it is unlikely
//! to be wrong. One test holds it against a real server, and others hold the crate against it.

use crate::error::Loss;
use crate::protocol::{Acquired, Released};
use crate::token::TokenBlock;

/// One key of a Redis whose clock is brought along, in milliseconds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Naive {
    pub(crate) lock: Option<Held>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) owner: Box<str>,
    pub(crate) count: u32,
    /// When its TTL ends; `None` if it has none.
    pub(crate) ends: Option<u64>,
}

impl Naive {
    /// What is there at `now`.
    pub(crate) fn at(&mut self, now: u64) -> &mut Option<Held> {
        self.lock.take_if(|held| held.ends.is_some_and(|ends| ends <= now));
        &mut self.lock
    }

    fn find(&mut self, owner: &str, now: u64) -> Result<&mut Held, Loss> {
        match self.at(now) {
            Some(held) if *held.owner == *owner => Ok(held),
            Some(_) => Err(Loss::TakenOver),
            None => Err(Loss::KeyGone),
        }
    }

    pub(crate) fn acquire(&mut self, owner: &str, lease: u64, count: u32, now: u64) -> Acquired {
        if count > 1 {
            let held = match self.find(owner, now) {
                Ok(held) => held,
                Err(loss) => return Acquired::Gone(loss),
            };
            held.count = count;
            held.update(now + lease);
            return Acquired::Granted(TokenBlock::default());
        }
        match self.at(now) {
            Some(held) if *held.owner != *owner => {
                let remaining = held.ends.map(|ends| ends - now);
                let remaining = remaining.map(std::time::Duration::from_millis);
                Acquired::Refused { remaining, holder: held.owner.clone(), repeated: false }
            }
            Some(held) => {
                held.count = count;
                held.update(now + lease);
                Acquired::Granted(TokenBlock::default())
            }
            lock => {
                *lock = Some(Held { owner: owner.into(), count, ends: Some(now + lease) });
                Acquired::Granted(TokenBlock::default())
            }
        }
    }

    pub(crate) fn release(&mut self, owner: &str, count: u32, lease: u64, now: u64) -> Released {
        let held = match self.find(owner, now) {
            Ok(held) => held,
            Err(loss) => return Released::Nothing(loss),
        };
        if count == 0 {
            self.lock = None;
            return Released::Freed { receivers: 0 };
        }
        held.count = held.count.min(count);
        held.ends = Some(now + lease);
        Released::CountLowered
    }

    pub(crate) fn update(
        &mut self,
        owner: &str,
        count: u32,
        lease: u64,
        now: u64,
    ) -> Result<(), Loss> {
        let held = self.find(owner, now)?;
        held.count = held.count.min(count);
        held.ends = Some(now + lease);
        Ok(())
    }

    pub(crate) fn renew(&mut self, owner: &str, lease: u64, now: u64) -> Result<(), Loss> {
        self.find(owner, now)?.update(now + lease);
        Ok(())
    }
}

impl Held {
    /// Never shortens; a TTL that was taken away comes back.
    fn update(&mut self, ends: u64) {
        self.ends = Some(self.ends.map_or(ends, |old| old.max(ends)));
    }
}
