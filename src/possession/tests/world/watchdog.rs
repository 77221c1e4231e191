//! The watchdog, and what holds at any time.

use super::*;

impl World {
    /// Live guards that the watchdog renews.
    pub(super) fn watched(&self) -> impl Iterator<Item = Instant> {
        let is_watched = |guard: &&Guard| guard.own.is_none() && self.unclaimed != Some(guard.hold);
        let watched = self.guards.iter().filter(is_watched);
        watched.filter_map(|guard| guard.validity.check(self.now))
    }

    pub(super) fn watch(&mut self) {
        let since = self.holds().watched_since(self.inside);
        if since.is_some() {
            self.scheduled.insert(self.inside);
        }
    }

    pub(super) fn look(&mut self) {
        for handle in self.scheduled.clone() {
            let found = self.holds().renewal(handle, self.now, PERIOD, Duration::MAX);
            let first = self.watched().min();
            match found {
                Renewal::Due { until, shortened } => {
                    assert_eq!(handle, self.inside);
                    assert_eq!(Some(until), first, "the first deadline decides");
                    self.order += 1;
                    let (sent, order) = (self.now, self.order);
                    self.renewing = Some(Renewing { shortened, sent, order, reply: None });
                }
                Renewal::NotBefore(at) => {
                    assert!(at > self.now, "it would look again and again");
                    let in_time = first.is_some_and(|until| at < until);
                    // The client's thread has it written, or finds out that Redis does not answer.
                    assert!(in_time || self.update_queued, "it would look too late");
                }
                Renewal::Idle { .. } => {
                    assert!(handle != self.inside || first.is_none(), "a guard needs a renewal");
                    self.scheduled.remove(&handle);
                }
                Renewal::Over { .. } => unreachable!("there is no limit"),
            }
        }
    }

    pub(super) fn arrive_renewal(&mut self) {
        let before = self.renewing.as_ref().map_or(0, |renewing| renewing.order);
        let first = |request: &Request| request.reply.is_none() && request.order < before;
        if self.request.as_ref().is_some_and(first) {
            self.arrive();
        }
        let (now, id) = (self.server_time(), self.possession.id());
        if let Some(Renewing { reply: reply @ None, .. }) = &mut self.renewing {
            *reply = Some(self.redis.renew(&id, millis(WATCHDOG), now).is_ok());
        }
    }

    pub(super) fn answer_renewal(&mut self, lost: bool) {
        let Some(Renewing { shortened, sent, order, reply }) = self.renewing.take() else { return };
        match reply {
            _ if lost => self.holds().renewal_ends(),
            Some(true) => drop(self.holds().renewed(shortened, sent, WATCHDOG, self.now)),
            Some(false) => {
                self.holds().renewal_ends();
                self.possession.lose(FoundBy::Renewal, Loss::KeyGone, self.now);
            }
            None => self.renewing = Some(Renewing { shortened, sent, order, reply }),
        }
    }

    /// What holds after every step.
    pub(super) fn check(&mut self) {
        let count = self.count();
        let counted = self.holds().counted;
        assert!(count <= counted, "Redis counts {count} and the hold state knows of {counted}");
        let server_time = |at: Instant| server_time(at - self.base);
        for guard in &mut self.guards {
            let valid = guard.validity.check(self.now);
            assert!(guard.own.is_none() || valid <= guard.own, "longer than it was asked for");
            let promised = Some(guard.until).filter(|until| *until > self.now);
            assert!(guard.betrayed || valid >= promised, "a guard was promised something else");
            // Loss never heals.
            guard.until = valid.unwrap_or(self.now);
            let Some(until) = valid.filter(|_| !guard.betrayed) else { continue };
            let last = server_time(until - Duration::from_nanos(1));
            let held = self.redis.lock.as_ref().filter(|held| *held.owner == *self.possession.id());
            let ends = held.and_then(|held| held.ends);
            assert!(
                ends.is_some_and(|ends| last < ends),
                "valid until {:?}, {last} to the server, where the key ends at {ends:?}",
                until - self.base
            );
        }
        if self.request.is_none() && self.pending().is_none() {
            // The callers that waited for that know.
            self.given_back.clear();
        }
        for guard in self.given_back.iter().filter(|guard| !guard.betrayed) {
            let gone = guard.validity.is_gone() && self.now < guard.until;
            assert!(!gone, "a hold that was given back was set to lost");
        }
        self.hear();
        self.check_gaps();
        let unwatched = self.scheduled.is_empty() && self.renewing.is_none();
        let needed = self.watched().count() > 0;
        assert!(!(unwatched && needed), "the watchdog does not renew this lease");
    }

    /// Those who wait for a confirmation have it.
    pub(super) fn hear(&mut self) {
        self.awaits.retain_mut(|awaits| match awaits.confirmation.try_recv() {
            Ok(Ok(true)) => {
                assert!(awaits.asked, "no request was sent since");
                false
            }
            Ok(_) => false,
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(closed) => panic!("no confirmation will come: {closed}"),
        });
    }

    /// All guards go, the network is well again, and the background sends the pending release.
    pub(in crate::possession::tests) fn end(&mut self) {
        self.run(&Op::GiveUp { arrived: true });
        self.run(&Op::Claim);
        for op in [Op::ArriveRenewal, Op::AnswerRenewal { lost: false }] {
            self.run(&op);
        }
        while self.update_queued {
            for op in [Op::Update, Op::Arrive, Op::Answer] {
                self.run(&op);
            }
        }
        while !self.guards.is_empty() {
            self.run(&Op::GiveBack(0));
        }
        for op in [Op::Pay, Op::Arrive, Op::Answer] {
            self.run(&op);
        }
        assert_eq!(self.count(), 0, "a hold is left behind");
        assert_eq!(self.pending(), None, "one payment is enough");
        assert!(self.awaits.is_empty(), "a caller never gets its confirmation");
        self.run(&Op::Look);
        self.run(&Op::AnswerRenewal { lost: true });
        self.run(&Op::Look);
        assert!(self.scheduled.is_empty(), "the watchdog looks after a handle without holds");
    }
}
