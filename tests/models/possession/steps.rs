//! Which steps are possible.

use super::state::{Call, Client, Hold, InFlight, LATE, SLOTS, Slot, State};
use super::{Bug, Possession};
use crate::{At, those_that};

/// One step: of a client, and of a possession or a handle.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Step {
    // These happen sooner or later.
    /// The head of the wait queue asks.
    Ask(usize),
    /// The client says what it has to say of a possession.
    Send(usize, usize),
    Execute(usize, usize),
    Answer(usize, usize),
    ExecuteRenewal(usize, usize),
    AnswerRenewal(usize, usize),
    /// A guard goes, and the lock is handed off if it can be.
    GiveBack(usize, usize, usize),
    /// A guard goes, and the lock is to be released although it could be handed off.
    LetGo(usize, usize, usize),
    /// The background hands off what it was to release.
    HandOff(usize, usize),
    /// A deadline passes.
    Deadline(usize, usize, usize),
    /// The lease ends.
    Expire,

    // These need not happen: what users and the watchdog begin, and late requests.
    Call(usize, usize),
    Nest(usize, usize),
    Renew(usize, usize),
    ExecuteLate(usize, usize, usize),

    // Faults. A cancellation is one for the count.
    /// A request is sent, and a fault is meant to meet it.
    AskSlowly(usize),
    SendSlowly(usize, usize),
    Cut(usize, usize),
    GiveUp(usize, usize),
    GiveUpRenewal(usize, usize),
    Cancel(usize, usize),
    /// A waiter is dropped with the lock in its hands.
    Decline(usize, usize),
    Crash(usize),
    /// The key is deleted.
    Rob,
}

impl crate::Step for Step {
    const BEGUN: Self = Self::Call(0, 0);
    const FAULT: Self = Self::AskSlowly(0);
}

impl Possession {
    /// The steps that are possible.
    pub(crate) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (c, client) in state.clients.iter().enumerate() {
            for s in 0..SLOTS {
                let late = (0..LATE).filter(|&i| client.slots[s].late[i].is_some());
                steps.extend(late.map(|i| Step::ExecuteLate(c, s, i)));
                if client.up {
                    self.slot_steps((c, s), client, state.faults > 0, steps);
                }
            }
            if client.up {
                self.handle_steps(c, client, state.faults > 0, steps);
            }
        }
        let there = state.key().is_some();
        let robs = there && state.faults > 0 && self.robs;
        steps.extend(those_that([(there, Step::Expire), (robs, Step::Rob)]));
    }

    fn slot_steps(&self, (c, s): At, client: &Client, faults: bool, steps: &mut Vec<Step>) {
        let slot = &client.slots[s];
        match slot.in_flight {
            Some(InFlight { reply: None, .. }) => steps.push(Step::Execute(c, s)),
            Some(_) => steps.push(Step::Answer(c, s)),
            None => {}
        }
        if let Some(request) = self.next_request(client, slot) {
            steps.push(Step::Send(c, s));
            if faults && !self.every_step && request.count == 0 {
                steps.push(Step::SendSlowly(c, s));
            }
        }
        if slot.in_flight.is_some_and(|in_flight| faults || in_flight.slow) {
            steps.extend([Step::Cut(c, s), Step::GiveUp(c, s)]);
        }
        if let Some(renewal) = slot.renewal {
            let executed = renewal.reply.is_some();
            let next = if executed { Step::AnswerRenewal } else { Step::ExecuteRenewal };
            steps.push(next(c, s));
            steps.extend(faults.then_some(Step::GiveUpRenewal(c, s)));
        }
        for (i, hold) in slot.holds.iter().enumerate() {
            let Some(hold) = hold else { continue };
            steps.push(Step::GiveBack(c, s, i));
            let mut without = *slot;
            (without.holds[i], without.until.valid) = (None, slot.until.valid && hold.until.valid);
            let passes = hold.until.valid && (slot.live() > 1 || self.every_step);
            steps.extend(those_that([
                (self.can_hand_off(client, &without), Step::LetGo(c, s, i)),
                (passes, Step::Deadline(c, s, i)),
            ]));
        }
        steps.extend(those_that([
            (self.can_hand_off(client, slot), Step::HandOff(c, s)),
            (faults && slot.unclaimed && slot.is_valid(), Step::Decline(c, s)),
        ]));
        let handle = &client.handles[usize::from(slot.inside)];
        let nests = handle.role.inner.is_some() && handle.call == Call::None && handle.calls > 0;
        let inside = slot.live() == 1 && slot.is_valid() && slot.in_flight.is_none();
        let watched = |hold: &Hold| hold.long && hold.until.valid;
        let watched = slot.holds.iter().flatten().any(watched) && slot.renewal.is_none();
        // It would make a shorter lease longer again, or believe that it did.
        let shortens = slot.in_flight.is_some_and(|in_flight| in_flight.request.may_shorten());
        let waits = shortens && self.bug != Some(Bug::RenewalBeside);
        steps.extend(those_that([
            (nests && inside && !slot.is_pending(), Step::Nest(c, s)),
            (watched && client.renewals > 0 && !waits, Step::Renew(c, s)),
        ]));
    }

    fn handle_steps(&self, c: usize, client: &Client, faults: bool, steps: &mut Vec<Step>) {
        for (h, handle) in client.handles.iter().enumerate() {
            let inside = client
                .slots
                .iter()
                .any(|slot| usize::from(slot.inside) == h && (slot.is_valid() || slot.unclaimed));
            let calls = handle.calls > 0 && handle.call == Call::None && !inside;
            let asks = handle.call == Call::Waiting && handle.position == 1 && client.wake;
            steps.extend(those_that([
                (calls, Step::Call(c, h)),
                (asks, Step::Ask(c)),
                (asks && faults && !self.every_step, Step::AskSlowly(c)),
            ]));
            let met = client.slots.iter().any(|slot| {
                let slow = slot.in_flight.is_some_and(|in_flight| in_flight.slow);
                slow && usize::from(slot.inside) == h
            });
            // Beside a renewal, the undo of a nested acquire would wait for that one's answer.
            let renewed = |slot: &Slot| usize::from(slot.inside) == h && slot.renewal.is_some();
            let nests = handle.position == 0 && handle.call == Call::Asking;
            let nests = nests && !client.slots.iter().any(renewed);
            let drops = (handle.position > 0 || nests) && (faults || met);
            steps.extend(drops.then_some(Step::Cancel(c, h)));
        }
        let slow = |in_flight: InFlight| in_flight.slow;
        let met = client.slots.iter().any(|slot| slot.in_flight.is_some_and(slow));
        steps.extend((faults || met).then_some(Step::Crash(c)));
    }
}
