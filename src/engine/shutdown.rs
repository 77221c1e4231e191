//! The end of a client whose guards are alive: waits for their holders, and then releases what is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock;
use crate::error::Loss;
use crate::lease::MAX_LEASE;
use crate::possession::Possession;

use super::Engine;

/// What was left when a client was shut down: [`LockClient::shutdown`].
///
/// [`LockClient::shutdown`]: crate::LockClient::shutdown
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: redlatch::LockClient) {
/// use std::time::Duration;
///
/// let left = client.shutdown(Duration::from_secs(20)).await;
/// for name in &left.released {
///     eprintln!("{name}: released under a holder that was not done");
/// }
/// for name in &left.unreleased {
///     eprintln!("{name}: Redis may keep it until its lease ends");
/// }
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// The locks whose holders were not done in time. The client has released them, and their guards are lost
    /// ([`Loss::Closed`](crate::Loss::Closed)). Sorted, each name once.
    pub released: Vec<String>,
    /// The locks of which Redis has confirmed no release: it may keep each until its lease ends. Their guards are lost.
    /// Sorted, each name once.
    pub unreleased: Vec<String>,
}

impl Shutdown {
    /// Whether each holder was done in time, and Redis has confirmed each release.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.released.is_empty() && self.unreleased.is_empty()
    }
}

impl Engine {
    pub(crate) async fn shutdown(&self, patience: Duration) -> Shutdown {
        if !self.process.is_this_one() {
            return Shutdown::default();
        }
        let shutdown = async {
            self.refuse_calls();
            // As for `close`.
            self.connects.store(true, Ordering::Relaxed);
            let given_back = self.possessions.all_given_back();
            let _ = clock::timeout(patience.min(MAX_LEASE), given_back).await;
            let mut taken = BTreeSet::new();
            let release = async {
                // A request that was under way may bring a hold yet.
                let each = |possession: &Arc<Possession>| self.take_back(possession, &mut taken);
                self.possessions.all_taken_back(each).await;
                self.releaser.drain().await;
            };
            let _ = clock::timeout(self.config.command_timeout, release).await;
            self.take_back_all(&mut taken);
            self.stop();
            let unreleased = self.possessions.unreleased();
            let unreleased: BTreeSet<_> = unreleased.iter().map(|one| self.name_of(one)).collect();
            Shutdown {
                released: taken.difference(&unreleased).cloned().collect(),
                unreleased: unreleased.into_iter().collect(),
            }
        };
        self.process.bind(self.host.run(shutdown)).await
    }

    /// Takes back all holds that have guards. Those of guards that were lost before, too: their release may be late,
    /// and then Redis has them still.
    fn take_back_all(&self, taken: &mut BTreeSet<String>) {
        self.possessions.with_guards().iter().for_each(|one| self.take_back(one, taken));
    }

    fn take_back(&self, possession: &Arc<Possession>, taken: &mut BTreeSet<String>) {
        if self.releaser.take_back(possession) {
            let how = "and released under its guard";
            possession.report_loss(&self.events, Loss::Closed, how, clock::now());
            taken.insert(self.name_of(possession));
        }
    }

    fn name_of(&self, possession: &Possession) -> String {
        self.config.without_prefix(possession.names.key()).to_owned()
    }
}
