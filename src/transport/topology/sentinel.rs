//! The primary that Sentinels name.
//!
//! 1. Of the Sentinels' reports the newest configuration counts, by its epoch: a Sentinel that was
//!    away for a while does not lead back to an earlier primary. One that is gone for good keeps no client from
//!    another configuration, which most of the others name.
//! 2. **A caller never asks a Sentinel.** The client's own thread listens to all of them. A caller
//!    that finds the primary wrong has it ask again, and retries meanwhile. Without a Sentinel the
//!    client goes on with the last primary.
//! 3. A report is no proof: the client asks the server for its role on every new connection. If it
//!    is a replica, the reports of the other Sentinels count. A rejection holds for a moment:
//!    while a Sentinel repeats a rejected report, the client's thread asks that server for its role
//!    again, unless the client dials it anyway, and accepts the report as soon as the server is a primary.
//! 4. The client connects to a Sentinel again as soon as to a server, while it hears none. While it hears another one, or
//!    if this one refuses it, it tries once a second.
//! 5. When the primary changes, the client uses no connection to the old one any more, even if it
//!    would still answer. It would grant locks that other clients do not see.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use redis::{ConnectionInfo, RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::backoff::{Backoff, LONGEST_PAUSE};
use crate::clock;
use crate::error::Error;
use crate::host::{Driven, here, join_rest};
use crate::signal;
use crate::transport::connection::dial::Dialer;
use crate::transport::connection::pace::Pace;
use crate::transport::connection::{ask_first, is_primary};
use crate::transport::error_class::{ErrorClass, classify, is_fatal};
use crate::transport::failure::{is_unknown_host, refused, unavailable};
use crate::transport::{Node, Router, address};

mod reports;
mod said;
use reports::{Report, Reports};
use said::{Event, Said, connect, connect_as, fetch_report};

/// How long, at least, the client waits for newer reports after the first one.
const MIN_WAIT_FOR_OTHERS: Duration = Duration::from_millis(50);

/// The shortest pause between two requests to one Sentinel.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(50);

/// The longest time without a request to a Sentinel: an event can get lost, and an outage of the server can stay
/// unnoticed.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// The pauses between the questions to a server that a Sentinel reports as the primary, but which says that it is a
/// replica.
const PROBE_PAUSES: Backoff = Backoff::new(Duration::from_millis(250), LONGEST_SILENCE);

pub(in crate::transport) struct Sentinels {
    pub(super) name: String,
    /// For each Sentinel the settings that the client tries in turn: its address with each set of credentials.
    logins: Vec<Vec<ConnectionInfo>>,
    server: ConnectionInfo,
    pub(super) primary: Arc<Node>,
    /// Whether a Sentinel has named the primary.
    found: AtomicBool,
    reports: Mutex<Reports>,
    /// Whether the log says that a Sentinel refuses the subscription.
    refused: AtomicBool,
    refresh_requested: Notify,
    /// How often another server has become the primary.
    changes: AtomicUsize,
    /// Receives a notification for each change.
    changed: signal::Sender,
}

impl Sentinels {
    pub(super) fn new(
        name: String,
        logins: Vec<Vec<ConnectionInfo>>,
        server: ConnectionInfo,
    ) -> Result<Self, Error> {
        // The client sends nothing there before it has found a primary.
        let primary = Arc::new(Node::new(server.clone())?);
        let reports = Reports::of(logins.len());
        Ok(Self {
            name,
            logins,
            server,
            primary,
            found: AtomicBool::new(false),
            reports: reports.into(),
            refused: AtomicBool::new(false),
            refresh_requested: Notify::new(),
            changes: AtomicUsize::new(0),
            changed: signal::Sender::default(),
        })
    }

    pub(super) fn found_primary(&self) -> Option<Arc<Node>> {
        self.found.load(Ordering::Acquire).then(|| self.primary.clone())
    }

    pub(super) fn changes(&self) -> signal::Receiver {
        self.changed.subscribe()
    }

