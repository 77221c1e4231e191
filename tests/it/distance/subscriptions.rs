//! W27: a client that is parked notices that the connection is dead on which it listens.
//!
//! It asks for a sign of life every one and a half command timeouts, and gives the answer five of them.
//! (A cluster whose node was stopped and replaced is in `topologies`.)

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlatch::LockClient;
use tokio::task::JoinHandle;

use crate::support::{Distance, Network, SOON, Server, machine, ms, release, soon, wait_until};

const MINUTE: Duration = Duration::from_secs(60);

/// Somebody who waits for a lock of somebody else, and nobody does anything else.
struct Parked {
    server: Server,
    network: Network,
    waiter: JoinHandle<redlatch::LockGuard>,
    _client: LockClient,
}

impl Parked {
    async fn new(round_trip: Duration, timeout: Duration) -> Self {
        let server = Server::start();
        let network = Network::new(&server, Distance::round_trip(round_trip));
        let builder = LockClient::builder().url(network.url(&server)).command_timeout(timeout);
        let client = soon("connecting", builder.connect()).await.expect("connecting");
        server.hold_by_hand("parked", "somebody:1", MINUTE);
        let lock = client.lock("parked");
        let waiter = tokio::spawn(async move { lock.lock().await.expect("the lock") });
        wait_until("a subscription", SOON, || server.subscribers("parked") == 1).await;
        tokio::time::sleep(2 * round_trip + ms(50)).await;
        Self { server, network, waiter, _client: client }
    }

    async fn gets_it(self, limit: Duration) {
        let freed = Instant::now();
        self.server.free_by_hand("parked");
        let guard = soon("the lock", self.waiter).await.unwrap();
        assert!(freed.elapsed() < limit, "{:?} after the release", freed.elapsed());
        release(guard).await;
        assert!(!self.server.exists("parked"));
    }
}

/// Round trips, and a command timeout that is right for each.
const DISTANCES: [(Duration, Duration); 3] =
    [(Duration::ZERO, ms(800)), (ms(2), ms(800)), (ms(100), ms(1_000))];

async fn keeps(round_trip: Duration, timeout: Duration) {
    let parked = Parked::new(round_trip, timeout).await;
    let (before, asked) = (parked.network.connections(), parked.server.calls("evalsha"));
    let signs = parked.server.calls("client|info");
    tokio::time::sleep(6 * timeout).await;
    let signs = parked.server.calls("client|info") - signs;
    // Less the way; on a busy machine fewer.
    assert!((2..=4).contains(&signs), "{signs} signs of life in six timeouts");
    assert_eq!(parked.network.connections(), before, "a connection was given up");
    assert_eq!(parked.server.calls("evalsha"), asked, "it asked for the lock");
    parked.gets_it(4 * round_trip + ms(500)).await;
}

#[tokio::test]
async fn w27_a_parked_client_keeps_a_connection_that_answers_however_far_it_is() {
    let _quiet = machine::quiet();
    join_all(DISTANCES.map(|(round_trip, timeout)| keeps(round_trip, timeout))).await;
}

async fn gives_up(round_trip: Duration, timeout: Duration) {
    let parked = Parked::new(round_trip, timeout).await;
    let before = parked.network.connections();
    let stalled = Instant::now();
    parked.network.stall(9 * timeout);
    // The sign of life that is due next, and the time that it has.
    let noticed = || parked.network.connections() > before;
    wait_until("a new connection", 9 * timeout, noticed).await;
    let noticed = stalled.elapsed();
    assert!(noticed >= 4 * timeout, "given up after {noticed:?}");
    assert!(noticed < 7 * timeout + ms(250), "noticed after {noticed:?}");
    tokio::time::sleep_until((stalled + 9 * timeout).into()).await;
    wait_until("a subscription", SOON, || parked.server.subscribers("parked") >= 1).await;
    tokio::time::sleep(4 * round_trip + ms(100)).await;
    parked.gets_it(2 * timeout + 4 * round_trip).await;
}

#[tokio::test]
async fn w27_a_parked_client_gives_a_connection_up_that_does_not_answer() {
    let _quiet = machine::quiet();
    join_all(DISTANCES.map(|(round_trip, timeout)| gives_up(round_trip, timeout))).await;
}
