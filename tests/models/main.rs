mod client;
mod properties;
mod protocol;
mod server;
mod state;
mod steps;

use std::time::Instant;

use stateright::{Checker, Model};

use crate::protocol::{Bug, Late, Protocol, Role};
use crate::state::Lease;

const WATCHED: Lease = Lease { watched: true, long: true };
const FIXED: Lease = Lease { watched: false, long: false };

fn protocol(faults: u8) -> Protocol {
    let plain = Role { calls: 1, renewals: 0, lease: WATCHED, inner: None };
    let first = match &*std::env::var("ROLES").unwrap_or_default() {
        "nest" => Role { calls: 2, renewals: 1, lease: WATCHED, inner: Some(FIXED) },
        "nest0" => Role { calls: 2, renewals: 0, lease: WATCHED, inner: Some(FIXED) },
        "twice" => Role { calls: 2, renewals: 0, lease: WATCHED, inner: None },
        _ => plain,
    };
    Protocol {
        roles: [first, plain, plain],
        faults,
        late: Late::Never,
        bug: None,
        every_step: std::env::var("EVERY").is_ok(),
    }
}

#[test]
fn explore() {
    let n: u8 = std::env::var("FAULTS").map_or(0, |s| s.parse().unwrap());
    let t = Instant::now();
    let checker = protocol(n).checker().spawn_bfs().join();
    println!(
        "{} unique, {} generated, depth {}, {:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        t.elapsed()
    );
    for p in checker.model().properties() {
        println!(
            "{:?} {} -> {:?}",
            p.expectation,
            p.name,
            checker.discovery(p.name).map(|p| p.into_actions())
        );
    }
}
