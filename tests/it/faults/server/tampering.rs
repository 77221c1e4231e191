//! What was there is gone or changed: a restart that forgets, an operator at work.

use super::*;

#[tokio::test]
async fn s2_a_restart_that_forgets_the_lock_is_told_by_the_next_renewal_or_the_deadline() {
    let server = Server::start();
    // Renewed every 1.2 s, believed for 3.6 s: the two can be told apart.
    let client = client_with(server.url(), ms(3_600)).await;
    let (renewed, explicit) = (client.lock("renewed"), client.lock("explicit"));
    let renewed = hold(&renewed).await;
    let explicit = explicit.lock_with_lease(ms(1_200)).await.unwrap();
    let (by_itself, ends) = (deadline(&renewed), deadline(&explicit));
    server.restart();
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "the server has to forget");
    // Nobody holds it as far as Redis knows: this is why the holder has to be told.
    let other = connect(&server).await;
    let successor = hold(&other.lock("renewed")).await;
    told_by_a_renewal(&renewed, by_itself).await;
    super::lost_at(&explicit, ends).await;
    for guard in [renewed, explicit] {
        let error = soon("unlocking", guard.unlock()).await.expect_err("nothing to give back");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    assert!(!successor.is_lost());
    assert!(server.exists("renewed"), "the successor's lock was released");
    release(successor).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[tokio::test]
async fn s22_swapped_databases_cost_the_lock_at_the_next_renewal() {
    let server = Server::start();
    let client = client_with(server.url(), ms(3_600)).await;
    let guard = hold(&client.lock("swapped")).await;
    let by_itself = deadline(&guard);
    server.ask::<()>(&["SWAPDB", "0", "1"]);
    assert!(!server.exists("swapped"), "the lock has to be elsewhere");
    told_by_a_renewal(&guard, by_itself).await;
    let error = guard.unlock().await.expect_err("nothing to give back");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    release(hold(&client.lock("swapped")).await).await;
    // Where it is now it still has an end, and nobody renews it.
    server.ask::<()>(&["SWAPDB", "0", "1"]);
    assert!(server.pttl("swapped") != -1);
}
