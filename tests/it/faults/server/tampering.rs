//! What was there is gone: a restart that forgets. (An operator at work is in `loss.rs`.)

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
    lost_at(&explicit, ends).await;
    for guard in [renewed, explicit] {
        let error = soon("unlocking", guard.unlock()).await.expect_err("nothing to give back");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    assert!(!successor.is_lost());
    assert!(server.exists("renewed"), "the successor's lock was released");
    release(successor).await;
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}
