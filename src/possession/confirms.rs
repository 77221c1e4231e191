//! The callers that wait until Redis has said that their hold was there to its end: pure state.

use super::HoldState;
use super::handoff::Confirm;

impl HoldState {
    /// A caller waits until Redis has confirmed that the possession is there. Returns whether the client's thread has
    /// to see to it.
    pub(crate) fn confirms_to(&mut self, confirm: Confirm) -> bool {
        let handed = self.handed();
        handed.confirms.push(confirm);
        !std::mem::replace(&mut handed.update_queued, true)
    }

    /// How many callers wait for a confirmation.
    pub(crate) fn confirmations_due(&self) -> usize {
        self.handed.as_ref().map_or(0, |handed| handed.confirms.len())
    }

    /// Whether so many of them have not given up.
    pub(crate) fn has_callers_that_wait(&self, many: usize) -> bool {
        let confirms = self.handed.as_ref().map_or(&[][..], |handed| &handed.confirms);
        confirms.iter().filter(|confirm| !confirm.is_closed()).take(many).count() == many
    }

    /// The first of the callers that wait for a confirmation, for which there is an answer.
    pub(crate) fn take_confirms(&mut self, many: usize) -> Vec<Confirm> {
        let Some(handed) = &mut self.handed else { return Vec::new() };
        handed.confirms.drain(..many.min(handed.confirms.len())).collect()
    }

    /// All callers that wait for a confirmation, if Redis does not have the lock: a request has found that beside
    /// another one, whose answer went to others.
    pub(crate) fn take_confirms_of_lost(&mut self) -> Vec<Confirm> {
        let gone = self.rare.as_ref().is_some_and(|rare| rare.gone.is_some());
        self.take_confirms(if gone { usize::MAX } else { 0 })
    }

    /// Whether such callers wait while a guard lives on. If every guard has run out, no call releases the lock for them.
    pub(crate) fn leaves_confirms(&self) -> bool {
        self.confirmations_due() > 0 && !self.live.is_empty()
    }
}
