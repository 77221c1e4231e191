//! Rows T1 to T4 with Sentinels: the primary is another one all of a sudden.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redlatch::{Error, ErrorKind, LockClient};

use super::{by_way_of, client_of, replicated};
use crate::support::replicas::{is_primary, replicas_of};
use crate::support::sentinel::MASTER;
use crate::support::{
    SOON, Sentinels, Server, hold, ms, release, renewed, soon, wait_until, within,
};
use crate::topologies::{
    MINUTE, connected, deadline, gets, told_by_a_renewal, until_free, waiting,
};

/// Long enough for a failover that nobody has asked for.
const LONG: Duration = Duration::from_secs(18);

/// Whom a failover is to befall: a holder, a waiter for the same lock, and an idle client.
struct Company {
    holder: LockClient,
    waiter: LockClient,
    idle: LockClient,
}

impl Company {
    async fn of(set: &Sentinels, watchdog_timeout: Duration) -> Self {
        let client = async || client_of(set, watchdog_timeout).await;
        let company = Self { holder: client().await, waiter: client().await, idle: client().await };
        release(hold(&company.idle.lock("idle")).await).await;
        company
    }
}

/// Locks and unlocks until it is told to stop.
async fn at_it(client: LockClient, stop: Arc<AtomicBool>) -> (u64, Vec<Error>) {
    let (mut rounds, mut errors) = (0, Vec::new());
    let lock = client.lock("busy");
    while !stop.load(Ordering::SeqCst) {
        let round = async { lock.lock().await?.unlock().await };
        match round.await {
            Ok(()) => rounds += 1,
            Err(error) => errors.push(error),
        }
        tokio::time::sleep(ms(1)).await;
    }
    (rounds, errors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_planned_failover_by_sentinels_is_ridden_out() {
    let set = Sentinels::start();
    let Company { holder, waiter, idle } = Company::of(&set, ms(9_000)).await;
    let old = set.master();
    let lock = holder.lock("kept");
    let guards = [hold(&lock).await, hold(&lock).await];
    let fenced = soon("locking", holder.fenced_lock("fenced").lock()).await.unwrap();
    let first = fenced.token();
    fenced.unlock().await.unwrap();
    let parked = waiting(&waiter, "kept");
    wait_until("a subscription", SOON, || old.subscribers("kept") == 1).await;
    let stop = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn(at_it(client_of(&set, ms(9_000)).await, Arc::clone(&stop)));
    replicated(old);

    let new = set.failover();
    assert_ne!(old.port(), new.port());
    // Whoever comes now finds the new one, and so does whoever was there.
    wait_until("the waiter at the new primary", SOON, || new.subscribers("kept") == 1).await;
    assert!(!parked.is_finished(), "granted to two");
    renewed(&guards[0]).await;
    renewed(&guards[0]).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_eq!(new.holds("kept")[lock.owner()], 2);
    stop.store(true, Ordering::SeqCst);
    let (rounds, errors) = soon("the end", busy).await.unwrap();
    assert!(rounds > 0);
    // The old primary grants and renews until it is told. What it has granted last is lost, and
    // nothing else happens to anybody.
    let lost = |error: &Error| error.kind() == ErrorKind::Lost;
    assert!(errors.len() <= 1 && errors.iter().all(lost), "{errors:?}");

    let [outer, inner] = guards;
    release(inner).await;
    release(outer).await;
    release(gets(parked, ms(3_000)).await).await;
    release(hold(&idle.lock("idle")).await).await;
    let fenced = soon("locking", idle.fenced_lock("fenced").lock()).await.unwrap();
    assert!(fenced.token() > first);
    fenced.unlock().await.unwrap();
    for name in ["kept", "idle", "busy", "fenced"] {
        until_free("a free lock", new, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_a_killed_primary_costs_no_lock_that_was_replicated() {
    let set = Sentinels::start();
    let Company { holder, waiter, idle } = Company::of(&set, LONG).await;
    let patient = connected(by_way_of(set.urls()).command_timeout(LONG)).await;
    let old = set.master();
    let lock = holder.lock("kept");
    let guards = [hold(&lock).await, hold(&lock).await];
    let parked = waiting(&waiter, "kept");
    wait_until("a subscription", SOON, || old.subscribers("kept") == 1).await;
    replicated(old);
    set.kill_master();
    // Asked while there is none.
    let called = tokio::spawn(async move {
        let guard = within(2 * SOON, "the lock", patient.lock("called").lock()).await?;
        guard.unlock().await
    });
    let new = set.master_after(old);
    called.await.unwrap().expect("riding it out");
    wait_until("the waiter at the new primary", SOON, || new.subscribers("kept") == 1).await;
    assert!(!parked.is_finished(), "granted to two");
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_eq!(new.holds("kept")[lock.owner()], 2);
    let [outer, inner] = guards;
    release(inner).await;
    release(outer).await;
    release(gets(parked, ms(3_000)).await).await;
    release(hold(&idle.lock("idle")).await).await;
    for name in ["kept", "idle", "called"] {
        until_free("a free lock", new, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t1_renewals_go_on_at_the_new_primary_after_the_old_one_was_killed() {
    let set = Sentinels::start();
    // Renewed every four seconds: some renewal falls into the time without a primary, or the
    // connection for it has to be made again.
    let client = client_of(&set, ms(12_000)).await;
    let old = set.master();
    let guard = hold(&client.lock("kept")).await;
    replicated(old);
    set.kill_master();
    let new = set.master_after(old);
    renewed(&guard).await;
    assert!(new.pttl("kept") > 8_000, "renewed elsewhere");
    release(guard).await;
    assert!(!new.exists("kept"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t2_a_lock_that_sentinels_lost_is_told_lost_and_free_for_others() {
    let set = Sentinels::start();
    let Company { holder, waiter, idle: other } = Company::of(&set, LONG).await;
    let old = set.master();
    let kept = hold(&holder.lock("kept")).await;
    replicated(old);
    set.detach_replicas();
    // Only the old primary has heard of these.
    let lost = hold(&holder.lock("lost")).await;
    let fenced = soon("locking", holder.fenced_lock("fenced").lock()).await.unwrap();
    let by_itself = deadline(&lost);
    let parked = waiting(&waiter, "lost");
    wait_until("a subscription", SOON, || old.subscribers("lost") == 1).await;
    set.kill_master();
    set.reattach_replicas();
    let new = set.master_after(old);
    assert!(new.exists("kept"), "that one was not to be lost");
    assert!(new.holds("lost").values().all(|count| *count == 1));

    // As documented, both may believe that they hold it for a while; the tokens are in order.
    let successor = gets(parked, SOON).await;
    let later = soon("locking", other.fenced_lock("fenced").lock()).await.unwrap();
    assert!(later.token() > fenced.token(), "{} after {}", later.token(), fenced.token());
    told_by_a_renewal(&lost, by_itself).await;
    soon("the loss", fenced.lost()).await;
    assert_eq!(lost.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
    assert_eq!(fenced.unlock().await.expect_err("lost").kind(), ErrorKind::Lost);
    assert!(!kept.is_lost() && !successor.is_lost() && !later.is_lost());
    release(successor).await;
    later.unlock().await.unwrap();
    release(kept).await;
    for name in ["kept", "lost", "fenced"] {
        until_free("a free lock", new, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t3_with_the_option_for_replicas_a_primary_that_comes_back_grants_nothing() {
    let set = Sentinels::start();
    let [away, voters @ ..] = set.sentinels() else { panic!("no Sentinels") };
    // The only Sentinel that this client knows is away during the failover.
    let careful = by_way_of([away.url()]).replicas(1, ms(200)).command_timeout(ms(1_000));
    let careful = connected(careful).await;
    release(hold(&careful.lock("idle")).await).await;
    away.pause();
    let old = set.pause_master();
    let new = set.master_after(old);
    wait_until("a replica of the new primary", SOON, || replicas_of(new) >= 1).await;
    let holder = connected(LockClient::builder().url(new.url())).await;
    let guard = hold(&holder.lock("contended")).await;
    // With nobody to tell it otherwise the old one believes that nothing has happened.
    voters.iter().for_each(Server::kill);
    old.resume();
    wait_until("replicas that have left", SOON, || replicas_of(old) == 0).await;
    assert!(is_primary(old) && is_primary(new), "there are to be two");
    let (asked, waits) = (old.calls("evalsha"), old.calls("wait"));

    // Over a connection from before, which still works.
    for _ in 0..3 {
        let granted = soon("an answer", careful.lock("contended").try_lock_now()).await;
        let error = granted.expect_err("a primary of the past has not said that it is busy");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(old.calls("evalsha") >= asked + 3, "it was not even asked");
    assert!(old.calls("wait") >= waits + 3, "nobody waited for its replicas");
    until_free("a lock that is given back", old, "contended").await;
    assert!(!guard.is_lost());

    // When it is told, the client finds the other one.
    voters.iter().for_each(Sentinels::start_again);
    away.resume();
    wait_until("a replica again", SOON * 3, || !is_primary(old)).await;
    release(guard).await;
    let grants = async {
        loop {
            match careful.lock("contended").try_lock_now().await {
                Ok(guard) => return guard.expect("nobody else wants it"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    let guard = within(SOON * 2, "a lock at the new primary", grants).await;
    assert!(new.exists("contended"));
    release(guard).await;
    until_free("a free lock", new, "contended").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t3_a_call_under_way_to_a_primary_that_stands_still_is_made_at_the_next_one() {
    let set = Sentinels::start();
    let client = connected(by_way_of(set.urls()).command_timeout(MINUTE)).await;
    release(hold(&client.lock("before")).await).await;
    let old = set.pause_master();
    let lock = client.lock("called");
    let called = tokio::spawn(async move { lock.try_lock_now().await });
    let new = set.master_after(old);
    // Long before its own time is up.
    let answer = soon("an answer of the next primary", called).await.unwrap();
    let guard = answer.expect("an answer").expect("a free lock");
    assert!(new.exists("called"));
    release(guard).await;
    until_free("a free lock", new, "called").await;
    old.resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t4_without_any_sentinel_locks_are_held_waited_for_and_taken_as_before() {
    let set = Sentinels::start();
    let Company { holder, waiter, idle } = Company::of(&set, ms(1_500)).await;
    let master = set.master();
    let guard = hold(&holder.lock("kept")).await;
    let parked = waiting(&waiter, "kept");
    wait_until("a subscription", SOON, || master.subscribers("kept") == 1).await;
    renewed(&guard).await;
    set.kill_sentinels();
    assert!(set.sentinels().iter().all(|sentinel| sentinel.try_ask::<()>(&["PING"]).is_err()));
    // Past its lease.
    let end = Instant::now() + ms(2_000);
    while Instant::now() < end {
        renewed(&guard).await;
        release(hold(&idle.lock("idle")).await).await;
    }
    assert!(!guard.is_lost() && !parked.is_finished());
    release(guard).await;
    release(gets(parked, ms(1_000)).await).await;
    for name in ["kept", "idle"] {
        until_free("a free lock", master, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t4_one_sentinel_of_three_is_enough_to_find_the_primary_again() {
    let set = Sentinels::start();
    let client = client_of(&set, ms(6_000)).await;
    let master = set.master();
    let guard = hold(&client.lock("kept")).await;
    set.sentinels()[0].kill();
    set.sentinels()[1].pause();
    // Without a quorum nobody fails over: here it is the connections that have to be made again.
    let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
    assert!(set.sentinels()[2].try_ask::<(String, u16)>(&asked).is_ok());
    let cut: u64 = master.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    assert!(cut >= 1, "no connection was cut");
    release(hold(&client.lock("again")).await).await;
    renewed(&guard).await;
    release(guard).await;
    for name in ["kept", "again"] {
        until_free("a free lock", master, name).await;
    }
}
