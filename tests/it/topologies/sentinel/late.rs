//! A connection that stands only when the primary is another one already.

use super::*;

/// The primary of before is reached by way of a proxy. It changes while another runtime connects to
/// it, for a try to lock `one`.
async fn meanwhile(answers: bool) {
    let group = Replicated::start(1);
    let (old, new) = (group.primary(), group.replica());
    let proxy = Proxy::new(old);
    let sentinel = Server::start_sentinel(&conviction("127.0.0.1", proxy.port(), 0));
    let builder = by_way_of([sentinel.url()]).watchdog_timeout(MINUTE).command_timeout(SOON);
    let client = connected(builder).await;
    release(hold(&client.lock("before")).await).await;
    group.promote(new);

    proxy.hold("HELLO");
    let late = client.lock("one");
    let caller = tokio::task::spawn_blocking(move || {
        runtime().block_on(async { late.try_lock_now().await.map(|guard| guard.is_some()) })
    });
    wait_until("a connection that is begun", SOON, || proxy.faults() >= 1).await;
    convince(&sentinel, new);
    until_granted_at(new, &client).await;

    let asked = old.calls("evalsha");
    if answers {
        proxy.let_go();
    }
    // Less than the command timeout, which is what a connection may take.
    let tried = within(SOON / 2, "the lock", caller).await.expect("a caller that did not panic");
    assert!(tried.expect("an answer"), "nobody else has it");
    assert_eq!(old.calls("evalsha"), asked, "a primary of the past was asked for a lock");
    if !answers {
        assert!(proxy.held() >= 1 && proxy.executed_slow() == 0, "it was to stay held");
    }
    wait_until("a free lock", SOON, || !new.exists("one")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_begun_before_the_primary_changed_is_not_used() {
    meanwhile(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_never_stands_holds_up_nobody_once_the_primary_has_changed() {
    meanwhile(false).await;
}
