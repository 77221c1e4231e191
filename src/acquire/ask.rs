//! One try: a request for a nested hold, or for the first one of a new possession.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Replicas;
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::handle::Handle;
use crate::metrics::Operation;
use crate::possession::{AcquiredHold, Ask, FoundBy, Held, Nesting, Possession};
use crate::protocol::{Acquired, Call, QueueEntry, ServerClock, Terms};
use crate::releaser::PossessionSession;
use crate::token::TokenBlock;
use crate::wait::Ticket;

use super::readers::found_beside;
use super::{Acquisition, One, Question, Tried, longest_wait};

/// For how long readers may join without a request at most, where an answer takes no longer.
const LONGEST_SHARE: Duration = Duration::from_secs(1);

impl Question for One<'_> {
    type Holds = Held;

    fn handles(&self) -> &[Arc<Handle>] {
        std::slice::from_ref(self.handle)
    }

    /// Asks Redis once: for a nested hold if the handle is inside, else for a first one.
    async fn try_once(
        acquisition: &Acquisition<'_, Self>,
        mut now: Instant,
        gives_up_at: Option<Instant>,
        ticket: Option<Ticket>,
    ) -> Result<Tried<Held>, Error> {
        let One { handle, .. } = acquisition.question;
        let deadline = acquisition.deadline(now, gives_up_at)?;
        loop {
            let (session, ask) = acquisition.prepare(handle, deadline, now).await?;
            let writer = acquisition.own_writer(session.possession(), ask);
            let tried = match ask.count {
                1 => acquisition.ask_first(session, ask, ticket, writer.as_ref()).await?,
                _ => acquisition.ask_nested(session, ask, ticket, writer.as_ref()).await?,
            };
            if let Some(tried) = tried {
                return Ok(tried);
            }
            now = clock::now();
        }
    }

    fn handed(acquisition: &Acquisition<'_, Self>, granted: AcquiredHold) -> Held {
        let granted = granted.into();
        acquisition.add_own_reader(&granted);
        granted
    }

    fn has_acquired(acquisition: &Acquisition<'_, Self>, granted: &Held) {
        match acquisition.question.handle.kind.is_shared() {
            true => acquisition.let_readers_in(&granted.possession),
            // The call has a part. Others of its handle would find the rest with their owners.
            false if acquisition.is_part() => {}
            false => acquisition.engine.waiters.wake_to_nest(acquisition.question.handle),
        }
    }

    fn recurs(&self) -> bool {
        self.recurs
    }

    fn fill_gap(acquisition: &Acquisition<'_, Self>) -> Option<Held> {
        let (One { handle, .. }, engine) = (acquisition.question, acquisition.engine);
        let possession = engine.possessions.in_gap(&handle.names)?;
        if acquisition.nests() {
            // Redis has lost the one in the gap, and the client has yet to hear of that.
            return None;
        }
        let to = handle.as_recipient(acquisition.lease, acquisition.requested);
        let granted = engine.releaser.fill_gap(possession, handle, to)?;
        acquisition.claimed(handle, &granted);
        Some(Self::handed(acquisition, granted))
    }

    fn join_readers(acquisition: &Acquisition<'_, Self>, passes: bool) -> Option<Held> {
        acquisition.join_readers(passes, clock::now()).inspect(|_| crate::spans::handed_off())
    }
}

impl<'a, Q> Acquisition<'a, Q> {
    /// By when a request must be answered that is made now, and for which the call waits until `gives_up_at`.
    pub(super) fn deadline(
        &self,
        now: Instant,
        gives_up_at: Option<Instant>,
    ) -> Result<Instant, Error> {
        if self.engine.waiters.is_closed() {
            return Err(Error::closed());
        }
        let deadline = now + self.engine.config.command_timeout;
        Ok(gives_up_at.into_iter().fold(deadline, Instant::min))
    }

    /// Prepares a request for one more hold: a nested one if the handle is inside, else the first one of a
    /// possession that it begins. From here on, the drop of the session undoes what Redis may grant.
    pub(super) async fn prepare(
        &self,
        handle: &Arc<Handle>,
        deadline: Instant,
        mut now: Instant,
    ) -> Result<(PossessionSession<'a>, Ask), Error> {
        loop {
            if let Some(possession) = handle.possession()
                && possession.holds.lock().is_of(handle.number)
            {
                let nested = self.prepare_nested(handle, possession, deadline, now).await?;
                if let Some((session, ask)) = nested {
                    return self.unless_closed(session, ask);
                }
                now = clock::now();
            }
            let possession = handle.begins(&self.engine.possessions);
            let mut session = self.session(possession.clone(), deadline);
            session.acquire_permit(now).await?;
            // Unless another call of this handle, or a hand-off, came first.
            if let Some(ask) = handle.asks_for(&possession) {
                return self.unless_closed(session, ask);
            }
        }
    }

    /// The hold state has the request by now: either this call sees that the client is closed, or `close` waits
    /// for that request.
    fn unless_closed(
        &self,
        session: PossessionSession<'a>,
        ask: Ask,
    ) -> Result<(PossessionSession<'a>, Ask), Error> {
        if self.engine.waiters.is_closed() {
            session.possession().holds.lock().not_executed(ask);
            return Err(Error::closed());
        }
        Ok((session, ask))
    }

