//! Rows N: the network, and answers that do not say what happened. A single command that is lost
//! on its way is in `lost_answers.rs`, a Redis that goes away and comes back in `outages.rs`.

use std::iter::{from_fn, repeat};
use std::time::{Duration, Instant};

use crate::support::{
    Fault, Proxy, SOON, Server, connect, hold, is_free, ms, release, renewed, soon, wait_until,
    within,
};
use futures::future::join_all;
use redlatch::{Error, ErrorKind, LockClient, LockGuard, Outcome};

const MINUTE: Duration = Duration::from_secs(60);

/// How long one command may take here.
const COMMAND: Duration = Duration::from_secs(1);

/// From the end of a fault until Redis has been asked: the longest pause between two dials is half
/// a second, between two tries of a release one second. The rest is for a busy machine.
const RECOVERY: Duration = Duration::from_millis(3_500);

struct Scene {
    server: Server,
    proxy: Proxy,
    /// Behind the proxy.
    client: LockClient,
    /// The connection of its background, as the server numbers it: the thread connects last.
    background: u64,
    /// Not behind it.
    other: LockClient,
}

fn newest_connection(server: &Server) -> u64 {
    let connections: String = server.ask(&["CLIENT", "LIST"]);
    let number = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    connections.lines().filter_map(number).max().expect("a connection")
}

async fn scene(watchdog_timeout: Duration) -> Scene {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(COMMAND);
    let client = soon("connecting", builder.watchdog_timeout(watchdog_timeout).connect()).await;
    let background = newest_connection(&server);
    let other = connect(&server).await;
    // The server knows the scripts from here on: one EVALSHA is one attempt.
    release(hold(&other.lock("warm-up")).await).await;
    Scene { server, proxy, client: client.expect("connecting"), background, other }
}

#[track_caller]
fn unknown<T>(result: Result<T, Error>) {
    let Err(error) = result else { panic!("it cannot have been answered") };
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
}

#[track_caller]
fn in_time(start: Instant) {
    let took = start.elapsed();
    // Three seconds is what it would be if nobody had set the command timeout.
    assert!(took >= COMMAND - ms(50), "{took:?}: it has to give the server its time");
    assert!(took < COMMAND + ms(2_000), "{took:?} with a command timeout of {COMMAND:?}");
}

impl Scene {
    /// From the next acquire on no answer comes to this client, and it cannot connect anew.
    fn black_hole_answers(&self) {
        self.proxy.refuse(true);
        let killed: u64 = self.server.ask(&["CLIENT", "KILL", "ID", &self.background.to_string()]);
        assert_eq!(killed, 1, "the background has no connection");
        self.proxy.plan("EVALSHA", 1, Fault::Mute);
    }
}

#[tokio::test]
async fn n3_a_grant_whose_answer_is_black_holed_is_unknown_and_given_back_on_recovery() {
    let scene = scene(MINUTE).await;
    let lock = scene.client.lock("lock");
    scene.black_hole_answers();
    let start = Instant::now();
    unknown(soon("an error", lock.try_lock_now()).await);
    in_time(start);
    assert_eq!((scene.proxy.faults(), scene.proxy.withheld()), (1, 1));
    // The server did grant it, and cannot hear of a release: that is the point.
    assert_eq!(scene.server.holds("lock"), [(lock.owner().to_owned(), 1)].into());
    assert!(!is_free(&scene.other, "lock").await);
    scene.proxy.refuse(false);
    wait_until("the release", RECOVERY, || !scene.server.exists("lock")).await;
    assert!(is_free(&scene.other, "lock").await);
    release(hold(&lock).await).await;
    assert!(!scene.server.exists("lock"));
}

