//! How the primary is found: which Sentinels are asked, and what is believed.

use std::time::Instant;

use super::*;

fn nobody_there() -> String {
    format!("redis://127.0.0.1:{}/", free_port())
}

#[tokio::test]
async fn a_sentinel_that_is_dead_or_silent_holds_up_nobody() {
    let server = Server::start();
    let (good, silent) = (stubborn(&server, 0), stubborn(&server, 0));
    silent.pause();
    let good = good.url();
    for (what, first) in [
        ("refused", vec![nobody_there()]),
        ("silent", vec![silent.url()]),
        ("both", vec![silent.url(), nobody_there(), silent.url()]),
    ] {
        let start = Instant::now();
        let urls = first.into_iter().chain([good.clone()]);
        let client = connected(by_way_of(urls)).await;
        let took = passed(start);
        // Less than the command timeout, within which the first command has to be through too.
        assert!(took < ms(2_500), "{what}: connecting took {took:?}");
        release(hold(&client.lock("quick")).await).await;
    }
    assert!(!server.exists("quick"));
}

#[tokio::test]
async fn a_replica_is_not_taken_for_the_primary_whatever_a_sentinel_says() {
    let group = Replicated::start(1);
    let (primary, replica) = (group.primary(), group.replica());
    let (stale, fresh) = (stubborn(replica, 0), stubborn(primary, 1));
    let short = by_way_of([stale.url()]).command_timeout(ms(1_000));
    let error = soon("connecting", short.connect()).await.expect_err("there is no primary");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // What is not so does not count even if it is the newest.
    let early = stubborn(replica, 2);
    for urls in [
        [stale.url(), fresh.url()],
        [fresh.url(), stale.url()],
        [early.url(), fresh.url()],
        [fresh.url(), early.url()],
    ] {
        let client = connected(by_way_of(urls)).await;
        let guard = hold(&client.lock("believed")).await;
        assert!(primary.exists("believed"));
        release(guard).await;
        assert!(!primary.exists("believed"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w24_a_report_that_was_refuted_once_is_believed_as_soon_as_it_is_true() {
    let group = Replicated::start(1);
    let (old, new) = (group.primary(), group.replica());
    let (before, early) = (stubborn(old, 0), stubborn(new, 1));
    early.kill();
    let client = connected(by_way_of([before.url(), early.url()]).watchdog_timeout(MINUTE)).await;
    release(hold(&client.lock("before")).await).await;
    // Else it would learn from the other one.
    before.pause();
    early.start_again();
    soon("a refutation", async {
        while new.calls("role") == 0 {
            release(hold(&client.lock("before")).await).await;
        }
    })
    .await;
    // The newest report is not true yet.
    let guard = hold(&client.lock("refuted")).await;
    assert!(old.exists("refuted") && new.info("role").as_deref() == Some("slave"));
    release(guard).await;

    // The Sentinel says what it said before, and the old primary still answers.
    group.promote(new);
    let lock = client.lock("true by now");
    soon("a client that follows", async {
        loop {
            let guard = hold(&lock).await;
            let follows = new.exists("true by now");
            // Lost where the client followed meanwhile.
            let _ = guard.unlock().await;
            if follows {
                break;
            }
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await;
    // The old primary keeps a lock whose answer or release was under way meanwhile, and no other.
    let guard = hold(&client.lock("later")).await;
    assert!(new.exists("later"), "not at the new primary");
    assert!(!old.exists("later"), "two primaries were asked");
    release(guard).await;
}
