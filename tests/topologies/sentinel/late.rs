//! A connection that stands only when the primary is another one already.

use std::thread;
use std::time::Instant;

use super::by_way_of;
use crate::support::sentinel::MASTER;
use crate::support::{Proxy, Replicated, SOON, Server, hold, ms, release, wait_until};
use crate::{MINUTE, connected};

/// A Sentinel that finds no others to agree with, and says so for ever.
fn conviction(port: u16, epoch: u64) -> String {
    format!(
        "sentinel monitor {MASTER} 127.0.0.1 {port} 99\n\
         sentinel down-after-milliseconds {MASTER} 600000\n\
         sentinel config-epoch {MASTER} {epoch}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_begun_before_the_primary_changed_is_not_used() {
    let group = Replicated::start(1);
    let (old, new) = (group.primary(), group.replica());
    let proxy = Proxy::new(old);
    let sentinel = Server::start_sentinel(&conviction(proxy.port(), 0));
    let builder = by_way_of([sentinel.url()]).watchdog_timeout(MINUTE).command_timeout(SOON);
    let client = connected(builder).await;
    release(hold(&client.lock("before")).await).await;
    group.promote(new);

    // Somebody else's runtime connects, and that takes its time.
    proxy.hold("HELLO");
    let late = client.lock("one");
    let caller = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move { late.try_lock_now().await.map(|guard| guard.is_some()) })
    });
    wait_until("a connection that is begun", SOON, || proxy.faults() >= 1).await;
    sentinel.kill();
    sentinel.configure(&conviction(new.port(), 1));
    sentinel.start_again();
    let begun = Instant::now();
    loop {
        let guard = hold(&client.lock("moved")).await;
        let moved = new.exists("moved");
        release(guard).await;
        if moved {
            break;
        }
        assert!(begun.elapsed() < SOON, "the change was not heard of");
        tokio::time::sleep(ms(20)).await;
    }
    let guard = hold(&client.lock("one")).await;
    assert!(new.exists("one"));

    proxy.let_go();
    let granted = tokio::task::spawn_blocking(move || caller.join().unwrap()).await.unwrap();
    assert!(!granted.expect("an answer"), "two have the lock");
    assert!(!old.exists("one"));
    release(guard).await;
    wait_until("a free lock", SOON, || !new.exists("one")).await;
}
