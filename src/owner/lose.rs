//! What an owner loses when Redis turns out to count nothing for it. Here, and nowhere else, holds
//! are set to lost before their deadlines.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Loss;
use crate::lease::Validity;

use super::{HoldState, Owner};

/// The request that found out that Redis counts nothing for the owner.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FoundBy {
    /// Its answer is about the holds of one generation.
    Renewal {
        generation: u64,
    },
    Release,
    NestedAcquire,
    Extension,
    Execution,
    HandOff,
    /// A first acquire, which was refused: another owner has the lock.
    Refusal,
}

impl Owner {
    /// Sets holds to lost. Returns whether one of them was still valid, and `None` if there is no
    /// hold that the finding is about.
    pub(crate) fn lose(&self, by: FoundBy, loss: Loss, now: Instant) -> Option<bool> {
        let mut valid = None;
        let lost = {
            let mut holds = self.holds.lock();
            let lost = match by {
                FoundBy::Release
                | FoundBy::NestedAcquire
                | FoundBy::Extension
                | FoundBy::Execution
                | FoundBy::HandOff => holds.lose_all(),
                FoundBy::Renewal { generation } => {
                    if holds.generation != generation || holds.live.is_empty() {
                        return None;
                    }
                    let counted = holds.counted;
                    // A release of everything may be under way, and be what the renewal found. A
                    // pending release learns of a loss from its own reply; live holds had been lost
                    // by the clock.
                    let lost = if holds.freeing { holds.lose_live() } else { holds.lose_all() };
                    // A request under way may still be executed: if dropped, its undo stays pending.
                    if self.is_permit_taken() {
                        holds.counted = counted;
                    }
                    lost
                }
                FoundBy::Refusal => holds.lose_given_back(),
            };
            // Inside the mutex, so that a hold of a generation that is over is known to be lost.
            for validity in &lost {
                valid = Some(validity.lose(loss, now) || valid == Some(true));
            }
            lost
        };
        lost.iter().for_each(|validity| validity.wake());
        valid
    }
}

impl HoldState {
    /// Redis counts nothing for this owner although it should. Returns the validities that are
    /// lost by that.
    pub(super) fn lose_all(&mut self) -> Vec<Arc<Validity>> {
        let mut lost = self.lose_live();
        lost.append(&mut self.lose_given_back());
        lost
    }

    /// The same, without the holds that were given back.
    fn lose_live(&mut self) -> Vec<Arc<Validity>> {
        self.generation += 1;
        self.live.drain(..).map(|hold| hold.validity).collect()
    }

    /// The holds of a pending release had gone before it.
    fn lose_given_back(&mut self) -> Vec<Arc<Validity>> {
        self.counted = 0;
        self.freeing = false;
        std::mem::take(&mut self.given_back)
    }
}
