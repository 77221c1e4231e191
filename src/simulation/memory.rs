//! The server behind the address `memory://`: one for the process, in real time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Machine, Network, Server, Settings};
use crate::host::{self, Host};

/// A machine for one more client, and the address that its server has there.
pub(crate) fn memory() -> (Host, String) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static NETWORK: LazyLock<(Network, String)> = LazyLock::new(|| {
        let network = Network::with_time_of(host::random(), None);
        let settings = Settings { host: "memory".into(), ..Settings::default() };
        let address = format!("{}:{}", settings.host, settings.port);
        let server = network.add(Server::new(settings), &address);
        // Fencing tokens grow from one process to the next.
        network.set_clock_to_now(server);
        (network, address)
    });
    let (network, address) = &*NETWORK;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    (Machine::new(network, number, host::random()).host(), format!("redis://{address}"))
}
