//! What the drop of an [`PossessionSession`] leaves to the background.

use futures::FutureExt as _;
use shuttle::future::{block_on, spawn};
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::config::Config;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::possession::Possessions;
use crate::protocol::Call;
use crate::tests::explore::{explore, some_time};
use crate::tests::parts::handoffs;
use crate::token::TokenBlock;
use crate::transport::{Endpoint, Router, Times};
use crate::wait::{Registration, Stay, WaitLimits};

const LEASE: Duration = Duration::from_secs(1);

fn router() -> Arc<Router> {
    let endpoint = Endpoint::url("redis://127.0.0.1/".into()).expect("an address");
    let (pushes, _pushed) = unbounded_channel();
    let times = Times::new(LEASE, LEASE);
    let router =
        Router::new(endpoint, times, Vec::new(), false, pushes, Arc::default(), String::new());
    router.expect("a router")
}

/// Whether the drop of a session enqueues a release, where the possession has one guard for which a request
/// was sent so long ago.
fn enqueues(sent: Duration) -> bool {
    let (jobs, mut enqueued) = unbounded_channel();
    let releaser = Releaser::new(jobs, handoffs(&Arc::default()));
    let names = Arc::new(Names::new("", "lock"));
    let possession = Arc::<Possessions>::default().begin(Kind::Reentrant, &names, None);
    let now = clock::now() + LEASE;
    {
        let mut holds = possession.holds.lock();
        let ask = holds.ask_first(1);
        holds.record_grant(ask, Lease::Fixed(LEASE), LEASE, TokenBlock::default(), now - sent);
    }
    let router = router();
    let call = Call::new(&router, now + LEASE);
    drop(PossessionSession::new(call, possession.clone(), &releaser, None, LEASE));
    matches!(enqueued.try_recv(), Ok(Job::Release(_)))
}

#[test]
fn a_session_that_ends_leaves_a_guard_that_is_valid_alone() {
    assert!(!enqueues(Duration::ZERO));
}

/// A release of everything may be on its way then, and what follows has to come behind it.
#[test]
fn a_session_that_ends_releases_in_the_background_if_every_guard_has_run_out() {
    assert!(enqueues(2 * LEASE));
}

const GRACE: Duration = Duration::from_secs(3600);

/// A waiter that Redis has refused, and that is parked.
fn parks<'a>(handoffs: &'a Handoffs, handle: &Arc<Handle>) -> Registration<'a> {
    let stay = Stay { since: clock::now(), until: None };
    let registration = handoffs.waiters.join(handle, Lease::Watchdog, GRACE, stay, None);
    let limits = WaitLimits { until: None, request: GRACE, outage: None, warn_at: None };
    if registration.asks_at_once(&limits).is_some() {
        registration.record_refusal(Some(GRACE), "other".into());
    }
    assert!(registration.next(&limits, || {}).now_or_never().is_none());
    registration
}

/// Redis grants a fair lock to this client. Its first waiter leaves at any moment, and the next one comes when
/// the client has decided to release the lock.
async fn first_waiter_leaves() {
    let handoffs = handoffs(&Arc::new(Config { fair_turn: GRACE, ..Config::default() }));
    let possessions: Arc<Possessions> = Arc::default();
    let names = Arc::new(possessions.names(Kind::Fair, "", "lock"));
    let handle = {
        let names = names.clone();
        move || Arc::new(Handle::new(Kind::Fair, names.clone(), &possessions))
    };
    let (has_joined, joined) = oneshot::channel();
    let first = spawn({
        let (handoffs, handle) = (handoffs.clone(), handle());
        async move {
            let registration = parks(&handoffs, &handle);
            has_joined.send(()).expect("the test waits for it");
            some_time().await;
            registration.leave().0.is_some()
        }
    });
    joined.await.expect("it joins");
    let (names, until) = ((*names).clone(), Some(clock::now() + GRACE));
    let (owner, tokens) = (format!("{}:-1", handoffs.possessions.id()), TokenBlock::default());
    let grant = Grant { names, owner, lease: GRACE, until, foreign: None, tokens };
    let mut jobs = granted::pass_on(grant, &router(), &handoffs).await;
    if first.await.expect("it leaves") {
        // It had the lock, and gives it back by itself.
        return;
    }
    let next = parks(&handoffs, &handle());
    let possession = jobs.iter().find_map(|job| match job {
        Job::Release(BackgroundRelease { possession, .. }) => Some(possession.clone()),
        _ => None,
    });
    let possession = possession.expect("no waiter has the lock");
    let handed = hand_off_until_taken(&handoffs, &possession, None, None, |job| jobs.push(job));
    let updates = jobs.iter().any(|job| matches!(job, Job::Update(_)));
    if let Some(granted) = next.leave().0 {
        possession.holds.lock().give_back(granted.hold);
    }
    assert!(!handed || updates, "Redis never hears of the next one's lease");
}

#[test]
fn redis_hears_of_a_waiter_that_takes_a_grant_from_one_that_has_left_under_every_schedule() {
    explore(8_000, || block_on(first_waiter_leaves()));
}
