//! The requests of the calls, of the background and of the client's thread: one at a time.

use super::*;
use crate::error::{ErrorKind, Outcome};
use crate::protocol::{Acquired, Released};

impl World {
    pub(super) fn send(&mut self, what: What) {
        let permit = self.possession.try_permit().expect("one request at a time");
        self.order += 1;
        let (sent, order) = (self.now, self.order);
        self.repeated = false;
        self.awaits.iter_mut().for_each(|awaits| awaits.asked = true);
        self.request = Some(Request { what, sent, order, reply: None, _permit: permit });
    }

    pub(super) fn arrive(&mut self) {
        // In order.
        let before = self.request.as_ref().map_or(0, |request| request.order);
        if self.renewing.as_ref().is_some_and(|renewing| renewing.order < before) {
            self.arrive_renewal();
        }
        let (now, id) = (self.server_time(), self.possession.id());
        let Some(Request { what, reply: reply @ None, .. }) = &mut self.request else { return };
        *reply = Some(match what {
            What::Acquire { ask, requested, .. } => {
                match self.redis.acquire(&id, millis(*requested), ask.count, now) {
                    Acquired::Granted(_) => Reply::Granted,
                    Acquired::Refused { .. } => Reply::Refused,
                    Acquired::Gone(_) => Reply::Gone,
                }
            }
            What::Release { pending, .. } => {
                match self.redis.release(&id, pending.count, millis(pending.lease), now) {
                    Released::Nothing(_) => Reply::Gone,
                    Released::CountLowered | Released::Freed { .. } => Reply::Done,
                }
            }
            What::Update(Update { count, lease, .. }) => {
                let updated = self.redis.update(&id, *count, millis(*lease), now);
                updated.map_or(Reply::Gone, |()| Reply::Done)
            }
        });
    }

    pub(super) fn answer(&mut self) {
        let Some(Request { reply: Some(reply), .. }) = self.request else { return };
        let Request { what, sent, _permit: permit, .. } = self.request.take().expect("a request");
        let (possession, now) = (self.possession.clone(), self.now);
        let lose = |by| possession.lose(by, Loss::KeyGone, now);
        match (what, reply) {
            (What::Acquire { handle, ask, lease, requested }, Reply::Granted) => {
                let none = TokenBlock::default();
                let granted = self.holds().record_grant(ask, lease, requested, none, sent);
                let (hold, validity, _) = granted;
                let until = valid_until(sent, requested);
                let own = (lease != Lease::Watchdog).then_some(until);
                self.inside = handle;
                self.guards.push(Guard { hold, validity, until, own, betrayed: self.betrayed });
                self.watch();
            }
            (What::Acquire { ask, .. }, _) if ask.count == 1 => self.holds().record_refusal(),
            (What::Acquire { .. }, _) => drop(lose(FoundBy::NestedAcquire)),
            (What::Release { pending, then, confirms }, reply) => {
                let repeated = self.release_unanswered || (self.repeated && pending.count == 0);
                if matches!(reply, Reply::Gone) && !repeated {
                    self.tells();
                    lose(FoundBy::Release);
                } else {
                    self.holds().release_confirmed(pending);
                    self.confirmed(|holds| holds.take_confirms(confirms));
                    if pending.count == 0 {
                        self.gap_ends();
                    }
                }
                if let Some((handle, lease)) = then {
                    drop(permit);
                    self.acquire(handle, lease);
                }
            }
            (What::Update(update), Reply::Done) => {
                let none = TokenBlock::default();
                self.confirmed(|holds| holds.record_update(update, none, 1, sent, now));
                self.holds().set_updating(false);
            }
            (What::Update(_), _) => {
                self.tells();
                lose(FoundBy::HandOff);
                self.update_queued = false;
            }
        }
    }

    pub(super) fn confirmed(&mut self, of: impl FnOnce(&mut HoldState) -> Vec<Confirm>) {
        let confirms = of(&mut self.holds());
        for confirm in confirms {
            confirm.send(Ok(true)).expect("a caller that waits");
        }
    }

    /// The request was sent once: its answer tells.
    fn tells(&self) {
        if !self.repeated {
            self.holds().forget_asked();
        }
    }

    pub(super) fn cut(&mut self, arrived: bool) {
        if arrived {
            self.arrive();
        }
        if let Some(request) = &mut self.request {
            // The lease of an acquire counts from the second sending; that of the others from the first.
            if matches!(request.what, What::Acquire { .. }) {
                request.sent = self.now;
            }
            request.reply = None;
        }
        self.repeated = true;
    }

    pub(super) fn give_up(&mut self, arrived: bool) {
        if arrived {
            self.arrive();
        }
        if let Some(Request { what: What::Update(_), .. }) = self.request.take() {
            // Of those that came since, too.
            let confirms = self.holds().take_confirms(usize::MAX);
            for confirm in confirms {
                let error = Error::new(ErrorKind::Unavailable, Outcome::Unknown, "no answer");
                let _ = confirm.send(Err(error));
            }
            self.holds().set_updating(false);
        }
    }

    pub(super) fn not_executed(&mut self) {
        let known = self.request.as_ref().is_some_and(|request| request.reply.is_none());
        // The client does not know whether Redis executed the first sending.
        if self.repeated || !known {
            return;
        }
        match self.request.as_ref().map(|request| &request.what) {
            Some(What::Acquire { ask, .. }) => {
                let ask = *ask;
                self.holds().not_executed(ask);
            }
            Some(What::Release { pending, .. }) => {
                let pending = *pending;
                self.holds().release_not_executed(pending, self.release_unanswered);
            }
            _ => {}
        }
        self.give_up(false);
    }
}
