//! The possessions of one name, one after the other, between the handles of a client and a naive Redis.
//! Requests take their time, answers get lost, another owner comes in whenever the key is free, and
//! the server's clock runs 1 % fast. The callers do plainly what `acquire`, `releaser`, `handoff` and
//! `watchdog` do. Redis executes what it gets in the order in which it was sent; the answers to a call
//! and to a renewal are read in any order.

use std::collections::BTreeSet;

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::*;
use crate::error::Error;
use crate::kind::Kind;
use crate::tests::naive::Naive;

mod gap;
mod requests;
mod watchdog;

pub(in crate::possession) const WATCHDOG: Duration = Duration::from_millis(900);
const PERIOD: Duration = Duration::from_millis(300);

/// What can happen next.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// So many microseconds pass.
    Pass(u32),
    /// A call of a handle gets the permit, sends the pending release and asks for a hold: for a nested one
    /// if its handle is inside, and for a first one if no handle is.
    Acquire(HandleId, Lease),
    /// The n-th guard is dropped.
    GiveBack(usize),
    /// The lock goes to a waiter of that handle. The holder has taken it and gives it back before that, if
    /// `turn` is set.
    HandOff {
        turn: bool,
        to: HandleId,
        lease: Lease,
        confirms: bool,
        in_queue: bool,
    },
    /// The holder takes it, gives it back, and leaves the lock in a gap.
    LeaveInGap,
    /// The waiter takes it.
    Claim,
    /// The client's thread gets the permit and tells Redis what it has to hear of hand-offs.
    Update,
    /// The background gets the permit and sends the pending release.
    Pay,
    /// Redis executes the request under way.
    Arrive,
    /// Its answer comes.
    Answer,
    /// The connection is cut, before or after Redis has executed the request, which is sent again.
    Cut {
        arrived: bool,
    },
    /// The request ends with no answer, or its caller leaves. What was sent arrives now or never,
    /// because an undo goes behind what it undoes.
    GiveUp {
        arrived: bool,
    },
    /// The request ends unsent.
    NotExecuted,
    /// The watchdog checks, and asks for a renewal if that is due.
    Look,
    ArriveRenewal,
    /// Its answer comes, or gets lost.
    AnswerRenewal {
        lost: bool,
    },
    /// Another owner acquires or releases.
    OtherAcquires(u32),
    OtherReleases,
    /// An operator deletes the key.
    Delete,
}

enum What {
    Acquire { handle: HandleId, ask: Ask, lease: Lease, requested: Duration },
    Release { pending: PendingRelease, then: Option<(HandleId, Lease)>, confirms: usize },
    Update(Update),
}

#[derive(Debug, Clone, Copy)]
enum Reply {
    Granted,
    Refused,
    /// It was executed, and the name was there.
    Done,
    Gone,
}

struct Request {
    what: What,
    /// When it was sent, and after how many other requests and renewals.
    sent: Instant,
    order: u64,
    reply: Option<Reply>,
    _permit: Permit,
}

struct Renewing {
    shortened: u32,
    sent: Instant,
    order: u64,
    reply: Option<bool>,
}

struct Guard {
    hold: HoldId,
    validity: Arc<Validity>,
    /// Until when it was valid at the last look: it stays so.
    until: Instant,
    /// A fixed lease ends then.
    own: Option<Instant>,
    /// Its key was deleted under it: it may be lost before its time, and may not know.
    betrayed: bool,
}

/// A caller that waits until Redis has confirmed that its hold was there.
struct Awaits {
    confirmation: oneshot::Receiver<Result<bool, Error>>,
    /// A request was sent since.
    asked: bool,
}

