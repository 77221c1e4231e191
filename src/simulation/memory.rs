//! The server behind the address `memory://`: one for the process, in real time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Machine, Network, Server, Settings};
use crate::host::Host;

/// A machine for one more client, and the address that its server has there.
pub(crate) fn memory() -> (Host, String) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static NETWORK: LazyLock<(Network, String)> = LazyLock::new(|| {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let network = Network::with_time_of(since_epoch.as_nanos() as u64, None);
        let settings = Settings { host: "memory".into(), ..Settings::default() };
        let address = format!("{}:{}", settings.host, settings.port);
        let server = network.add(Server::new(settings), &address);
        // Fencing tokens grow from one process to the next.
        network.set_clock_to(server, since_epoch);
        (network, address)
    });
    let (network, address) = &*NETWORK;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let seed = u64::from(std::process::id()) << 32 | number;
    (Machine::new(network, number, seed).host(), format!("redis://{address}"))
}
