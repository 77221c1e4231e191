//! The holds that guards have given back, until an answer says that they were there to their ends: first those before the
//! last hand-off, then those since.

use std::sync::Arc;

use crate::lease::Validity;

use super::HoldState;

impl HoldState {
    /// The client is about to send a request that is about all of these holds.
    pub(super) fn asks(&mut self) {
        let all = self.unconfirmed().len() + self.given_back.len();
        let before = std::mem::replace(&mut self.asked, u32::try_from(all).unwrap_or(u32::MAX));
        if before > 0 {
            self.rare().unanswered = before;
        }
    }

    /// The request that was sent last said nothing of these holds, and was not executed before that.
    pub(crate) fn forget_asked(&mut self) {
        self.asked = 0;
    }

    /// The request that was sent last found the lock there. So the holds that it is about were there to their ends.
    pub(super) fn confirmed(&mut self) {
        self.rare.iter_mut().for_each(|rare| rare.unanswered = 0);
        let many = std::mem::take(&mut self.asked) as usize;
        self.take_oldest(many, drop);
    }

    /// Redis has nothing of the lock. Returns the holds that are lost by that. An earlier request, which may have been
    /// executed when the lock was there still, was about all others: the client cannot tell.
    pub(super) fn take_returned(&mut self) -> Vec<Arc<Validity>> {
        self.cannot_tell();
        let mut lost = Vec::new();
        self.take_oldest(usize::MAX, |one| lost.push(one));
        lost
    }

    /// Whether a request without an answer is about any of these holds.
    pub(super) fn has_unanswered(&self) -> bool {
        self.asked > 0 || self.rare.as_ref().is_some_and(|rare| rare.unanswered > 0)
    }

    /// Redis has nothing of the lock, while a request is under way. Returns the holds that are lost by that: those
    /// which the request, and an earlier one without an answer, are not about.
    pub(super) fn take_not_asked(&mut self) -> Vec<Arc<Validity>> {
        let unanswered = self.rare.as_ref().map_or(0, |rare| rare.unanswered);
        let mut stay = self.asked.max(unanswered) as usize;
        let mut lost = Vec::new();
        let unconfirmed = self.handed.as_mut().map(|handed| &mut handed.unconfirmed);
        for holds in unconfirmed.into_iter().chain([&mut self.given_back]) {
            let here = stay.min(holds.len());
            lost.append(&mut holds.split_off(here));
            stay -= here;
        }
        lost
    }

    /// A request has found nothing of the lock. An earlier one without an answer may have found the lock there. So the
    /// client cannot tell whether the holds that it was about were there to their ends.
    fn cannot_tell(&mut self) {
        let unanswered = self.rare.as_mut().map_or(0, |rare| std::mem::take(&mut rare.unanswered));
        let asked = std::mem::take(&mut self.asked).max(unanswered);
        let mut untold = Vec::new();
        self.take_oldest(asked as usize, |one| untold.push(one));
        if !untold.is_empty() {
            untold.retain(is_awaited);
            self.rare().untold.append(&mut untold);
        }
    }

    /// The lock is handed off: a caller may have yet to ask what became of the holds that were given back.
    pub(super) fn goes_on_after_returned(&mut self) {
        self.forget_unawaited();
        let earlier = self.unconfirmed().len();
        // Whether it is awaited may change at any moment.
        let before = self.given_back.take();
        let before: Vec<_> =
            before.into_iter().map(|one| is_awaited(&one).then_some(one)).collect();
        let is_left = |many: u32| {
            let asked = before.iter().take((many as usize).saturating_sub(earlier));
            many - asked.filter(|one| one.is_none()).count() as u32
        };
        self.asked = is_left(self.asked);
        self.rare.iter_mut().for_each(|rare| rare.unanswered = is_left(rare.unanswered));
        self.handed().unconfirmed.extend(before.into_iter().flatten());
    }

    fn take_oldest(&mut self, many: usize, mut each: impl FnMut(Arc<Validity>)) {
        let mut left = many;
        let unconfirmed = self.handed.as_mut().map(|handed| &mut handed.unconfirmed);
        for holds in unconfirmed.into_iter().chain([&mut self.given_back]) {
            let here = left.min(holds.len());
            holds.take_first(here, &mut each);
            left -= here;
        }
    }

    /// The last hand-off took the guard that was just being dropped for one whose call waits. Those that no request is
    /// about are needed for nothing once no call waits for them.
    fn forget_unawaited(&mut self) {
        let unanswered = self.rare.as_ref().map_or(0, |rare| rare.unanswered);
        let asked = self.asked.max(unanswered) as usize;
        let Some(handed) = &mut self.handed else { return };
        let awaited = handed.unconfirmed.iter().rposition(is_awaited).map_or(0, |last| last + 1);
        let kept = awaited.max(asked).min(handed.unconfirmed.len());
        drop(handed.unconfirmed.split_off(kept));
    }

    pub(super) fn unconfirmed(&self) -> &[Arc<Validity>] {
        self.handed.as_ref().map_or(&[], |handed| &handed.unconfirmed)
    }

    /// Whether the lock was handed off after that hold, and no request has said since that the hold was there.
    pub(crate) fn is_unconfirmed(&self, validity: &Arc<Validity>) -> bool {
        self.unconfirmed().iter().any(|one| Arc::ptr_eq(one, validity))
    }

    /// Whether no answer can say any more that this hold was there to its end, or that it was not.
    pub(crate) fn is_untold(&self, validity: &Arc<Validity>) -> bool {
        let of = |one: &Arc<Validity>| Arc::ptr_eq(one, validity);
        self.rare.as_ref().is_some_and(|rare| rare.untold.iter().any(of))
    }
}

/// Whether a call has yet to hear what became of that hold.
fn is_awaited(validity: &Arc<Validity>) -> bool {
    Arc::strong_count(validity) > 1
}