    pub(super) fn session(
        &self,
        possession: Arc<Possession>,
        deadline: Instant,
    ) -> PossessionSession<'a> {
        let call = Call::new(&self.engine.router, deadline);
        PossessionSession::new(call, possession, &self.engine.releaser, None, self.requested)
    }

    /// Prepares a request for one more hold of a possession, if the handle is inside it. If its last hold was
    /// given back, the release comes before a new one, and there is none then.
    async fn prepare_nested(
        &self,
        handle: &Handle,
        possession: Arc<Possession>,
        deadline: Instant,
        now: Instant,
    ) -> Result<Option<(PossessionSession<'a>, Ask)>, Error> {
        let mut session = self.session(possession.clone(), deadline);
        let mut now = session.acquire_permit(now).await?;
        loop {
            let nesting = {
                let mut holds = possession.holds.lock();
                let nesting = holds.ask_nested(handle.number, now);
                if let Nesting::Ask(_) = nesting {
                    holds.asks_for_lease(self.lease, self.requested, now);
                }
                nesting
            };
            match nesting {
                Nesting::Ask(ask) => return Ok(Some((session, ask))),
                Nesting::ReleaseFirst => {
                    Box::pin(session.send_release(now)).await?;
                    now = clock::now();
                }
                Nesting::Over => return Ok(None),
            }
        }
    }
}

impl Acquisition<'_, One<'_>> {
    /// Asks Redis for one more hold of a possession. `None` if that is gone. A reader can be refused: it is not its
    /// turn.
    async fn ask_nested(
        &self,
        mut session: PossessionSession<'_>,
        ask: Ask,
        ticket: Option<Ticket>,
        beside: Option<&Arc<Possession>>,
    ) -> Result<Option<Tried<Held>>, Error> {
        let One { handle, .. } = self.question;
        let entry = self.nested_entry(ticket);
        let (acquired, sent, _) = self.ask(handle, &mut session, ask, 0, entry, beside).await?;
        let possession = session.possession();
        let loss = match acquired {
            // The holds on which it was to stand were lost meanwhile.
            Acquired::Granted(_) if possession.holds.lock().is_lost() => return Ok(None),
            Acquired::Granted(tokens) => {
                self.await_replicas(&mut session).await?;
                let granted = self.add_granted(handle, session.possession(), ask, tokens, sent);
                let Some(granted) = granted.map(Held::from) else { return Ok(None) };
                self.add_own_reader(&granted);
                self.entered(handle, session.possession(), true);
                return Ok(Some(Tried::Granted(granted)));
            }
            Acquired::Gone(loss) => loss,
            Acquired::Refused { remaining, holder, repeated } if handle.kind.is_shared() => {
                // Its lease may be there, if Redis executed it when it was sent first.
                if !repeated {
                    possession.holds.lock().not_executed(ask);
                }
                return Ok(Some(Tried::Refused { of: 0, remaining, holder }));
            }
            Acquired::Refused { .. } => Loss::TakenOver,
        };
        self.engine.losses.found_gone(possession, FoundBy::NestedAcquire, loss);
        Ok(None)
    }

    /// Asks Redis for the first hold of a possession, which this handle begins. `None` if the one is gone beside which
    /// it was to stand.
    pub(super) async fn ask_first(
        &self,
        mut session: PossessionSession<'_>,
        ask: Ask,
        ticket: Option<Ticket>,
        beside: Option<&Arc<Possession>>,
    ) -> Result<Option<Tried<Held>>, Error> {
        let Self { engine, question: One { handle, .. }, .. } = *self;
        let mut reclaimed = false;
        loop {
            let tokens = match handle.kind.has_token() {
                true => engine.waiters.tokens_wanted(&handle.names, &engine.config).max(1),
                false => handle.kind.reads_token().into(),
            };
            let entry =
                self.bring_entry(handle, ticket).map(|entry| QueueEntry { tokens, ..entry });
            let came = entry.as_ref().and_then(|entry| entry.since);
            let (acquired, sent, clock) =
                self.ask(handle, &mut session, ask, tokens, entry, beside).await?;
            match acquired {
                Acquired::Granted(tokens) => {
                    self.await_replicas(&mut session).await?;
                    let granted = self.add_granted(handle, session.possession(), ask, tokens, sent);
                    let Some(granted) = granted.map(Held::from) else { return Ok(None) };
                    self.add_own_reader(&granted);
                    self.entered(handle, session.possession(), false);
                    return Ok(Some(Tried::Granted(granted)));
                }
                Acquired::Refused { remaining, holder, .. } => {
                    self.take_own_grant(&handle.names, &holder, remaining, came, sent, clock);
                    let deadline = session.call.deadline;
                    if reclaimed || !self.reclaim(&handle.names, &holder, deadline).await {
                        session.possession().holds.lock().record_refusal();
                        return Ok(Some(Tried::Refused { of: 0, remaining, holder }));
                    }
                    reclaimed = true;
                }
                Acquired::Gone(loss) => {
                    let Some(beside) = beside else {
                        // A first hold stands on no other: Redis does not say this.
                        let (kind, message) = (ErrorKind::Server, "a first hold was gone");
                        return Err(Error::new(kind, Outcome::Unknown, message));
                    };
                    session.possession().holds.lock().record_refusal();
                    engine.losses.found_gone(beside, found_beside(handle), loss);
                    return Ok(None);
                }
            }
        }
    }
}

