//! One owner's hold state between its callers and a naive Redis. Requests take their time, answers
//! get lost, another owner comes in whenever the key is free, and the server's clock runs 1 %
//! fast. The callers do plainly what `acquire`, `releaser` and `watchdog` do.

use super::*;
use crate::protocol::{Acquired, Released};
use crate::tests::naive::Naive;

pub(super) const WATCHDOG: Duration = Duration::from_millis(900);
const PERIOD: Duration = Duration::from_millis(300);

enum Request {
    Acquire { ask: Ask, lease: Lease, requested: Duration, sent: Instant, reply: Option<Acquired> },
    Release { pending: PendingRelease, reply: Option<Released>, then: Option<Lease> },
}

struct Renewing {
    generation: u64,
    sent: Instant,
    reply: Option<Result<(), Loss>>,
}

struct Guard {
    hold: HoldId,
    validity: Arc<Validity>,
    lease: Lease,
    /// Until when it may be valid, by the model's own hold state.
    until: Instant,
    /// Its key was deleted under it: it may be lost before its time, and may not know.
    betrayed: bool,
}

pub(super) struct World {
    base: Instant,
    now: Instant,
    redis: Naive,
    owner: Owner,
    guards: Vec<Guard>,
    /// Given back, and waiting for the confirmation.
    given_back: Vec<Guard>,
    request: Option<Request>,
    /// An earlier sending of the request was never answered.
    repeated: bool,
    /// What an earlier request did may be what this release is about to find.
    freeing: bool,
    renewing: Option<Renewing>,
    scheduled: bool,
    /// A delete came while a grant was under way: its guard is betrayed.
    betrayed: bool,
}

const US: &str = "us";
const OTHER: &str = "other";

/// The server's milliseconds: they are 1 % short.
fn server_time(origin: Duration) -> u64 {
    u64::try_from(origin.as_nanos() * 100 / 99 / 1_000_000).unwrap()
}

impl World {
    pub(super) fn new() -> Self {
        let base = Instant::now();
        Self {
            base,
            now: base,
            redis: Naive::default(),
            owner: Owner::new(Kind::Reentrant, Names::new("", "lock"), US.into()),
            guards: Vec::new(),
            given_back: Vec::new(),
            request: None,
            repeated: false,
            freeing: false,
            renewing: None,
            scheduled: false,
            betrayed: false,
        }
    }

    fn server_time(&self) -> u64 {
        server_time(self.now - self.base)
    }

    fn count(&mut self) -> u32 {
        let now = self.server_time();
        self.redis.at(now).as_ref().filter(|held| held.owner == US).map_or(0, |held| held.count)
    }

    pub(super) fn pending(&self) -> Option<PendingRelease> {
        self.owner.holds.lock().pending(self.now, WATCHDOG)
    }

    pub(super) fn run(&mut self, op: &Op) {
        match *op {
            Op::Pass(micros) => self.now += Duration::from_micros(micros.into()),
            Op::Acquire(lease) if self.request.is_none() => match self.pending() {
                Some(pending) => self.release(pending, Some(lease)),
                None => self.ask(lease),
            },
            Op::GiveBack(guard) if !self.guards.is_empty() => {
                let guard = self.guards.remove(guard % self.guards.len());
                self.owner.holds.lock().give_back(guard.hold);
                self.given_back.push(guard);
            }
            Op::Pay if self.request.is_none() => {
                if let Some(pending) = self.pending() {
                    self.release(pending, None);
                }
            }
            Op::Arrive => self.arrive(),
            Op::Answer => self.answer(),
            Op::Cut { arrived } => self.cut(arrived),
            Op::GiveUp { arrived } => {
                if arrived {
                    self.arrive();
                }
                self.unanswered();
                self.request = None;
            }
            Op::NotExecuted => self.not_executed(),
            Op::Look if self.scheduled && self.renewing.is_none() => self.look(),
            Op::ArriveRenewal => self.arrive_renewal(),
            Op::AnswerRenewal { lost } => self.answer_renewal(lost),
            Op::OtherAcquires(lease) => {
                let now = self.server_time();
                self.redis.acquire(OTHER, lease.into(), 1, now);
            }
            Op::OtherReleases => {
                let now = self.server_time();
                self.redis.release(OTHER, 0, 1, now);
            }
            Op::Delete if self.count() > 0 => {
                self.redis.lock = None;
                let all = self.guards.iter_mut().chain(&mut self.given_back);
                all.for_each(|guard| guard.betrayed = true);
                self.betrayed = matches!(self.request, Some(Request::Acquire { .. }));
            }
            _ => {}
        }
        self.check();
    }

