//! What is lost when Redis turns out not to have a possession: here, and as a client ends (`ending`), holds are set
//! to lost before their deadlines.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Loss;
use crate::events::Events;
use crate::lease::Validity;

use super::{Confirm, Hold, HoldState, Possession};

/// The request that found out that Redis does not have the possession.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundBy {
    Renewal,
    Release,
    NestedAcquire,
    Extension,
    Execution,
    HandOff,
    /// The request of a reader of the same handle, which wanted to stand beside the writer.
    Reader,
}

impl Possession {
    /// Reports that the possession is lost: a guard was valid until then.
    pub(crate) fn report_loss(&self, events: &Events, loss: Loss, how: &str, now: Instant) {
        events.lost((self.names.key(), &self.id()), loss, how, now);
        self.names.series.lost(self.writes(), loss);
    }

    /// Sets holds to lost. Returns whether one of them was still valid, and `None` if there is no
    /// hold that the finding is about, or if this loss was found before.
    pub(crate) fn lose(&self, by: FoundBy, loss: Loss, now: Instant) -> Option<bool> {
        let mut valid = None;
        let (lost, confirms, gap) = {
            let mut holds = self.holds.lock();
            let beside = matches!(by, FoundBy::Renewal | FoundBy::Reader);
            // In a gap, another handle may have it soon.
            let in_gap = holds.is_in_gap() && !holds.release_unanswered;
            if beside && holds.live.is_empty() && !in_gap {
                if holds.counted > 0 && !holds.release_unanswered {
                    // The last holder has gone, and the next one is about to come. The release says what is lost.
                    holds.rare().ends_here = true;
                }
                return None;
            }
            // The callers whose holds a request under way is about learn that from its answer. The request may be
            // executed still: if it is dropped, its undo stays pending.
            let counted = holds.counted;
            let has_permit = beside && self.is_permit_taken();
            let under_way = has_permit && holds.has_unanswered();
            // A release of everything may be what the request found.
            let lost = if beside && holds.release_unanswered {
                holds.lose_live()
            } else if under_way {
                holds.lose_what_was_not_asked_for()
            } else {
                holds.lose_all()
            };
            if has_permit {
                holds.counted = counted;
            }
            // Inside the mutex, so that a hold of a possession that is over is known to be lost.
            for validity in &lost {
                valid = Some(validity.lose(loss, now) || valid == Some(true));
            }
            let rare = holds.rare();
            rare.gone = Some(loss);
            valid = valid.filter(|_| !rare.reported);
            rare.reported |= valid == Some(true);
            let confirms = holds.take_confirms(if under_way { 0 } else { usize::MAX });
            // With a request under way, the client's thread ends the gap, and releases what that has done.
            let gap = if has_permit { None } else { holds.take_gap() };
            (lost, confirms, gap)
        };
        lost.iter().for_each(|validity| validity.wake());
        self.has_lost_holds();
        for confirm in confirms {
            let _ = confirm.send(Ok(false));
        }
        self.announce_end(gap);
        valid
    }

    /// The client's thread has no more to tell Redis. If Redis does not have the lock, holds may be left that its last
    /// request was about: lost if Redis has not executed that, and else the client cannot tell. Returns those who wait for
    /// that.
    pub(crate) fn lose_what_was_asked_for(&self, now: Instant) -> Vec<Confirm> {
        let (lost, confirms) = {
            let mut holds = self.holds.lock();
            let confirms = holds.take_confirms_of_lost();
            let Some(loss) = holds.rare.as_ref().and_then(|rare| rare.gone) else {
                return confirms;
            };
            let lost = holds.take_returned();
            for validity in &lost {
                validity.lose(loss, now);
            }
            (lost, confirms)
        };
        lost.iter().for_each(|validity| validity.wake());
        confirms
    }
}

impl HoldState {
    /// Redis has no hold of this possession. Returns the validities that are lost by that: those of the live
    /// holds, and of those given back that no request has confirmed, and of which the client can tell.
    pub(super) fn lose_all(&mut self) -> Vec<Arc<Validity>> {
        let mut lost = self.lose_live();
        self.counted = 0;
        self.release_unanswered = false;
        lost.extend(self.take_returned());
        lost
    }

    /// Takes all holds that Redis turned out not to have, beside a request under way. Those stay that the request is
    /// about.
    fn lose_what_was_not_asked_for(&mut self) -> Vec<Arc<Validity>> {
        let mut lost = self.lose_live();
        lost.extend(self.take_not_asked());
        lost
    }

    /// The possession is lost. Returns the validities of its live holds.
    pub(super) fn lose_live(&mut self) -> Vec<Arc<Validity>> {
        self.lost = true;
        let of_guard = |hold: &&Hold| !self.has_no_guard(hold);
        let live = self.live.iter().filter(of_guard);
        let live_on: Vec<_> = live.map(|hold| (hold.number, hold.validity.clone())).collect();
        if !live_on.is_empty() {
            self.rare().lost.extend(live_on);
        }
        let lost = self.live.take();
        lost.into_iter().map(|hold| hold.validity).collect()
    }
}