#[tokio::test]
async fn n3_a_grant_nobody_heard_of_keeps_others_out_for_its_lease_and_no_longer() {
    let lease = ms(1_500);
    let scene = scene(MINUTE).await;
    let lock = scene.client.lock("lock");
    scene.black_hole_answers();
    let asked = Instant::now();
    let other = scene.other.lock("lock");
    let (silent, (granted, guard)) = tokio::join!(lock.lock_with_lease(lease), async {
        wait_until("the grant", SOON, || scene.proxy.withheld() == 1).await;
        let guard = hold(&other).await;
        (Instant::now(), guard)
    });
    unknown(silent);
    assert_eq!(scene.proxy.faults(), 1);
    let blocked = granted - asked;
    assert!(blocked >= lease, "let in after {blocked:?}: the grant did not happen");
    assert!(blocked < lease + ms(2_000), "kept out for {blocked:?}");
    // The release that could not be sent must do nothing to whoever came after.
    let attempts = scene.proxy.attempts();
    scene.proxy.refuse(false);
    wait_until("a new connection", RECOVERY, || scene.proxy.attempts() > attempts).await;
    // A call of the same handle comes after the release that it owes.
    assert!(soon("a try", lock.try_lock_now()).await.expect("an answer").is_none());
    assert!(!guard.is_lost());
    assert!(other.is_held().await.expect("an answer"));
    release(guard).await;
    assert!(!scene.server.exists("lock"));
}

#[tokio::test]
async fn n12_requests_that_arrive_while_no_answer_does_are_unknown_and_undone() {
    // The background has a connection, on which its undo can arrive.
    let scene = scene(MINUTE).await;
    let lock = scene.client.lock("lock");
    scene.server.reset_stats();
    scene.proxy.stall_replies(true);
    let start = Instant::now();
    unknown(soon("an error", lock.try_lock_now()).await);
    in_time(start);
    assert!(scene.proxy.withheld() >= 1);
    // It has to arrive: that is the point.
    wait_until("the request", SOON, || scene.server.calls("hset") == 1).await;
    scene.proxy.stall_replies(false);
    wait_until("the release", RECOVERY, || !scene.server.exists("lock")).await;
    release(hold(&lock).await).await;
    assert!(!scene.server.exists("lock"));
}

#[tokio::test]
async fn n12_a_release_that_arrives_while_no_answer_does_is_unknown_and_happens_once() {
    let scene = scene(MINUTE).await;
    let lock = scene.client.lock("lock");
    let guard = hold(&lock).await;
    scene.proxy.stall_replies(true);
    let start = Instant::now();
    unknown(soon("an error", guard.unlock()).await);
    in_time(start);
    assert!(scene.proxy.withheld() >= 1);
    // It has to arrive: that is the point.
    wait_until("the request", SOON, || !scene.server.exists("lock")).await;
    // Another owner comes in, and the release is made again behind it.
    let successor = hold(&scene.other.lock("lock")).await;
    scene.proxy.stall_replies(false);
    assert!(soon("a try", lock.try_lock_now()).await.expect("an answer").is_none());
    assert_eq!(scene.server.holds("lock").len(), 1);
    release(successor).await;
    assert!(!scene.server.exists("lock"));
}

#[tokio::test]
async fn n13_calls_on_a_half_open_connection_fail_in_time_and_the_next_one_works() {
    let scene = scene(ms(3_000)).await;
    let kept = hold(&scene.client.lock("kept")).await;
    // Answered, so the watchdog has its connection.
    renewed(&kept).await;
    let lock = scene.client.lock("lock");
    let attempts = scene.proxy.attempts();
    scene.proxy.plan("EVALSHA", 1, Fault::BlackHole);
    let start = Instant::now();
    let (asked, tried) = tokio::join!(lock.is_locked(), async {
        wait_until("the fault", SOON, || scene.proxy.faults() == 1).await;
        lock.try_lock_now().await
    });
    unknown(asked);
    unknown(tried);
    in_time(start);
    assert!(!scene.server.exists("lock"), "it has to vanish: that is the point");
    // The undo of what may have happened goes first, and over a connection that works.
    release(hold(&lock).await).await;
    assert_eq!(scene.proxy.attempts(), attempts + 1, "the dead connection is used no more");
    // The watchdog has a connection of its own, on which nothing happened.
    renewed(&kept).await;
    assert!(!kept.is_lost());
    release(kept).await;
    assert!(!scene.server.exists("lock") && !scene.server.exists("kept"));
}

