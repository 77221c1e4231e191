//! A world for one test: a network with a server, and machines around it, in paused time.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use redlatch::simulation::{Distance, Machine, Network, Random, Server, ServerNumber, Settings};
use redlatch::{LockClient, LockClientBuilder};

/// Where the machines know the server.
pub(crate) const ADDRESS: &str = "redis:6379";

pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) server: ServerNumber,
    machines: AtomicU64,
    seed: u64,
}

/// Plays a scene to its end: the same seed is the same play.
pub(crate) fn play<T>(seed: u64, scene: impl AsyncFnOnce(&Scene) -> T) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut random = Random::new(seed);
        let network = Network::new(random.number());
        let settings =
            Settings { host: "redis".into(), seed: random.number(), ..Settings::default() };
        let server = network.add(Server::new(settings), ADDRESS);
        scene(&Scene { network, server, machines: AtomicU64::new(0), seed: random.number() }).await
    })
}

impl Scene {
    /// A machine that far away.
    pub(crate) fn machine(&self, distance: Distance) -> Machine {
        let number = self.machines.fetch_add(1, Ordering::Relaxed);
        let machine = Machine::new(&self.network, number, self.seed.wrapping_add(number));
        self.network.set_distance_of(&machine, self.server, distance);
        machine
    }

    /// A client on that machine.
    pub(crate) fn connect(
        &self,
        machine: &Machine,
        options: LockClientBuilder,
    ) -> impl Future<Output = LockClient> + use<> {
        let connect = options.url(format!("redis://{ADDRESS}")).connect();
        machine.run(async move { connect.await.expect("connecting") })
    }
}
