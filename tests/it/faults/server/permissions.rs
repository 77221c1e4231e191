//! The user may not do what it takes.

use super::*;

/// A client whose user may do everything but what `rights` take away.
async fn connect_as_narrow(
    server: &Server,
    rights: &[&str],
    watchdog_timeout: Duration,
) -> LockClient {
    allow(server, &[&["on", ">pass", "~*", "&*", "+@all"], rights].concat());
    client_with(narrow_url(server), watchdog_timeout).await
}

fn narrow_url(server: &Server) -> String {
    format!("redis://narrow:pass@127.0.0.1:{}/", server.port())
}

fn allow(server: &Server, rights: &[&str]) {
    server.ask::<()>(&[&["ACL", "SETUSER", "narrow"], rights].concat());
}

#[tokio::test]
async fn s17_without_permission_to_publish_waiters_get_the_lock_by_time() {
    // Who may not subscribe either goes by time all the more.
    tokio::join!(by_time("-publish", true), by_time("resetchannels", false));
}

async fn by_time(rights: &str, subscribes: bool) {
    let server = Server::start();
    let mute = connect_as_narrow(&server, &[rights], ms(1_800)).await;
    let listener = Listener::new(&server, &channel("mute"));
    let guard = mute.lock("mute").lock_with_lease(ms(2_500)).await.unwrap();
    let first = guard.owner().to_owned();
    // Another client: to one of its own it would hand the lock off.
    let next = client_with(narrow_url(&server), ms(1_800)).await.lock("mute");
    let waiter = tokio::spawn(async move { next.lock().await.expect("the lock") });
    if subscribes {
        // Beside the listener.
        wait_until("a subscription", SOON, || server.subscribers("mute") == 2).await;
    } else {
        wait_until("a refused subscription", SOON, || server.errors("NOPERM") > 0).await;
    }
    // The holder's, its own, and one more if it is subscribed.
    let requests = if subscribes { 3 } else { 2 };
    wait_until("its requests", SOON, || server.calls("evalsha") >= requests).await;
    // The answer is on its way.
    apart().await;
    let (begun, left) = (Instant::now(), ms(server.pttl("mute") as u64));
    release(guard).await;
    assert!(!server.holds("mute").contains_key(&first), "{rights}: it has been released");
    // At the end of the lease that it was told of, long before the cap of 30 s.
    let guard = soon("the lock, by time", waiter).await.unwrap();
    let took = begun.elapsed();
    assert!(took + ms(100) > left, "{rights}: it was told, {took:?} after the release");
    release(guard).await;
    assert!(listener.heard(&server).is_empty(), "{rights}: something was published");
    assert!(!server.exists("mute"));
}

#[tokio::test]
async fn s18_a_key_that_is_forbidden_while_it_is_held_is_said_and_made_good() {
    let server = Server::start();
    let client = connect_as_narrow(&server, &[], ms(1_800)).await;
    let lock = client.lock("theirs:1");
    let guard = lock.lock_with_lease(MINUTE).await.unwrap();
    let renewed = hold(&client.lock("theirs:2")).await;
    allow(&server, &["resetkeys", "~mine:*"]);
    not_executed(lock.try_lock_now().await, ErrorKind::Server, "");
    not_executed(client.lock("theirs:3").lock().await, ErrorKind::Server, "");
    goes_on(guard.unlock().await, ErrorKind::Server, "");
    assert!(server.errors("NOPERM") > 2, "nothing was refused");
    assert!(server.exists("theirs:1") && !server.exists("theirs:3"));
    // What cannot be renewed is lost at its own deadline, not by the refusal.
    lost_at(&renewed, deadline(&renewed)).await;
    allow(&server, &["~*"]);
    wait_until("a free lock", SOON, || !server.exists("theirs:1")).await;
    drop(renewed);
    wait_until("a free lock", SOON, || !server.exists("theirs:2")).await;
}

#[tokio::test]
async fn s18_a_renewal_that_may_not_look_is_no_loss() {
    let server = Server::start();
    let client = connect_as_narrow(&server, &[], ms(4_500)).await;
    let guard = hold(&client.lock("kept")).await;
    allow(&server, &["-hlen"]);
    let mut blind = redis::Client::open(narrow_url(&server)).unwrap().get_connection().unwrap();
    let look = redis::cmd("HLEN").arg("kept").query::<String>(&mut blind);
    assert_eq!(look.expect_err("forbidden").code(), Some("NOPERM"));
    let before = server.calls("evalsha");
    wait_until("a refused renewal", SOON, || server.calls("evalsha") > before).await;
    assert!(server.exists("kept"));
    tokio::time::sleep(ms(100)).await;
    assert!(!guard.is_lost(), "it is still held, and nobody could say otherwise");
    allow(&server, &["+hlen"]);
    renewed(&guard).await;
    assert!(!guard.is_lost());
    release(guard).await;
    assert!(!server.exists("kept"));
}

#[tokio::test]
async fn s18_several_locks_of_which_one_is_forbidden_are_taken_by_nobody() {
    let server = Server::start();
    for rights in [&["resetkeys", "~ours:*"][..], &["-pexpire"], &["-hset"]] {
        let client = connect_as_narrow(&server, rights, ms(1_800)).await;
        let several = client.multi_lock(["ours:1", "theirs:2", "ours:3"]);
        for error in [
            soon("a try", several.try_lock_now()).await.map(drop).unwrap_err(),
            soon("a wait", several.lock()).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Server, "{rights:?}: {error:#}");
            assert_eq!(error.outcome(), Outcome::NotExecuted, "{rights:?}: {error:#}");
        }
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "{rights:?}");
        allow(&server, &["reset"]);
    }
}