#[tokio::test]
async fn n13_a_renewal_on_a_half_open_connection_is_made_again_on_another() {
    let scene = scene(ms(4_500)).await;
    let guard = hold(&scene.client.lock("lock")).await;
    renewed(&guard).await;
    let attempts = scene.proxy.attempts();
    scene.proxy.plan("EVALSHA", 1, Fault::BlackHole);
    wait_until("a renewal that vanishes", SOON, || scene.proxy.faults() == 1).await;
    let deadline = Instant::now() + guard.remaining();
    renewed(&guard).await;
    assert_eq!(scene.proxy.attempts(), attempts + 1);
    past(deadline, &guard).await;
    release(guard).await;
    assert!(!scene.server.exists("lock"));
}

/// The guard is believed until `deadline`, and after it.
async fn past(deadline: Instant, guard: &LockGuard) {
    wait_until("a deadline", SOON, || {
        assert!(!guard.is_lost(), "lost, {:?} before the deadline", deadline - Instant::now());
        Instant::now() > deadline
    })
    .await;
    assert!(!guard.is_lost());
}

#[tokio::test]
async fn n13_a_waiter_whose_connections_are_half_open_goes_by_the_holders_lease() {
    let scene = scene(MINUTE).await;
    scene.server.hold_by_hand("lock", "somebody:1", ms(3_000));
    let lock = scene.client.lock("lock");
    let waiter = tokio::spawn(async move { lock.lock().await });
    wait_until("a subscription", SOON, || scene.server.subscribers("lock") == 1).await;
    scene.proxy.settled(ms(200)).await;
    // The caller's connection, and the one that is subscribed.
    assert_eq!(scene.proxy.freeze_all(), 2);
    scene.server.ask::<()>(&["DEL", "lock"]);
    let heard: u64 = scene.server.ask(&["PUBLISH", &crate::support::channel("lock"), "0"]);
    assert_eq!(heard, 1, "for the server the subscription is still there");
    // It would be 30 s if it went by the cap, and for ever if it counted on the message.
    let guard = within(SOON, "the lock", waiter).await.expect("a waiter that ends well");
    release(guard.expect("the lock")).await;
    assert!(!scene.server.exists("lock"));
}

#[tokio::test]
async fn n14_waiting_calls_go_on_until_their_wait_while_connections_are_refused() {
    let scene = scene(MINUTE).await;
    scene.server.hold_by_hand("lock", "somebody:1", MINUTE);
    let (wait, outage) = (ms(2_500), ms(4_000));
    let [brief, long] = [wait, MINUTE].map(|wait| {
        let lock = scene.client.lock("lock");
        tokio::spawn(async move {
            let start = Instant::now();
            (lock.try_lock(wait, MINUTE).await, start.elapsed())
        })
    });
    wait_until("a subscription", SOON, || scene.server.subscribers("lock") == 1).await;
    // Both of them parked: a first try in an outage is a call that begins in it.
    scene.proxy.settled(ms(300)).await;
    let attempts = scene.proxy.attempts();
    scene.proxy.refuse(true);
    assert_eq!(scene.proxy.cut_all(), 2);
    let cut = Instant::now();
    let (brief, took) = soon("the end of the wait", brief).await.expect("a task that ends well");
    let error = brief.expect_err("nobody knows whether the lock is busy");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // Several times as long as one command may take.
    assert!(took >= wait, "gave up after {took:?}");
    assert!(took < wait + ms(2_000), "gave up after {took:?}");
    tokio::time::sleep(outage.saturating_sub(cut.elapsed())).await;
    assert!(!long.is_finished(), "it has a minute");
    let refused = scene.proxy.attempts() - attempts;
    assert!(refused >= 5, "{refused} dials in {outage:?}");
    // Nobody hears of it.
    scene.server.free_by_hand("lock");
    scene.proxy.refuse(false);
    let (guard, _) = within(RECOVERY, "the lock", long).await.expect("a task that ends well");
    release(guard.expect("an answer").expect("in time")).await;
    assert!(!scene.server.exists("lock"));
}

/// A holder whose watchdog is refused, two thirds of its lease later, and when that ends.
async fn refused_holder(scene: &Scene) -> (LockGuard, Instant) {
    let guard = hold(&scene.client.lock("lock")).await;
    renewed(&guard).await;
    let deadline = Instant::now() + guard.remaining();
    scene.proxy.refuse(true);
    assert_eq!(scene.proxy.cut_all(), 2);
    // The first renewal that is refused comes when a third is gone.
    wait_until("the last third", SOON, || guard.remaining() < ms(2_500)).await;
    let attempts = scene.proxy.attempts();
    wait_until("another attempt", ms(2_000), || scene.proxy.attempts() > attempts).await;
    assert!(!guard.is_lost());
    (guard, deadline)
}