pub(super) struct World {
    base: Instant,
    now: Instant,
    config: Config,
    redis: Naive,
    possession: Arc<Possession>,
    /// The handle that is inside, or was last.
    inside: HandleId,
    number: u64,
    guards: Vec<Guard>,
    /// Given back, and waiting for the confirmation.
    given_back: Vec<Guard>,
    awaits: Vec<Awaits>,
    /// Of those that have left the lock in a gap.
    gaps: Vec<oneshot::Receiver<()>>,
    request: Option<Request>,
    order: u64,
    /// An earlier sending of the request was never answered.
    repeated: bool,
    /// What an earlier request did may be what this release is about to find.
    release_unanswered: bool,
    renewing: Option<Renewing>,
    /// The handles on the watchdog's schedule.
    scheduled: BTreeSet<HandleId>,
    /// The client's thread has been asked to see to hand-offs.
    update_queued: bool,
    /// The waiter has not taken the lock.
    unclaimed: Option<HoldId>,
    /// A delete came while a request was under way: what that grants is betrayed.
    betrayed: bool,
}

const OTHER: &str = "other:1";

/// The server's milliseconds: they are 1 % short.
fn server_time(origin: Duration) -> u64 {
    u64::try_from(origin.as_nanos() * 100 / 99 / 1_000_000).unwrap()
}

fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap()
}

fn possession() -> Arc<Possession> {
    let names = Arc::new(Names::new("", "lock"));
    Arc::<Possessions>::default().begin(Kind::Reentrant, &names, None)
}

impl World {
    pub(super) fn new() -> Self {
        let base = Instant::now();
        Self {
            base,
            now: base,
            config: Config { watchdog_timeout: WATCHDOG, ..Config::default() },
            redis: Naive::default(),
            possession: possession(),
            inside: 0,
            number: 0,
            guards: Vec::new(),
            given_back: Vec::new(),
            awaits: Vec::new(),
            gaps: Vec::new(),
            request: None,
            order: 0,
            repeated: false,
            release_unanswered: false,
            renewing: None,
            scheduled: BTreeSet::new(),
            update_queued: false,
            unclaimed: None,
            betrayed: false,
        }
    }

    fn server_time(&self) -> u64 {
        server_time(self.now - self.base)
    }