    fn ask(&mut self, lease: Lease) {
        let requested = lease.checked(WATCHDOG).unwrap();
        let ask = self.owner.holds.lock().ask(self.now);
        self.betrayed = false;
        self.repeated = false;
        self.request =
            Some(Request::Acquire { ask, lease, requested, sent: self.now, reply: None });
    }

    fn release(&mut self, pending: PendingRelease, then: Option<Lease>) {
        self.freeing = self.owner.holds.lock().release_sent(pending);
        self.request = Some(Request::Release { pending, reply: None, then });
        self.repeated = false;
    }

    fn arrive(&mut self) {
        let now = self.server_time();
        let millis = |lease: Duration| u64::try_from(lease.as_millis()).unwrap();
        match &mut self.request {
            Some(Request::Acquire { ask, requested, reply: reply @ None, .. }) => {
                *reply = Some(self.redis.acquire(US, millis(*requested), ask.count, now));
            }
            Some(Request::Release { pending, reply: reply @ None, .. }) => {
                *reply = Some(self.redis.release(US, pending.count, millis(pending.lease), now));
            }
            _ => {}
        }
    }

    fn answer(&mut self) {
        match self.request.take() {
            Some(Request::Acquire { ask, lease, requested, sent, reply: Some(reply) }) => {
                match reply {
                    Acquired::Granted(_) => self.granted(ask, lease, requested, sent),
                    Acquired::Refused { .. } => {
                        self.owner.lose(FoundBy::Refusal, Loss::TakenOver, self.now);
                    }
                    Acquired::Gone(_) => {
                        self.owner.lose(FoundBy::Release, Loss::KeyGone, self.now);
                        self.ask(lease);
                    }
                }
            }
            Some(Request::Release { pending, reply: Some(reply), then }) => {
                let repeated = self.freeing || (self.repeated && pending.count == 0);
                if matches!(reply, Released::Nothing(_)) && !repeated {
                    self.owner.lose(FoundBy::Release, Loss::KeyGone, self.now);
                } else {
                    self.owner.holds.lock().release_confirmed(pending);
                }
                if let Some(lease) = then {
                    self.ask(lease);
                }
            }
            unanswered => self.request = unanswered,
        }
    }

    fn granted(&mut self, ask: Ask, lease: Lease, requested: Duration, sent: Instant) {
        let until = valid_until(sent, requested);
        let validity = Arc::new(Validity::new(until));
        let (hold, register) = {
            let mut holds = self.owner.holds.lock();
            let hold = holds.granted(ask, lease, validity.clone(), sent);
            (hold, holds.start_watching().is_some())
        };
        assert!(!(register && self.scheduled), "an owner is on the schedule once at most");
        self.scheduled |= register;
        self.guards.push(Guard { hold, validity, lease, until, betrayed: self.betrayed });
    }

    /// Redis executed a release that leaves something, or a first hold that takes over what was
    /// left, and the answer was lost. If that has run out by the next check, the owner cannot know
    /// what became of the holds that were given back.
    fn unanswered(&mut self) {
        let unknown = match &self.request {
            Some(Request::Release { pending, reply: Some(_), .. }) => pending.count > 0,
            Some(Request::Acquire { ask, reply: Some(_), .. }) => ask.count == 1,
            _ => false,
        };
        if unknown {
            self.given_back.clear();
        }
    }

    fn cut(&mut self, arrived: bool) {
        if arrived {
            self.arrive();
        }
        self.unanswered();
        match &mut self.request {
            Some(Request::Acquire { sent, reply, .. }) => {
                *sent = self.now;
                *reply = None;
            }
            Some(Request::Release { reply, .. }) => *reply = None,
            None => {}
        }
        self.repeated = true;
    }

