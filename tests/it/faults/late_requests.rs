//! A request is held up on its way, on a connection that is given up meanwhile (N3, N6). What was
//! sent after it on another connection is done first; then it arrives.

mod matrix;
mod servers;

use tokio::task::spawn_blocking;

use super::*;

/// The client is a user who may do everything but what `rules` say.
async fn scene(rules: &[&str]) -> Far {
    scene_with(ms(1_000), rules).await
}

async fn scene_with(command_timeout: Duration, rules: &[&str]) -> Far {
    let (server, proxy) = proxied();
    let user = ["ACL", "SETUSER", "user", "on", ">p", "~*", "&*", "+@all"];
    server.ask::<()>(&[&user, rules].concat());
    let url = format!("redis://user:p@127.0.0.1:{}/", proxy.port());
    let client = impatient(url, command_timeout).await;
    release(hold(&client.lock("warm-up")).await).await;
    Far { server, proxy, client }
}

/// Releases with the request held up, and locks again on the same handle; then it arrives.
/// Returns what Redis counts for the new hold in the end, and how many requests it executed late.
async fn late_release(scene: &Far) -> (u32, u64) {
    let Far { server, proxy, client } = scene;
    let lock = client.lock("late");
    let guard = hold(&lock).await;
    let faults = proxy.faults();
    proxy.plan("EVALSHA", 1, Fault::HoldBack);
    let error = soon("unlocking", guard.unlock()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Unknown));
    assert_eq!(proxy.faults(), faults + 1);
    wait_until("the release in the background", SOON, || !server.exists("late")).await;
    let again = hold(&lock).await;
    proxy.let_go();
    wait_until("its fate", SOON, || proxy.fates_are_known()).await;
    let count = lock.hold_count().await.unwrap();
    drop(again);
    wait_until("a free lock", SOON, || !server.exists("late")).await;
    (count, proxy.executed_late())
}

/// The proof that the fault takes effect. The late release names an owner that nothing has any more.
#[tokio::test]
async fn n6_without_permission_to_close_a_connection_a_late_release_frees_nothing() {
    // All but CLIENT KILL, in words that 6.2 knows too.
    let scene = scene(&["-client", "+client|info"]).await;
    let (count, late) = late_release(&scene).await;
    assert_eq!(late, 1, "the release never arrived: what does this show?");
    assert_eq!(count, 1, "the old release has freed the new hold");
}

/// The undo waits for the batch, and has little time left when the batch is given up. It fails alone
/// then, and the next one may not overtake either of them.
#[tokio::test]
async fn n6_a_call_in_a_batch_that_was_dropped_and_held_up_does_not_free_a_later_hold() {
    let Far { server, proxy, client } = scene_with(ms(1_000), &[]).await;
    let lock = |number| client.lock(format!("late {number}"));
    let locks: Arc<[Lock]> = (0..4).map(lock).collect();
    // Two go at once, and the others share the third.
    proxy.plan("EVALSHA", 3, Fault::HoldBack);
    let all = join_all(locks.iter().map(Lock::try_lock_now));
    let held_up = async {
        // So much of its time the undo has when the batch is given up.
        tokio::time::sleep(ms(75)).await;
        wait_until("a call that is held up", SOON, || proxy.held() == 1).await;
    };
    tokio::select! {
        _ = all => panic!("nothing was held up"),
        () = held_up => {}
    }
    // Another runtime has another connection, on which nothing is held up.
    let handle = locks.clone();
    let again = move || {
        runtime().block_on(async {
            loop {
                // While the undo is under way the handle has to wait.
                if let Ok(guard) = handle[3].lock().await {
                    return guard;
                }
            }
        })
    };
    let again = soon("the lock", spawn_blocking(again)).await.expect("no panic");
    proxy.let_go();
    proxy.settled(ms(100)).await;
    assert_eq!(locks[3].hold_count().await.unwrap(), 1, "the undo has freed the new hold");
    release(again).await;
    wait_until("free locks", SOON, || server.ask::<u64>(&["DBSIZE"]) == 0).await;
}

/// A busy server does not say which connection it is. The connection must not be used then, because
/// nothing could name it later.
#[tokio::test]
async fn n6_a_connection_that_was_begun_while_the_server_was_busy_is_closed_like_any_other() {
    let scene = scene(&[]).await;
    // In words that 6.2 knows too.
    scene.server.ask::<()>(&["CONFIG", "SET", "lua-time-limit", "1"]);
    let mut busy = scene.server.connection().expect("a connection");
    let busy = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy)
    });
    wait_until("a busy server", SOON, || scene.server.try_ask::<()>(&["PING"]).is_err()).await;
    let attempts = scene.proxy.attempts();
    scene.proxy.cut_all();
    let lock = scene.client.lock("after");
    let locked = async {
        loop {
            match lock.lock().await {
                Ok(guard) => return guard,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
    };
    let refused = async {
        // The client dials two at once, and again those that do not say which connection they are.
        wait_until("a connection that was begun anew", SOON, || {
            scene.proxy.attempts() >= attempts + 3
        })
        .await;
        scene.server.ask::<()>(&["SCRIPT", "KILL"]);
    };
    let (guard, ()) = soon("the lock", async { tokio::join!(locked, refused) }).await;
    busy.join().expect("no panic").expect_err("the script was killed");
    release(guard).await;
    assert!(scene.server.errors("BUSY") >= 2, "no connection was begun while it was busy");
    assert_eq!(late_release(&scene).await, (1, 0));
}
