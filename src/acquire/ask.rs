//! One try: a request for a nested hold, or for the first one of a new possession.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::config::Replicas;
use crate::error::{Error, ErrorKind, Loss, Outcome};
use crate::possession::{AcquiredHold, Ask, FoundBy, Nesting, Possession};
use crate::protocol::{Acquired, Call, QueueEntry, ServerClock};
use crate::releaser::PossessionSession;
use crate::token::TokenBlock;
use crate::wait::{SILENCE, Ticket};

use super::{Acquisition, Tried};

/// For how long readers may join without a request at most, where an answer takes no longer.
const LONGEST_SHARE: Duration = Duration::from_secs(1);

impl Acquisition<'_> {
    /// Asks Redis once: for a nested hold if the handle is inside, else for a first one. The call can wait for
    /// the answer until `gives_up_at`. `ticket` is that of a waiter.
    pub(super) async fn try_once(
        &self,
        mut now: Instant,
        gives_up_at: Option<Instant>,
        ticket: Option<Ticket>,
    ) -> Result<Tried, Error> {
        let Self { engine, handle, .. } = self;
        if engine.waiters.is_closed() {
            return Err(Error::closed());
        }
        let deadline =
            gives_up_at.into_iter().fold(now + engine.config.command_timeout, Instant::min);
        loop {
            if let Some(possession) = handle.last()
                && possession.holds.lock().is_of(handle.number)
            {
                if let Some(tried) = self.nest(&possession, deadline, now, ticket).await? {
                    return Ok(tried);
                }
                now = clock::now();
            }
            let possession = handle.begins(&engine.possessions);
            let call = Call::new(&engine.router, deadline);
            let mut session =
                PossessionSession::new(call, &possession, &engine.releaser, None, self.requested);
            session.acquire_permit(now).await?;
            if engine.waiters.is_closed() {
                return Err(Error::closed());
            }
            // From here on, the drop of the session undoes what Redis may have granted. Unless another call
            // of this handle, or a hand-off, came first.
            if let Some(ask) = handle.asks_for(&possession) {
                return self.ask_first(session, ask, ticket).await;
            }
        }
    }

    /// Asks Redis for one more hold of a possession, if the handle is inside it. If its last hold was given
    /// back, the release comes before a new one, and there is none then. A reader can be refused: it is not its
    /// turn.
    async fn nest(
        &self,
        possession: &Arc<Possession>,
        deadline: Instant,
        now: Instant,
        ticket: Option<Ticket>,
    ) -> Result<Option<Tried>, Error> {
        let Self { engine, handle, .. } = self;
        let call = Call::new(&engine.router, deadline);
        let mut session =
            PossessionSession::new(call, possession, &engine.releaser, None, self.requested);
        let mut now = session.acquire_permit(now).await?;
        loop {
            // From here on, the drop of the session undoes what Redis may have granted.
            let nesting = possession.holds.lock().ask_nested(handle.number, now);
            match nesting {
                Nesting::Ask(ask) => {
                    let entry = self.nested_entry(ticket);
                    let (acquired, sent, _) =
                        self.ask(&mut session, possession, ask, 0, entry).await?;
                    let loss = match acquired {
                        // The holds on which it was to stand were lost meanwhile.
                        Acquired::Granted(_) if possession.holds.lock().is_over() => {
                            return Ok(None);
                        }
                        Acquired::Granted(tokens) => {
                            self.await_replicas(&mut session).await?;
                            let granted = self.granted(possession, ask, tokens, sent);
                            return Ok(Some(Tried::Granted(granted)));
                        }
                        Acquired::Gone(loss) => loss,
                        Acquired::Refused { remaining, holder } if handle.kind.is_shared() => {
                            return Ok(Some(Tried::Refused { remaining, holder }));
                        }
                        Acquired::Refused { .. } => Loss::TakenOver,
                    };
                    engine.losses.found_gone(possession, FoundBy::NestedAcquire, loss);
                    return Ok(None);
                }
                Nesting::ReleaseFirst => {
                    Box::pin(session.send_release(now)).await?;
                    now = clock::now();
                }
                Nesting::Over => return Ok(None),
            }
        }
    }

    /// Asks Redis for the first hold of a possession, which this handle begins.
    async fn ask_first(
        &self,
        mut session: PossessionSession<'_>,
        ask: Ask,
        ticket: Option<Ticket>,
    ) -> Result<Tried, Error> {
        let Self { engine, handle, .. } = self;
        let possession = session.possession();
        let mut reclaimed = false;
        loop {
            let tokens = match handle.kind.has_token() {
                true => engine.waiters.tokens_wanted(&handle.names).max(1),
                false => 0,
            };
            let entry = self.queue_entry(ticket).map(|entry| QueueEntry { tokens, ..entry });
            let came = entry.as_ref().and_then(|entry| entry.since);
            let (acquired, sent, clock) =
                self.ask(&mut session, possession, ask, tokens, entry).await?;
            match acquired {
                Acquired::Granted(tokens) => {
                    self.await_replicas(&mut session).await?;
                    let granted = self.granted(possession, ask, tokens, sent);
                    return Ok(Tried::Granted(granted));
                }
                Acquired::Refused { remaining, holder } => {
                    self.take_own_grant(&holder, remaining, came, sent, clock);
                    if reclaimed || !self.reclaim(&holder, session.call.deadline).await {
                        possession.holds.lock().refused();
                        return Ok(Tried::Refused { remaining, holder });
                    }
                    reclaimed = true;
                }
                // A first hold stands on no other: Redis does not say this.
                Acquired::Gone(_) => {
                    return Err(Error::new(
                        ErrorKind::Server,
                        Outcome::Unknown,
                        "a first hold was gone",
                    ));
                }
            }
        }
    }

    /// What a request says of this client's entry, if Redis keeps a queue. A call that waits in no queue brings none.
    pub(super) fn queue_entry(&self, ticket: Option<Ticket>) -> Option<QueueEntry> {
        let Self { engine, handle, .. } = *self;
        handle.names.is_in_order().then(|| match ticket {
            None => QueueEntry::none(engine.config.fair_grace),
            Some(ticket) => {
                let oldest = engine.waiters.queue_entry(&handle.names, &engine.config, false);
                QueueEntry { of_another: oldest.ticket != ticket, ..oldest }
            }
        })
    }

    /// Sends one request for a hold. Returns also when it was sent, and the server's time.
    async fn ask(
        &self,
        session: &mut PossessionSession<'_>,
        possession: &Possession,
        ask: Ask,
        tokens: u32,
        entry: Option<QueueEntry>,
    ) -> Result<(Acquired, Instant, Option<ServerClock>), Error> {
        let Self { engine, handle, requested, .. } = *self;
        let (names, id) = (&handle.names, &*possession.id);
        let answer = session.call.acquire(names, id, requested, ask.count, tokens, entry).await;
        if answer.as_ref().is_err_and(|error| error.outcome() == Outcome::NotExecuted) {
            possession.holds.lock().not_executed(ask);
        }
        let (acquired, sent, news) = answer?;
        engine.waiters.record_foreign(names, news.foreign);
        engine.waiters.record_clock(names, news.clock);
        if matches!(acquired, Acquired::Granted(_))
            && let Some(foreign) = news.foreign
        {
            // For as long as a hand-off may keep others out, or as long as it takes to ask again.
            let (now, own) = (clock::now(), engine.config.max_handoff_time.min(LONGEST_SHARE));
            let open_until = now + own.max(now.saturating_duration_since(sent));
            let is_open = foreign.oldest.is_none();
            possession.holds.lock().set_share(is_open.then_some(open_until));
        }
        Ok((acquired, sent, news.clock))
    }

    /// Redis has granted a hold by a request that was sent at `sent`.
    fn granted(
        &self,
        possession: &Arc<Possession>,
        ask: Ask,
        tokens: TokenBlock,
        sent: Instant,
    ) -> AcquiredHold {
        let hold = possession.holds.lock().granted(ask, self.lease, self.requested, tokens, sent);
        self.handle.enter(possession);
        self.engine.watchdog.watch(self.handle);
        self.entered(possession, ask.count > 1);
        AcquiredHold::new(possession.clone(), hold, self.requested)
    }

    /// Waits until enough replicas have the grant. If too few have it, gives it back at once.
    async fn await_replicas(&self, session: &mut PossessionSession<'_>) -> Result<(), Error> {
        match self.engine.config.replicas {
            Some(replicas) => Box::pin(self.replicated(session, replicas)).await,
            None => Ok(()),
        }
    }

    async fn replicated(
        &self,
        session: &mut PossessionSession<'_>,
        replicas: Replicas,
    ) -> Result<(), Error> {
        let engine = self.engine;
        // At most two `WAIT`s, one that is under way and its own, and the time of their answers.
        let two = 2 * replicas.timeout + SILENCE;
        let deadline = session.call.deadline.max(clock::now() + two);
        let Possession { names, id, .. } = &**session.possession();
        let replicated = Call::await_replicas(&engine.router, names, id, replicas, deadline);
        let Err(error) = replicated.await else { return Ok(()) };
        Err(match session.send_release(clock::now()).await {
            Ok(_) => error.undone(),
            // The client tries again in the background.
            Err(_) => error,
        })
    }
}
