//! Sentinels that name one server by two addresses, that flap, and whose report was wrong once.

use redlatch::{LockClient, LockGuard};

use super::by_way_of;
use super::late::conviction;
use crate::support::{
    Fault, Proxy, Replicated, SOON, Server, hold, ms, release, soon, wait_until, within,
};
use crate::topologies::{MINUTE, connected};

/// A Sentinel that names by turns one proxy and another, and a client that follows it.
struct Renamed {
    sentinel: Server,
    client: LockClient,
    epoch: u64,
}

impl Renamed {
    async fn start(first: &Proxy) -> Self {
        let sentinel = Server::start_sentinel(&conviction(first.port(), 0));
        let builder = by_way_of([sentinel.url()]).watchdog_timeout(MINUTE).command_timeout(MINUTE);
        Self { client: connected(builder).await, sentinel, epoch: 0 }
    }

    /// From now on the Sentinel names that one. Returns when the client goes there.
    async fn names(&mut self, proxy: &Proxy) {
        let sent = proxy.sent("EVALSHA");
        self.epoch += 1;
        self.sentinel.kill();
        self.sentinel.configure(&conviction(proxy.port(), self.epoch));
        self.sentinel.start_again();
        let lock = self.client.lock("follows");
        within(2 * SOON, "a client that follows", async {
            while proxy.sent("EVALSHA") == sent {
                // Lost where another server is behind the new name.
                let _ = hold(&lock).await.unlock().await;
            }
        })
        .await;
    }
}

async fn comes_to_nothing(proxy: &Proxy) {
    proxy.let_go();
    wait_until("its fate", SOON, || proxy.fates_are_known()).await;
    assert_eq!((proxy.executed_late(), proxy.executed_slow()), (0, 0), "executed late");
    assert_eq!(proxy.came_to_nothing(), 1, "nothing was held back");
}

async fn is_held_back(proxy: &Proxy) {
    wait_until("a request that is held back", SOON, || proxy.held() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w22_a_late_release_by_the_old_name_of_a_server_does_not_free_the_next_hold() {
    let server = Server::start();
    let [old, new] = [Proxy::new(&server), Proxy::new(&server)];
    let mut renamed = Renamed::start(&old).await;
    let other = connected(LockClient::builder().url(server.url())).await;
    let lock = renamed.client.lock("late");
    let guard = hold(&lock).await;
    old.plan("EVALSHA", 1, Fault::HoldBack);
    let unlock = tokio::spawn(guard.unlock());
    is_held_back(&old).await;
    renamed.names(&new).await;
    within(2 * SOON, "the release", unlock).await.expect("no panic").expect("a release");

    let again: LockGuard = hold(&lock).await;
    comes_to_nothing(&old).await;
    assert_eq!(server.holds("late").into_values().collect::<Vec<_>>(), [1]);
    let taken = other.lock("late").try_lock_now().await.expect("trying");
    assert!(taken.is_none() && !again.is_lost(), "two believe that they hold the lock");
    release(again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w22_a_late_acquire_by_the_old_name_of_a_server_leaves_no_lock_behind() {
    let server = Server::start();
    let [old, new] = [Proxy::new(&server), Proxy::new(&server)];
    let mut renamed = Renamed::start(&old).await;
    old.plan("EVALSHA", 1, Fault::HoldBack);
    let lock = renamed.client.lock("late");
    let call = tokio::spawn(async move { lock.lock().await });
    is_held_back(&old).await;
    renamed.names(&new).await;
    let guard = within(2 * SOON, "the lock", call).await.expect("no panic").expect("the lock");
    release(guard).await;
    comes_to_nothing(&old).await;
    assert!(!server.exists("late"), "a lock without a holder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w23_a_request_that_is_late_at_a_primary_that_comes_back_is_not_executed() {
    let [a, b] = [Server::start(), Server::start()];
    let [at_a, at_b] = [Proxy::new(&a), Proxy::new(&b)];
    let mut renamed = Renamed::start(&at_a).await;
    at_a.plan("EVALSHA", 1, Fault::HoldBack);
    let lock = renamed.client.lock("late");
    let call = tokio::spawn(async move { lock.lock().await });
    is_held_back(&at_a).await;
    renamed.names(&at_b).await;
    let guard = within(2 * SOON, "the lock", call).await.expect("no panic").expect("the lock");
    assert!(b.exists("late"), "not at the other primary");
    release(guard).await;

    renamed.names(&at_a).await;
    comes_to_nothing(&at_a).await;
    assert!(!a.exists("late"), "a lock without a holder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w24_a_report_that_was_refuted_once_is_believed_as_soon_as_it_is_true() {
    let group = Replicated::start(1);
    let (old, new) = (group.primary(), group.replica());
    let before = Server::start_sentinel(&conviction(old.port(), 0));
    let early = Server::start_sentinel(&conviction(new.port(), 1));
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