    pub(super) fn changes_so_far(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    /// Has the client's thread ask every Sentinel again.
    pub(super) fn refresh(&self) {
        self.refresh_requested.notify_waiters();
    }

    /// Finds the primary: the first report counts, and others that come in as much time again.
    pub(in crate::transport) async fn find_primary(
        &self,
        router: &Router,
        mut deadline: Instant,
    ) -> Result<(), Error> {
        let (begun, answer_timeout) = (clock::now(), router.dialer.answer_timeout);
        let mut asked = JoinSet::new();
        for (number, logins) in self.logins.iter().cloned().enumerate() {
            let (name, dialer) = (self.name.clone(), router.dialer.clone());
            asked.spawn(here(async move {
                let (mut sentinel, _) = connect(&logins, &name, answer_timeout).await?;
                let said = fetch_report(&mut sentinel.connection, &name, &dialer).await;
                RedisResult::Ok((number, said?))
            }));
        }
        let (mut found, mut trouble) = (false, None::<RedisError>);
        while let Ok(Some(answer)) = clock::timeout_at(deadline, asked.join_next()).await {
            match answer {
                Ok(Ok((number, said))) => {
                    self.reported(number, said, router);
                    found = true;
                    let now = clock::now();
                    deadline = deadline
                        .min(now + MIN_WAIT_FOR_OTHERS.max(now.saturating_duration_since(begun)));
                }
                // A refusal says more than a lost connection.
                Ok(Err(error))
                    if trouble.is_none() || classify(&error) != ErrorClass::ConnectionLost =>
                {
                    trouble = Some(error);
                }
                _ => {}
            }
        }
        if found {
            return Ok(());
        }
        let sentinel = match &*self.logins {
            [only] if !trouble.as_ref().is_some_and(|error| is_unknown_host(error)) => {
                format!("the Sentinel at {}", address::name(&only[0]))
            }
            _ => "a Sentinel".to_owned(),
        };
        if let Some(error) = &trouble
            && let ErrorClass::Fatal(kind) = classify(error)
        {
            let what = format!("to name the primary `{}`", self.name);
            return Err(refused(kind, &sentinel, &what, false, error.clone()));
        }
        Err(unavailable(&format!("could not ask {sentinel}"), false, trouble))
    }

    /// Listens to all Sentinels until this future is dropped.
    pub(super) async fn keep_up(self: &Arc<Self>, router: &Arc<Router>) {
        let mut all = JoinSet::new();
        for number in 0..self.logins.len() {
            let (sentinels, router) = (self.clone(), Arc::downgrade(router));
            all.spawn(here(async move {
                let mut pace = Pace::default();
                while let Some(router) = router.upgrade() {
                    let reached = sentinels.reach(number, &router, &mut pace).await;
                    let is_refused = reached.as_ref().is_err_and(is_fatal);
                    if let Err(error) = reached {
                        tracing::debug!(%error, "a sentinel does not answer");
                        sentinels.record_silence(number, &error, &router);
                    }
                    let hears_another = sentinels.reports.lock().hears_any();
                    match pace.not_before(router.dialer.longest_pause) {
                        Some(next) if !is_refused && !hears_another => {
                            clock::sleep_until(next).await;
                        }
                        _ => clock::sleep(LONGEST_PAUSE).await,
                    }
                }
            }));
        }
        join_rest(&mut all).await;
    }

    /// Connects to one Sentinel, and listens to it until it cannot be reached.
    async fn reach(&self, number: usize, router: &Router, pace: &mut Pace) -> RedisResult<()> {
        let connected =
            connect(&self.logins[number], &self.name, router.dialer.answer_timeout).await;
        let connected = connected.inspect_err(|_| pace.record_failure(clock::now()))?;
        pace.connected();
        let begun = clock::now();
        let listened = self.listen(connected, number, router).await;
        let now = clock::now();
        pace.record_end(now.saturating_duration_since(begun), now);
        listened
    }

    async fn listen(
        &self,
        (mut sentinel, mut events): (Driven, UnboundedReceiver<Event>),
        number: usize,
        router: &Router,
    ) -> RedisResult<()> {
        let answer_timeout = router.dialer.answer_timeout;
        let subscribed = sentinel.connection.subscribe("+switch-master");
        match clock::within(answer_timeout, subscribed).await {
            // The client asks it all the same.
            Err(error) if is_fatal(&error) => {
                let is_first = !self.refused.swap(true, Ordering::Relaxed);
                router.events.sentinel_refuses(&error, is_first);
            }
            subscribed => subscribed?,
        }
        let (mut probe, mut probed, mut reported) = (PROBE_PAUSES, None, false);
        loop {
            let refresh_requested = self.refresh_requested.notified();
            match fetch_report(&mut sentinel.connection, &self.name, &router.dialer).await {
                Ok(said) => {
                    reported = false;
                    self.reported(number, said.clone(), router);
                    if !self.has_to_be_probed(number, &said.report) {
                        (probe, probed) = (PROBE_PAUSES, None);
                    } else if is_due(probed, &probe) {
                        let is_primary = tokio::select! {
                            biased;
                            event = events.recv() => {
                                go_on(event)?;
                                clock::sleep(MIN_REQUEST_INTERVAL).await;
                                continue;
                            }
                            is_primary = self.is_primary_now(&said.report, &router.dialer) => is_primary,
                        };
                        if is_primary {
                            self.reports.lock().accept(|report| *report == said.report);
                            self.reported(number, said, router);
                        }
                        (_, probed) = (probe.next(), Some(clock::now()));
                    }
                }
                Err(error) if classify(&error) == ErrorClass::ConnectionLost => return Err(error),
                // The Sentinel does not know the name any more.
                Err(error) => {
                    self.record_silence(number, &error, router);
                    if !std::mem::replace(&mut reported, true) {
                        router.events.primary_unknown(&error);
                    }
                }
            }
            clock::sleep(MIN_REQUEST_INTERVAL).await;
            let silence = if probed.is_some() { probe.last() } else { LONGEST_SILENCE };
            tokio::select! {
                biased;
                () = refresh_requested => {}
                event = events.recv() => go_on(event)?,
                () = clock::sleep(silence) => {}
            }
        }
    }

    /// Whether the last report of that Sentinel is rejected, and the client does not dial its server anyway.
    fn has_to_be_probed(&self, number: usize, report: &Report) -> bool {
        let is_dialled = self.name_of(report) == address::name(&self.primary.info());
        !is_dialled && self.reports.lock().is_rejected(number)
    }

    /// Whether the server of a rejected report answers as the primary by now.
    async fn is_primary_now(&self, report: &Report, dialer: &Dialer) -> bool {
        let info = address::at(&self.server, &report.host, report.port);
        let asked = async {
            let (mut server, _) = connect_as(info, &self.name, dialer.answer_timeout).await?;
            let ask = [redis::cmd("ROLE")];
            let role = ask_first(&mut server.connection, &dialer.name, ask);
            clock::within(dialer.answer_timeout, role).await
        };
        matches!(asked.await, Ok([role]) if is_primary(&role))
    }

    /// That server has answered as the primary.
    pub(super) fn accept(&self, server: &str) {
        self.reports.lock().accept(|report| self.name_of(report) == server);
    }

    /// That Sentinel cannot be reached, or does not name the primary any more.
    fn record_silence(&self, number: usize, error: &RedisError, router: &Router) {
        let is_news = self.reports.lock().record_silence(number, clock::now());
        if is_news {
            router.events.sentinels_silent(error);
        }
    }

    fn reported(&self, number: usize, said: Said, router: &Router) {
        let mut reports = self.reports.lock();
        let is_news = reports.record(number, said.report, said.known, said.asked);
        self.follow_newest(reports, router);
        if is_news {
            router.events.sentinels_heard();
        }
    }

    /// Rejects the reports of that server: it is a replica.
    pub(super) fn reject(&self, server: &str, router: &Router) {
        let mut reports = self.reports.lock();
        if reports.reject(|report| self.name_of(report) == server) {
            // It has to be probed.
            self.refresh();
        }
        self.follow_newest(reports, router);
    }

    /// Follows the newest report. It holds the mutex until then: else it could follow an older
    /// report after a newer one.
    fn follow_newest(&self, reports: MutexGuard<'_, Reports>, router: &Router) {
        let Some(newest) = reports.newest() else { return };
        let info = address::at(&self.server, &newest.host, newest.port);
        let name = address::name(&info);
        let moves = name != address::name(&self.primary.info());
        let earlier = moves.then(|| self.primary.moves_to(info).unwrap_or_default());
        // Before the news of it, which have calls and drivers of subscriptions look whether a primary is found.
        let is_first = !self.found.swap(true, Ordering::AcqRel);
        drop(reports);
        if let Some(earlier) = earlier {
            router.events.primary_changed(&name, is_first);
            // Before the number: with the new one no answer of the earlier server counts as one of the new server.
            router.retire(earlier);
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        if moves || is_first {
            self.changed.send();
        }
    }

    fn name_of(&self, report: &Report) -> String {
        address::name(&address::at(&self.server, &report.host, report.port))
    }
}

/// What to do after an event: to ask again. An error if it is the end of the connection.
fn go_on(event: Option<Event>) -> RedisResult<()> {
    if event == Some(Event::Switch) {
        return Ok(());
    }
    Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
}

/// Whether it is time to ask a server for its role again. Calls that find no primary have the Sentinels asked more often.
fn is_due(probed: Option<Instant>, pauses: &Backoff) -> bool {
    probed.is_none_or(|at| clock::now() >= at + pauses.last().min(LONGEST_PAUSE))
}
