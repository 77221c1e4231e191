//! Whether a client can work, and whether those that hold its locks know of their losses.

use std::time::Duration;

use crate::clock;
use crate::engine::Engine;

/// Whether a client is well: [`LockClient::health`].
///
/// [`is_ready`](Self::is_ready) is for what routes requests to this process, [`is_live`](Self::is_live) for what
/// restarts it.
///
/// [`LockClient::health`]: crate::LockClient::health
///
/// # Examples
///
/// ```no_run
/// # fn example(client: redlatch::LockClient) {
/// use std::time::Duration;
///
/// let health = client.health();
/// let status = |is_well| if is_well { 200 } else { 503 };
/// println!("/readyz: {}", status(health.is_ready()));
/// println!("/livez: {}", status(health.is_live(Duration::from_secs(20))));
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The servers that the client uses now. Behind Sentinels that is the primary.
    pub nodes: Vec<NodeHealth>,
    /// How long ago Redis has last confirmed a renewal; `None` if it never has.
    pub last_renewal: Option<Duration>,
    /// How long the guard that ends first is still valid if nothing is renewed; `None` if no guard is valid. It is that
    /// of an explicit lease, too.
    pub tightest_validity: Option<Duration>,
    /// How many locks the client has.
    pub held: usize,
    /// How many calls wait for a lock that another owner has.
    pub waiting: usize,
    /// How many releases Redis has yet to confirm.
    pub pending_releases: usize,
    /// How many guards are lost and have not been dropped.
    pub lost_guards: usize,
    /// For how long the first of them is lost; `None` if there is none.
    pub lost_for: Option<Duration>,
    /// Whether [`close`](crate::LockClient::close) was called, or [`shutdown`](crate::LockClient::shutdown): from the
    /// beginning of either, new calls are refused.
    pub is_closed: bool,
}

/// What a client knows of one server. It is a part of [`Health`].
///
/// # Examples
///
/// ```no_run
/// # fn example(client: redlatch::LockClient) {
/// for node in client.health().nodes.iter().filter(|node| !node.is_up) {
///     println!("{} is down", node.address);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeHealth {
    /// Host and port, or the path of its socket.
    pub address: String,
    /// Whether the client has a connection to it that is in use, and no dial to it has failed since it answered last. One that
    /// has stopped to answer is so until a request has waited for the command timeout, or until a dial has failed, too, if
    /// another runtime has a connection to it.
    pub is_up: bool,
    /// How long a round trip took when the client measured that last: when it connected, or after an answer that was
    /// late. `None` without a connection.
    pub round_trip: Option<Duration>,
}

impl Health {
    pub(crate) fn of(engine: &Engine) -> Self {
        let Some(_on) = engine.local(true) else { return Self::of_another_process() };
        let now = clock::now();
        let overview = engine.possessions.overview(now);
        let since = |at| now.saturating_duration_since(at);
        let node = |(address, round_trip): (String, Option<Duration>)| NodeHealth {
            address,
            is_up: round_trip.is_some(),
            round_trip,
        };
        Self {
            nodes: engine.router.round_trips().into_iter().map(node).collect(),
            last_renewal: engine.events.counters.last_renewal().map(since),
            tightest_validity: overview.valid_until.map(|until| until - now),
            held: overview.held,
            waiting: engine.waiters.waiting().0,
            pending_releases: overview.pending_releases,
            lost_guards: overview.lost_guards,
            lost_for: overview.lost_since.map(since),
            is_closed: engine.waiters.is_closed(),
        }
    }

    fn of_another_process() -> Self {
        Self {
            nodes: Vec::new(),
            last_renewal: None,
            tightest_validity: None,
            held: 0,
            waiting: 0,
            pending_releases: 0,
            lost_guards: 0,
            lost_for: None,
            is_closed: true,
        }
    }

    /// Whether calls can work now: some server is up, and the client is not closed. Redis being down is not ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.is_closed && self.nodes.iter().any(|node| node.is_up)
    }

    /// Whether no guard has been lost for longer than `tolerance` without being dropped. If one has, some code goes on
    /// without its lock, or hangs: then a supervisor may end this process. That Redis is down alone never makes it so; a
    /// guard that is lost because of that does.
    #[must_use]
    pub fn is_live(&self, tolerance: Duration) -> bool {
        self.lost_for.is_none_or(|lost_for| lost_for <= tolerance)
    }
}