impl<Q> Acquisition<'_, Q> {
    /// What a request says of this client's entry, if Redis keeps a queue. A call that waits in no queue brings none.
    pub(super) fn bring_entry(
        &self,
        handle: &Handle,
        ticket: Option<Ticket>,
    ) -> Option<QueueEntry> {
        let engine = self.engine;
        handle.names.is_in_order().then(|| match ticket {
            None => QueueEntry::none(engine.config.fair_grace),
            Some(ticket) => engine.waiters.bring_entry_for(ticket, &handle.names, &engine.config),
        })
    }

    /// Sends one request for a hold. Returns also when it was sent, and the server's time.
    async fn ask(
        &self,
        handle: &Handle,
        session: &mut PossessionSession<'_>,
        ask: Ask,
        tokens: u32,
        entry: Option<QueueEntry>,
        beside: Option<&Arc<Possession>>,
    ) -> Result<(Acquired, Instant, Option<ServerClock>), Error> {
        let Self { engine, requested, .. } = *self;
        let names = &handle.names;
        let terms = Terms { count: ask.count, lease: requested, tokens };
        let beside = beside.map(|beside| beside.id());
        let (acquired, sent, news) = session.acquire(ask, terms, entry, beside.as_deref()).await?;
        engine.releaser.answered(sent);
        engine.waiters.record_foreign(names, news.foreign);
        engine.waiters.record_clock(names, news.clock);
        if let Some(is_first) = news.is_first {
            engine.waiters.record_rank(names, is_first);
        }
        let is_granted = matches!(acquired, Acquired::Granted(_));
        if is_granted && handle.kind.is_shared() {
            engine.waiters.record_reader(names, entry);
        }
        if is_granted && let Some(foreign) = news.foreign {
            // For as long as a hand-off may keep others out, or as long as it takes to ask again.
            let (now, own) = (clock::now(), engine.config.max_handoff_time);
            let open_until = now + own.max(now.saturating_duration_since(sent)).min(LONGEST_SHARE);
            let is_open = foreign.oldest.is_none();
            session.possession().holds.lock().set_share(is_open.then_some(open_until));
        }
        Ok((acquired, sent, news.clock))
    }

    /// Redis has granted a hold by a request that was sent at `sent`. `None` if the holds are lost on which it was to
    /// stand: looked at under the same mutex, or a loss that is found meanwhile would not know of this hold.
    pub(super) fn add_granted(
        &self,
        handle: &Arc<Handle>,
        possession: &Arc<Possession>,
        ask: Ask,
        tokens: TokenBlock,
        sent: Instant,
    ) -> Option<AcquiredHold>
    where
        Q: Question,
    {
        let hold = {
            let mut holds = possession.holds.lock();
            if ask.count > 1 && holds.is_lost() {
                return None;
            }
            let hold = holds.record_grant(ask, self.lease, self.requested, tokens, sent);
            holds.renews_reader_from(sent, self.lease, self.question.recurs());
            hold
        };
        handle.enter(possession);
        self.engine.watchdog.watch(handle);
        Some(AcquiredHold::new(possession.clone(), hold, self.requested))
    }

    /// Waits until enough replicas have the grant. If too few have it, gives it back at once.
    async fn await_replicas(&self, session: &mut PossessionSession<'_>) -> Result<(), Error> {
        match self.engine.config.replicas {
            Some(replicas) => Box::pin(self.replicated_or_undone(session, replicas)).await,
            None => Ok(()),
        }
    }

    async fn replicated_or_undone(
        &self,
        session: &mut PossessionSession<'_>,
        replicas: Replicas,
    ) -> Result<(), Error> {
        let Err(error) = self.replicated(session, replicas).await else { return Ok(()) };
        Err(match session.send_release(clock::now()).await {
            Ok(_) => error.undone(),
            // The client tries again in the background.
            Err(_) => error,
        })
    }

    /// Waits until enough replicas have what Redis has written for that session, and before it.
    pub(super) async fn replicated(
        &self,
        session: &PossessionSession<'_>,
        replicas: Replicas,
    ) -> Result<(), Error> {
        self.awaits_replicas.store(true, Ordering::Relaxed);
        let possession = session.possession();
        let (router, events) = (&self.engine.router, &self.engine.events);
        let longest = longest_wait(replicas, router.round_trip_of(possession.names.key()));
        let deadline = session.call.deadline.max(clock::now() + longest);
        let mut timing = events.metrics.asks(Operation::Wait);
        timing.begins(clock::now);
        let answer =
            Call::await_replicas(router, &possession.names, &possession.id(), replicas, deadline)
                .await;
        events.metrics.record_answer(timing, true, answer.as_ref().err());
        answer
    }
}