    fn not_executed(&mut self) {
        match self.request.take() {
            // The owner does not know whether Redis executed the first sending.
            request if self.repeated => self.request = request,
            Some(Request::Acquire { ask, reply: None, .. }) => {
                self.owner.holds.lock().not_executed(ask);
            }
            Some(Request::Release { reply: None, .. }) => {
                if !self.freeing {
                    self.owner.holds.lock().release_not_executed();
                }
            }
            executed => self.request = executed,
        }
    }

    /// Live guards that the watchdog renews.
    fn watched(&self) -> impl Iterator<Item = Instant> {
        let watched = self.guards.iter().filter(|guard| guard.lease == Lease::Watchdog);
        watched.filter_map(|guard| guard.validity.check(self.now))
    }

    fn look(&mut self) {
        let found = self.owner.holds.lock().renewal(self.now, PERIOD, Duration::MAX);
        let first = self.watched().min();
        match found {
            Renewal::Due { generation, until } => {
                assert_eq!(Some(until), first, "the first deadline decides");
                self.renewing = Some(Renewing { generation, sent: self.now, reply: None });
            }
            Renewal::NotBefore(at) => {
                assert!(at > self.now, "it would look again and again");
                assert!(first.is_some_and(|until| at < until), "it would look too late");
            }
            Renewal::Idle { .. } => {
                assert_eq!(first, None, "somebody needs a renewal");
                self.scheduled = false;
            }
            Renewal::Over { .. } => unreachable!("there is no limit"),
        }
    }

    fn arrive_renewal(&mut self) {
        let now = self.server_time();
        if let Some(Renewing { reply: reply @ None, .. }) = &mut self.renewing {
            let lease = u64::try_from(WATCHDOG.as_millis()).unwrap();
            *reply = Some(self.redis.renew(US, lease, now));
        }
    }

    fn answer_renewal(&mut self, lost: bool) {
        let Some(Renewing { generation, sent, reply }) = self.renewing.take() else {
            return;
        };
        match reply {
            _ if lost => {}
            Some(Ok(())) => {
                self.owner.holds.lock().renewed(generation, sent, WATCHDOG, self.now);
                let (now, until) = (self.now, valid_until(sent, WATCHDOG));
                for guard in &mut self.guards {
                    let renewed =
                        guard.lease == Lease::Watchdog && guard.hold.generation == generation;
                    if renewed && guard.until > now {
                        guard.until = guard.until.max(until);
                    }
                }
            }
            Some(Err(_)) => {
                self.owner.lose(FoundBy::Renewal { generation }, Loss::KeyGone, self.now);
            }
            None => self.renewing = Some(Renewing { generation, sent, reply }),
        }
    }

    /// What holds after every step.
    fn check(&mut self) {
        let count = self.count();
        let server = self.owner.holds.lock().counted;
        assert!(count <= server, "Redis counts {count} and the hold state knows of {server}");
        let server_time = |at: Instant| server_time(at - self.base);
        for guard in &mut self.guards {
            let valid = guard.validity.check(self.now);
            let by_model = Some(guard.until).filter(|until| *until > self.now);
            if guard.betrayed {
                assert!(valid.is_none() || valid == by_model);
                // Loss never heals, so the model forgets what the validity has lost.
                guard.until = valid.unwrap_or(self.now);
                continue;
            }
            assert_eq!(valid, by_model, "a guard was promised something else");
            let Some(until) = valid else {
                continue;
            };
            let last = server_time(until - Duration::from_nanos(1));
            let held = self.redis.lock.as_ref().filter(|held| held.owner == US);
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
        let unwatched = !self.scheduled && self.renewing.is_none() && self.watched().count() > 0;
        assert!(!unwatched, "nobody renews this lease");
    }

    /// All guards go, the network is well again, and the background sends the pending release.
    pub(super) fn end(&mut self) {
        self.run(&Op::GiveUp { arrived: true });
        while !self.guards.is_empty() {
            self.run(&Op::GiveBack(0));
        }
        for op in [Op::Pay, Op::Arrive, Op::Answer] {
            self.run(&op);
        }
        assert_eq!(self.count(), 0, "a hold is left behind");
        assert_eq!(self.pending(), None, "one payment is enough");
        self.run(&Op::Look);
        self.run(&Op::AnswerRenewal { lost: true });
        self.run(&Op::Look);
        assert!(!self.scheduled, "the watchdog looks after nobody");
    }
}
