//! `LockGuard::hold_at_least`: a lock that stays after its release.

use std::time::Instant;

use tokio::time::sleep;

use crate::prelude::*;

fn ttl(server: &Server, name: &str) -> Duration {
    ms(server.ask(&["PTTL", name]))
}

#[tokio::test]
async fn a_release_leaves_the_lock_until_then_and_for_the_same_handle_too() {
    let server = Server::start();
    let client = connect(&server).await;
    for dropped in [false, true] {
        let name = format!("stays:{dropped}");
        let lock = client.lock(&name);
        let guard = hold(&lock).await;
        guard.hold_at_least(MINUTE);
        assert!(ttl(&server, &name) < MINUTE / 2 + ms(1), "the lease was prolonged");
        if dropped {
            drop(guard);
        } else {
            release(guard).await;
        }
        wait_until("the release", SOON, || ttl(&server, &name) > MINUTE - ms(5_000)).await;
        assert!(ttl(&server, &name) <= MINUTE);
        assert!(client.lock(&name).try_lock_now().await.unwrap().is_none());
        assert!(lock.try_lock_now().await.unwrap().is_none(), "the same handle got in");
        assert_eq!(lock.hold_count().await.unwrap(), 0);
        assert!(lock.force_unlock().await.unwrap());
        release(hold(&lock).await).await;
        assert!(!server.exists(&name), "it stayed for the next hold, too");
    }
}

#[tokio::test]
async fn the_time_counts_from_the_acquire_and_waiters_come_when_it_is_over() {
    let server = Server::start();
    let (mine, other) = (connect(&server).await, connect(&server).await);
    let guard = hold(&mine.lock("over")).await;
    let acquired = Instant::now();
    // One of the same client, to which the lock would be handed off, and one of another.
    let waiters = [mine.lock("over"), other.lock("over")].map(|lock| {
        tokio::spawn(async move {
            let guard = hold(&lock).await;
            let when = Instant::now();
            release(guard).await;
            when
        })
    });
    wait_until("two waiters", SOON, || server.subscribers("over") == 2).await;
    turns(10).await;
    guard.hold_at_least(ms(100));
    guard.hold_at_least(ms(1_000));
    guard.hold_at_least(ms(500));
    release(guard).await;
    for when in soon("the waiters are told", join_all(waiters)).await {
        let waited = when.expect("no panic") - acquired;
        assert!(waited >= ms(990), "after {waited:?}");
    }
}

#[tokio::test]
async fn close_does_not_cut_it_short() {
    let server = Server::start();
    let client = connect(&server).await;
    let guard = hold(&client.lock("closed")).await;
    guard.hold_at_least(MINUTE);
    drop(guard);
    soon("closing", client.close()).await;
    assert!(ttl(&server, "closed") > MINUTE / 2);
}

#[tokio::test]
async fn a_lock_that_is_lost_leaves_nothing_of_its_own() {
    let server = Server::start();
    let guard = hold(&connect(&server).await.lock("lost")).await;
    guard.hold_at_least(MINUTE);
    server.ask::<()>(&["DEL", "lost"]);
    server.hold_by_hand("lost", "somebody:1", ms(5_000));
    let error = soon("unlocking", guard.unlock()).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(server.holds("lost").into_keys().eq(["somebody:1".to_owned()]));
    assert!(ttl(&server, "lost") <= ms(5_000));
}

#[tokio::test]
async fn what_another_handle_of_the_client_left_is_not_touched() {
    let server = Server::start();
    let client = connect(&server).await;
    let lost = hold(&client.lock("each")).await;
    lost.hold_at_least(ms(10_000));
    assert!(client.lock("each").force_unlock().await.unwrap());
    let other = hold(&client.lock("each")).await;
    other.hold_at_least(MINUTE);
    release(other).await;
    let error = soon("unlocking", lost.unlock()).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(ttl(&server, "each") > MINUTE / 2);
}

#[tokio::test]
async fn a_hold_that_is_asked_for_during_a_release_does_not_get_past_it() {
    let server = Server::start();
    let proxy = Proxy::new(&server);
    let client = soon("connecting", LockClient::connect(proxy.url(&server))).await.unwrap();
    let lock = client.lock("during");
    let (outer, inner) = (hold(&lock).await, hold(&lock).await);
    outer.hold_at_least(MINUTE);
    // The release of the inner hold is under way when the outer one goes, too.
    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let faults = proxy.faults();
    drop(inner);
    wait_until("the first release", SOON, || proxy.faults() > faults).await;
    let mut asking = tokio_test::task::spawn(lock.try_lock_now());
    assert!(asking.poll().is_pending());
    drop(outer);
    proxy.let_go();
    assert!(soon("an answer", asking).await.unwrap().is_none(), "it got past the retention");
    assert!(ttl(&server, "during") > MINUTE / 2);
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_leaves_it_all_the_same() {
    let server = Server::start();
    for (fault, name) in [(Fault::DropReplyAndReset, "reset"), (Fault::Mute, "mute")] {
        let proxy = Proxy::new(&server);
        let builder = LockClient::builder().url(proxy.url(&server)).command_timeout(ms(1_000));
        let client = builder.connect().await.expect("connecting");
        let guard = hold(&client.lock("before")).await;
        guard.hold_at_least(ms(1));
        release(guard).await;
        let guard = hold(&client.lock(name)).await;
        let owner = guard.owner().to_owned();
        guard.hold_at_least(MINUTE);
        proxy.plan("EVALSHA", 1, fault);
        let faults = proxy.faults();
        let unlocked = soon("unlocking", guard.unlock()).await;
        assert_eq!(proxy.faults(), faults + 1);
        assert!(unlocked.is_ok() || unlocked.is_err_and(|e| e.kind() == ErrorKind::Unavailable));
        soon("closing", client.close()).await;
        assert!(ttl(&server, name) > MINUTE / 2, "{name}");
        assert_eq!(server.holds(name), [(owner, 1)].into(), "{name}");
    }
}

/// What a schedule in five instances needs: each of its hundred rounds is run once, whoever of them
/// begins first, and however far apart within 50 ms they do.
#[tokio::test]
async fn a_job_that_is_done_at_once_runs_once_in_five_instances() {
    let server = Server::start();
    let clients = join_all((0..5).map(|_| connect(&server))).await;
    let rounds = (0..100).map(async |round| {
        let name = format!("job:{round}");
        let instances = clients.iter().map(async |client| {
            sleep(ms(fastrand::u64(0..=50))).await;
            let guard = client.lock(&name).try_lock_now().await.unwrap()?;
            guard.hold_at_least(MINUTE);
            release(guard).await;
            Some(())
        });
        join_all(instances).await.into_iter().flatten().count()
    });
    assert_eq!(join_all(rounds).await, [1; 100]);
}