#[tokio::test]
async fn n14_a_watchdog_that_was_refused_again_and_again_saves_its_lock_in_the_end() {
    let scene = scene(ms(6_000)).await;
    let (guard, deadline) = refused_holder(&scene).await;
    scene.proxy.refuse(false);
    past(deadline, &guard).await;
    release(guard).await;
    assert!(!scene.server.exists("lock"));
}

#[tokio::test]
async fn n14_a_watchdog_that_is_refused_tries_until_the_deadline_and_not_once() {
    let scene = scene(ms(6_000)).await;
    let (guard, deadline) = refused_holder(&scene).await;
    let attempts = scene.proxy.attempts();
    soon("the loss", guard.lost()).await;
    let late = deadline.elapsed();
    assert!(late < ms(500), "told {late:?} after its deadline");
    assert!(scene.proxy.attempts() > attempts, "it gave up before");
    scene.proxy.refuse(false);
    let error = soon("unlocking", guard.unlock()).await.expect_err("a lost lock");
    assert_eq!(error.kind(), ErrorKind::Lost);
    wait_until("a free lock", SOON, || !scene.server.exists("lock")).await;
}

/// A thousand locks of one client, each renewed once.
async fn a_thousand_locks(proxy: &Proxy, server: &Server) -> Vec<LockGuard> {
    let builder = LockClient::builder().url(proxy.url(server)).watchdog_timeout(ms(4_500));
    let client = builder.connect().await.unwrap();
    let locks: Vec<_> = (0..1000).map(|number| client.lock(format!("many:{number}"))).collect();
    let guards = soon("1000 locks", join_all(locks.iter().map(hold))).await;
    soon("renewals", join_all(guards.iter().map(renewed))).await;
    guards
}

#[tokio::test]
async fn n15_a_thousand_locks_outlive_a_cut_that_costs_one_dial_a_connection() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let guards = a_thousand_locks(&proxy, &server).await;
    let deadline = guards.iter().map(|guard| Instant::now() + guard.remaining()).max().unwrap();
    let before = proxy.attempts();
    // The caller's connection and the watchdog's: both are kept.
    assert_eq!(proxy.cut_all(), 2);
    wait_until("the end of every lease of before", SOON, || {
        assert!(guards.iter().all(|guard| !guard.is_lost()));
        Instant::now() > deadline
    })
    .await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 1000);
    let dials = proxy.attempts() - before;
    assert_eq!(dials, 2, "{dials} dials for two connections that were cut");
    drop(guards);
    wait_until("free locks", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}

#[tokio::test]
async fn n15_a_thousand_locks_that_cannot_be_renewed_dial_step_by_step_and_are_all_told_lost() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let guards = a_thousand_locks(&proxy, &server).await;
    let before = proxy.attempts();
    proxy.refuse(true);
    let cut = Instant::now();
    assert_eq!(proxy.cut_all(), 2);
    let losses = guards.iter().map(|guard| async {
        let deadline = Instant::now() + guard.remaining();
        guard.lost().await;
        deadline.elapsed()
    });
    let late = soon("every loss", join_all(losses)).await.into_iter().max().unwrap();
    assert!(late < ms(1_000), "told {late:?} after its deadline");
    let (dials, outage) = (proxy.attempts() - before, cut.elapsed());
    // At once, and then 25 ms later, doubling to half a second, up to a quarter of it less.
    let mut steps = [0, 18, 37, 75, 150, 300].into_iter().map(ms).chain(repeat(ms(375)));
    let mut at = Duration::ZERO;
    let most = from_fn(|| {
        at += steps.next()?;
        (at <= outage).then_some(())
    });
    let most = 2 * most.count() as u64;
    assert!((3..=most).contains(&dials), "{dials} dials in {outage:?}, {most} at the most");
    proxy.refuse(false);
    wait_until("the end of the leases", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}
