//! What the client exports of its levels, with the feature `metrics`.

use crate::possession::Possessions;
use crate::transport::Router;
use crate::wait::Waiters;

/// Exports the levels until it is dropped.
#[cfg(feature = "metrics")]
pub(super) async fn export_levels(router: &Router, possessions: &Possessions, waiters: &Waiters) {
    use crate::clock;
    use crate::metrics::{Levels, keep_levels};

    let look = || {
        let now = clock::now();
        let overview = possessions.overview(now);
        let waits = waiters.waiting().1.map(|since| now.saturating_duration_since(since));
        let nodes = router.round_trips();
        let up = nodes.iter().filter(|(_, round_trip)| round_trip.is_some()).count();
        let dialing = if waiters.is_closed() { 0 } else { nodes.len() - up };
        Levels {
            held_of: overview.held_of,
            oldest_wait: waits.unwrap_or_default(),
            pending_releases: overview.pending_releases,
            lost_guards: overview.lost_guards,
            connections: [up, dialing],
        }
    };
    keep_levels(&router.events.metrics, look).await;
}

#[cfg(not(feature = "metrics"))]
pub(super) async fn export_levels(_: &Router, _: &Possessions, _: &Waiters) {
    std::future::pending().await
}
