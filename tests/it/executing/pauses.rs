//! A holder that is paused past its lease, between its last check and its write: here in the network,
//! where no check of its own comes any more. Meanwhile another one has the lock, writes, and may have
//! given the lock back. The write of the first is refused.
//!
//! In every run a few dozen; `REDLATCH_PAUSES=10000` makes that many.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::*;

/// So many scenes at a time: most of the time they wait for a lease to end.
const SCENES: usize = 16;

const LEASE: Duration = ms(25);

struct Scene {
    proxy: Proxy,
    paused: LockClient,
    other: LockClient,
    name: String,
    state: String,
}

impl Scene {
    async fn new(server: &Server, number: usize) -> Self {
        let proxy = Proxy::new(server);
        let paused = impatient(proxy.url(server), SOON).await;
        let (name, state) = (format!("{{{number}}}:lock"), format!("{{{number}}}:state"));
        Self { proxy, paused, other: connect(server).await, name, state }
    }

    /// False if the machine was too slow: the lease ended before the write was sent.
    async fn pause(&self, server: &Server, number: u64) -> bool {
        let guard = self.paused.lock(&self.name).lock_with_lease(LEASE).await.expect("the lock");
        let write = |by: &str| set(&self.state, &format!("{number} by {by}"));
        let (late, held) = (write("the paused one"), self.proxy.held());
        self.proxy.hold("EVALSHA");
        let mut late = pin!(guard.execute::<()>(&late));
        let is_paused = || self.proxy.held() > held || guard.is_lost();
        let early = tokio::select! {
            biased;
            answer = &mut late => Some(answer),
            () = wait_until("the pause", SOON, is_paused) => None,
        };
        let mut next = Some(hold(&self.other.lock(&self.name)).await);
        executed::<()>(next.as_ref().expect("the lock"), &write("the next one")).await;
        if number.is_multiple_of(2) {
            release(next.take().expect("the lock")).await;
        }
        self.proxy.let_go();
        // It learned of the loss by itself, and sent nothing.
        let was_paused = early.is_none();
        lost(match early {
            Some(answer) => answer,
            None => late.await,
        });
        let written = server.ask::<String>(&["GET", &self.state]);
        assert_eq!(written, format!("{number} by the next one"));
        was_paused
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_that_comes_after_a_pause_past_the_lease_is_refused() {
    let _busy = machine::busy();
    let full = std::env::var("REDLATCH_PAUSES").ok().and_then(|many| many.parse::<u64>().ok());
    let many = full.unwrap_or(60);
    let server = Arc::new(Server::start());
    let (next, paused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut scenes = JoinSet::new();
    for number in 0..SCENES {
        let (server, next, paused) = (server.clone(), next.clone(), paused.clone());
        scenes.spawn(async move {
            let scene = Scene::new(&server, number).await;
            while paused.load(Ordering::Relaxed) < many {
                let number = next.fetch_add(1, Ordering::Relaxed);
                assert!(number < 20 * many, "a machine that is too slow: no write is sent in time");
                paused.fetch_add(scene.pause(&server, number).await.into(), Ordering::Relaxed);
            }
        });
    }
    while let Some(scene) = scenes.join_next().await {
        scene.expect("a scene that did not fail");
    }
    println!("{} pauses past the lease, 0 late writes accepted", paused.load(Ordering::Relaxed));
}
