//! The server loads its data.

use super::*;

#[tokio::test]
async fn s13_holders_calls_and_waiters_ride_out_a_server_that_loads() {
    // 60 ms a key, and an ear for requests every 2 MiB, which are two keys.
    let slowly = ["--key-load-delay", "60000", "--rdbcompression", "no"];
    let server = Server::start_with(&slowly);
    // Renewed every 1.5 s, and so while the server loads, which takes 1.8 s.
    let holder = client_with(server.url(), ms(4_500)).await;
    let patient = impatient(server.url(), SOON).await;
    let short = impatient(server.url(), ms(500)).await;
    let guard = hold(&holder.lock("held")).await;
    server.hold_by_hand("waited", "somebody:1", MINUTE);
    let waiter = parked(&server, &short, "waited").await;
    let fill = "for i = 1, 30 do redis.call('SETRANGE', 'filler:' .. i, 1048575, 'x') end";
    server.ask::<()>(&["EVAL", fill, "0"]);
    renewed(&guard).await;
    server.ask::<()>(&["SAVE"]);
    server.kill();
    server.start_again_loading();
    // The connection has to be known as dead, or the command was sent into the void.
    let refused = short.lock("refused");
    let _ = refused.is_locked().await;
    let error = refused.try_lock_now().await.expect_err("it loads for longer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let called = soon("a call that rides it out", patient.lock("free").lock()).await;
    assert_eq!(server.info("loading").as_deref(), Some("0"));
    assert!(server.errors("LOADING") > 0, "nobody was refused");
    release(called.expect("riding out")).await;
    renewed(&guard).await;
    assert!(!guard.is_lost());
    assert!(!waiter.is_finished());
    server.free_by_hand("waited");
    has_its_turn(waiter).await;
    release(guard).await;
    assert!(["held", "waited", "free", "refused"].iter().all(|name| !server.exists(name)));
}