    fn holds(&self) -> parking_lot::MutexGuard<'_, HoldState> {
        self.possession.holds.lock()
    }

    /// What Redis counts for this possession.
    fn count(&mut self) -> u32 {
        let (now, id) = (self.server_time(), &self.possession.id());
        self.redis.at(now).as_ref().filter(|held| *held.owner == **id).map_or(0, |held| held.count)
    }

    fn pending(&self) -> Option<PendingRelease> {
        self.holds().pending(self.now, WATCHDOG)
    }

    pub(super) fn run(&mut self, op: &Op) {
        match *op {
            Op::Pass(micros) => self.now += Duration::from_micros(micros.into()),
            Op::Acquire(handle, lease) if self.request.is_none() => self.acquire(handle, lease),
            Op::GiveBack(guard) if !self.guards.is_empty() => {
                let guard = self.guards.remove(guard % self.guards.len());
                self.holds().give_back(guard.hold);
                // The call came too late, or was dropped.
                self.unclaimed.take_if(|hold| *hold == guard.hold);
                self.given_back.push(guard);
            }
            Op::HandOff { turn, to, lease, confirms, in_queue } => {
                if turn {
                    self.run(&Op::Claim);
                    while !self.guards.is_empty() {
                        self.run(&Op::GiveBack(0));
                    }
                }
                self.hand_off(to, lease, confirms, in_queue);
            }
            Op::LeaveInGap => drop(self.leave_in_gap()),
            Op::Claim => {
                let Some(hold) = self.unclaimed.take() else { return };
                self.holds().takes(hold, WATCHDOG, self.now);
                self.watch();
            }
            Op::Update if self.request.is_none() && self.update_queued => self.update(),
            Op::Pay if self.request.is_none() => {
                if let Some(pending) = self.pending() {
                    self.release(pending, None);
                }
            }
            Op::Arrive => self.arrive(),
            Op::Answer => self.answer(),
            Op::Cut { arrived } => self.cut(arrived),
            Op::GiveUp { arrived } => self.give_up(arrived),
            Op::NotExecuted => self.not_executed(),
            Op::Look if self.renewing.is_none() => self.look(),
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
                self.betrayed = true;
            }
            _ => {}
        }
        self.check();
    }

    fn acquire(&mut self, handle: HandleId, lease: Lease) {
        let is_of = self.holds().is_of(handle);
        if is_of {
            let nesting = self.holds().ask_nested(handle, self.now);
            match nesting {
                Nesting::Ask(ask) => return self.ask(handle, ask, lease),
                Nesting::ReleaseFirst => {
                    let pending = self.pending().expect("a release that goes first");
                    return self.release(pending, Some((handle, lease)));
                }
                Nesting::Over => {}
            }
        }
        let begins = {
            let holds = self.holds();
            holds.counted == 0 || holds.lost
        };
        if begins && self.guards.iter().all(|guard| guard.validity.check(self.now).is_none()) {
            self.begin(handle, lease);
        }
    }

    /// A new possession. What is left of the last one is not in Redis.
    fn begin(&mut self, handle: HandleId, lease: Lease) {
        assert_eq!(self.count(), 0, "a possession that is over is in Redis");
        self.number += 1;
        self.possession = possession();
        self.guards.clear();
        self.given_back.clear();
        self.hear();
        assert!(self.awaits.is_empty(), "a caller never gets its confirmation");
        (self.update_queued, self.unclaimed, self.betrayed) = (false, None, false);
        self.renewing = None;
        let ask = self.holds().ask_first(handle);
        self.ask(handle, ask, lease);
    }

    fn ask(&mut self, handle: HandleId, ask: Ask, lease: Lease) {
        let requested = lease.checked(WATCHDOG).unwrap();
        self.send(What::Acquire { handle, ask, lease, requested });
    }

    fn release(&mut self, pending: PendingRelease, then: Option<(HandleId, Lease)>) {
        let confirms = self.holds().confirmations_due();
        let sent_before = self.holds().release_sent(pending, self.now);
        self.release_unanswered = sent_before;
        self.send(What::Release { pending, then, confirms });
    }

    fn hand_off(&mut self, to: HandleId, lease: Lease, confirms: bool, in_queue: bool) {
        let requested = lease.checked(WATCHDOG).unwrap();
        let own = valid_until(self.now, requested);
        let (confirm, mut confirmation) = oneshot::channel();
        let confirm = confirms.then_some(confirm);
        let to_next = Recipient { to, lease, requested, needs_token: false, in_queue };
        let handed = self.possession.pass_to(to_next, false, confirm, &self.config, self.now);
        let Some(handed) = handed else { return };
        self.possession.announce_end(handed.gap);
        assert!(self.guards.is_empty(), "two handles are inside");
        if confirms {
            let waits = confirmation.try_recv().is_err_and(|none| none == TryRecvError::Empty);
            assert!(waits, "a caller never gets its confirmation");
            self.awaits.push(Awaits { confirmation, asked: false });
        }
        assert!(handed.needs_update || self.update_queued, "no thread updates Redis");
        self.update_queued = true;
        (self.inside, self.unclaimed) = (to, Some(handed.hold.0));
        let (hold, validity, _) = handed.hold;
        let until = validity.check(self.now).unwrap_or(self.now);
        let betrayed = self.given_back.iter().any(|guard| guard.betrayed) || self.betrayed;
        // A confirmation says so, if they wait for one.
        self.given_back.clear();
        let own = (lease != Lease::Watchdog).then_some(own);
        self.guards.push(Guard { hold, validity, until, own, betrayed });
    }

    fn update(&mut self) {
        let waits = self.holds().waits_for_renewal(WATCHDOG);
        assert!(!waits || self.renewing.is_some(), "nothing will tell it to go on");
        if waits {
            return;
        }
        let update = self.holds().next_update(&self.config, Some(0), self.now);
        match update {
            Some(update) => {
                self.send(What::Update(update));
                self.holds().set_updating(true);
            }
            None => {
                self.update_queued = false;
                let renewal_from = self.holds().renewal_from();
                for until in self.watched() {
                    let due = renewal_from.map(|at| (at + PERIOD).max(self.now));
                    assert!(due.is_some_and(|due| due < until), "the watchdog would be too late");
                }
                // Redis has heard of each lease, or the release says all.
                for guard in &self.guards {
                    let (own, valid) = (guard.own, guard.validity.check(self.now));
                    assert!(own.is_none() || valid.is_none() || valid == own, "a lease is cut");
                }
            }
        }
    }
}
