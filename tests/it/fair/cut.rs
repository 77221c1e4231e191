//! A client that loses the connection on which it listens says so on another one, and keeps its place.

use redlatch::{LockClient, LockGuard};
use tokio::task::JoinHandle;

use super::{SOON, Server, client_of, fair_hold, nothing_is_left, queue, queue_keys, takes_grants};
use super::{apart, soon, wait_until, waiter};
use crate::support::{Fault, Proxy, ms, release};

const NAME: &str = "cut";

/// A lock that is held, and a client behind a proxy that waits for it.
struct Waiting {
    server: Server,
    proxy: Proxy,
    near: [LockClient; 2],
    far: LockClient,
    guard: LockGuard,
    first: JoinHandle<LockGuard>,
    client: String,
}

impl Waiting {
    async fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::new(&server);
        // No client is passed over because it takes a while to connect again.
        let client = async |url| {
            let builder = LockClient::builder().url(url).fair_grace(ms(10_000));
            builder.connect().await.expect("a client")
        };
        let near = [client(server.url()).await, client(server.url()).await];
        let far = client(proxy.url(&server)).await;
        let guard = fair_hold(&near[0].fair_lock(NAME)).await;
        let client = client_of(&far.fair_lock(NAME));
        let first = waiter(&server, far.fair_lock(NAME), |guard| guard).await;
        wait_until("a grant that could come", SOON, || takes_grants(&server, NAME, &client)).await;
        apart().await;
        Self { server, proxy, near, far, guard, first, client }
    }

    /// Whether the client has a place, and has said that it hears nothing, but comes.
    fn comes(&self) -> bool {
        let asks = format!("asks:{}", self.client);
        let how: Option<String> = self.server.ask(&["HGET", &queue_keys(NAME)[1], &asks]);
        queue(&self.server, NAME).contains(&self.client)
            && how.is_some_and(|how| how.starts_with("2:"))
    }

    /// Closes the connection on which the client listens.
    fn cut(&self) {
        let list: String = self.server.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let [listens] = list.lines().collect::<Vec<_>>()[..] else { panic!("{list}") };
        let id = listens.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).unwrap();
        assert_eq!(self.server.ask::<u64>(&["CLIENT", "KILL", "ID", id]), 1);
    }

    /// Others come and the lock is free, before the client can listen again.
    async fn has_it_next(self) {
        let Self { server, proxy, near, guard, first, .. } = self;
        let second = waiter(&server, near[1].fair_lock(NAME), |guard| guard).await;
        release(guard).await;
        apart().await;
        assert!(!first.is_finished() && !second.is_finished());
        proxy.refuse(false);
        let guard = soon("the first", first).await.unwrap();
        assert!(!second.is_finished());
        release(guard).await;
        release(soon("the second", second).await.unwrap()).await;
        nothing_is_left(&server).await;
    }
}

#[tokio::test]
async fn x2_a_waiter_whose_client_cannot_listen_is_back_in_its_place_in_a_round_trip() {
    let waiting = Waiting::new().await;
    // So it has to be on a connection that is there.
    waiting.proxy.refuse(true);
    let before = waiting.proxy.sent("EVALSHA");
    waiting.cut();
    wait_until("its place", SOON, || waiting.comes()).await;
    assert_eq!(waiting.proxy.sent("EVALSHA") - before, 1);
    waiting.has_it_next().await;
}

#[tokio::test]
async fn x2_a_waiter_whose_client_lost_a_reply_is_back_in_its_place_in_a_round_trip() {
    let waiting = Waiting::new().await;
    let other = soon("another lock", waiting.far.lock("other").lock()).await.unwrap();
    waiting.proxy.refuse(true);
    waiting.proxy.plan("EVALSHA", 1, Fault::DropReplyAndReset);
    // The background releases it, on the connection on which the client listens.
    drop(other);
    wait_until("its place", SOON, || waiting.comes()).await;
    assert_eq!(waiting.proxy.faults(), 1);
    waiting.has_it_next().await;
}

#[tokio::test]
async fn x2_a_waiter_that_was_dropped_while_its_client_could_not_listen_stands_where_it_stood() {
    let waiting = Waiting::new().await;
    waiting.proxy.hold("EVALSHA");
    waiting.proxy.refuse(true);
    waiting.cut();
    wait_until("its request", SOON, || waiting.proxy.held() == 1).await;
    // The lock is free before the request is there.
    let Waiting { server, proxy, guard, client, first, near, .. } = waiting;
    let second = waiter(&server, near[1].fair_lock(NAME), |guard| guard).await;
    release(guard).await;
    let guard = soon("the second", second).await.unwrap();
    let third = waiter(&server, near[0].fair_lock(NAME), |guard| guard).await;
    assert_eq!(queue(&server, NAME), [client_of(&near[0].fair_lock(NAME))]);
    proxy.let_go();
    wait_until("its old place", SOON, || queue(&server, NAME).first() == Some(&client)).await;
    release(guard).await;
    proxy.refuse(false);
    let guard = soon("the first", first).await.unwrap();
    assert!(!third.is_finished());
    release(guard).await;
    release(soon("the third", third).await.unwrap()).await;
    nothing_is_left(&server).await;
}
