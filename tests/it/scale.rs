//! What many locks of one client cost in commands, where no answer comes and where one of them cannot
//! be renewed. (What they cost in memory is in `tests/allocations.rs`.)

use std::time::Instant;

use crate::prelude::*;

/// When each ends if nothing renews it.
fn deadlines(guards: &[LockGuard]) -> Vec<Instant> {
    guards.iter().map(|guard| Instant::now() + guard.remaining()).collect()
}

/// How many of them have been renewed since.
fn later_than(before: &[Instant], guards: &[LockGuard]) -> usize {
    let now = deadlines(guards).into_iter().zip(before);
    now.filter(|(now, before)| *now > **before + ms(500)).count()
}

/// Few batches are under way at a time, but not at the price of a lease: where Redis is far away
/// they do not wait for each other.
#[tokio::test]
async fn renewals_follow_each_other_while_no_answer_comes() {
    const MANY: usize = 2_000;
    let (server, proxy) = proxied();
    let builder = LockClient::builder().url(proxy.url(&server)).watchdog_timeout(ms(15_000));
    // No answer is given up before the test is over.
    let client = builder.command_timeout(MINUTE).connect().await.unwrap();
    // The background has its connection before.
    drop(hold(&client.lock("first")).await);
    wait_until("a free lock", SOON, || !server.exists("first")).await;
    let locks: Vec<_> = (0..MANY).map(|n| client.lock(format!("many:{n}"))).collect();
    let guards = join_all(locks.iter().map(hold)).await;
    let before = deadlines(&guards);
    proxy.forget_commands();
    proxy.stall_replies(true);
    wait_until("a renewal of each on its way", ms(9_000), || {
        proxy.sent("EVALSHA") >= MANY as u64 / 100 && proxy.withheld() > 0
    })
    .await;
    assert_eq!(later_than(&before, &guards), 0, "nothing was answered");
    proxy.stall_replies(false);
    wait_until("a renewal of each", SOON, || later_than(&before, &guards) == MANY).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    drop(guards);
    wait_until("free locks", SOON, || server.ask::<usize>(&["DBSIZE"]) == 0).await;
}

/// A lock that may not be touched has every batch refused that it is in.
#[tokio::test]
async fn a_lock_that_may_not_be_touched_costs_few_commands_of_those_beside_it() {
    const BESIDE: usize = 99;
    let server = Server::start();
    let client = client_with(server.url(), ms(15_000)).await;
    let names = (0..=BESIDE).map(|n| if n == 50 { "bad".into() } else { format!("good:{n}") });
    let locks: Vec<_> = names.map(|name| client.lock(name)).collect();
    let mut guards = join_all(locks.iter().map(hold)).await;
    let bad = guards.remove(50);
    let before = deadlines(&guards);
    server.ask::<()>(&["ACL", "SETUSER", "default", "resetkeys", "~good:*"]);
    server.reset_stats();
    wait_until("a renewal of the others", SOON, || later_than(&before, &guards) == BESIDE).await;
    let refused = server.errors("NOPERM");
    let calls = server.calls("evalsha") + refused;
    println!("{calls} commands, {refused} of them refused");
    assert!(refused >= 1, "nothing was refused");
    assert!(calls < 50, "{calls} commands for {BESIDE} locks and a bad one");
    server.ask::<()>(&["ACL", "SETUSER", "default", "allkeys"]);
    assert!(!bad.is_lost());
    for guard in guards.into_iter().chain([bad]) {
        release(guard).await;
    }
    assert_eq!(server.ask::<usize>(&["DBSIZE"]), 0);
}
