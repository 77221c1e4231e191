//! `LockGuard::hold_at_least`: a lock that stays after its release.

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
async fn close_does_not_cut_it_short() {
    let server = Server::start();
    let client = connect(&server).await;
    let guard = hold(&client.lock("closed")).await;
    guard.hold_at_least(MINUTE);
    drop(guard);
    soon("closing", client.close()).await;
    assert!(ttl(&server, "closed") > MINUTE / 2);
}

/// Somebody else has the lock for a few seconds, or another handle of the client left it for a minute.
#[tokio::test]
async fn a_lock_that_is_lost_leaves_nothing_of_its_own() {
    let server = Server::start();
    let client = connect(&server).await;
    for (by_hand, left) in [(true, ms(5_000)), (false, MINUTE)] {
        let name = format!("lost:{by_hand}");
        let guard = hold(&client.lock(&name)).await;
        guard.hold_at_least(ms(20_000));
        server.ask::<()>(&["DEL", &name]);
        if by_hand {
            server.hold_by_hand(&name, "somebody:1", left);
        } else {
            let other = hold(&client.lock(&name)).await;
            other.hold_at_least(left);
            release(other).await;
        }
        let owners = server.holds(&name);
        let error = soon("unlocking", guard.unlock()).await.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{name}: {error}");
        assert_eq!(server.holds(&name), owners, "{name}");
        let ttl = ttl(&server, &name);
        assert!(ttl <= left && ttl > left / 2, "{name}: {ttl:?}");
    }
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
