//! Releases again a lock whose release a new primary has missed.
//!
//! Redis replicates asynchronously. A release that the old primary confirmed can be missing on the
//! new one, which then counts a hold without a guard until its lease ends. No guard relies on that
//! hold, so this client may release it at any time.
//!
//! 1. **A refusal names the holder.** If that is an idle possession of this client
//!    ([`Possessions::claim_idle`]), the refused caller releases it and asks again (see
//!    [`crate::acquire`]).
//! 2. **Other clients do not have to wait for such a caller.** When another server becomes
//!    responsible for a name that this client has released lately, the client's thread asks that
//!    server who holds it; of a read-write lock, which of its own owners do, because a refusal names one of many readers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::clock;
use crate::error::ErrorKind;
use crate::handoff::Handoffs;
use crate::host::{HashMap, here, join_ended, join_rest};
use crate::protocol::{Call, Names};
use crate::releaser::release_again;
use crate::transport::{Router, ServerEpoch};

/// The most names of one server that the client's thread looks at together.
const MAX_NAMES_UNDER_WAY: usize = 64;

/// How often the client's thread asks about a name when Redis does not answer: for ten seconds.
const TRIES: u32 = 14;

/// The pause between two looks at all the names.
const BETWEEN_CHANGES: Duration = Duration::from_millis(100);

/// Looks at the names that this client has released lately whenever their server changes, until it
/// is dropped.
pub(crate) async fn reclaim_after_failovers(router: &Arc<Router>, handoffs: &Arc<Handoffs>) {
    let Some(mut changes) = router.server_changes() else { return std::future::pending().await };
    let mut reclaims = JoinSet::new();
    let mut by_server: HashMap<ServerEpoch, Arc<Semaphore>> = HashMap::default();
    loop {
        tokio::select! {
            biased;
            // One that has panicked closes the client soon, and not at the next change.
            () = join_rest(&mut reclaims), if !reclaims.is_empty() => continue,
            () = changes.changed() => {}
            () = handoffs.released_names.moved_meanwhile.notified() => {}
        }
        let moved = handoffs.released_names.moved(|key| router.server_of(key), clock::now());
        // Of the others none is under way.
        by_server.retain(|_, places| Arc::strong_count(places) > 1);
        for (server, names) in moved {
            // No server waits for another one, which may be silent.
            let places = || Arc::new(Semaphore::new(MAX_NAMES_UNDER_WAY));
            let places = by_server.entry(server).or_insert_with(places).clone();
            let at_server = reclaim_at_server(names, places, router.clone(), handoffs.clone());
            reclaims.spawn(here(at_server));
        }
        // While slots move, there is one change after the other.
        clock::sleep(BETWEEN_CHANGES).await;
    }
}

/// Looks at names for which one server is responsible.
async fn reclaim_at_server(
    names: Vec<Arc<Names>>,
    places: Arc<Semaphore>,
    router: Arc<Router>,
    handoffs: Arc<Handoffs>,
) {
    let mut reclaims = JoinSet::new();
    for names in names {
        let place = places.clone().acquire_owned().await;
        let reclaim = reclaim_if_missed(names, router.clone(), handoffs.clone());
        reclaims.spawn(here(async move {
            reclaim.await;
            drop(place);
        }));
        join_ended(&mut reclaims);
    }
    join_rest(&mut reclaims).await;
}

/// Releases the lock for each idle possession of this client that holds it.
async fn reclaim_if_missed(names: Arc<Names>, router: Arc<Router>, handoffs: Arc<Handoffs>) {
    let mut backoff = Backoff::in_background();
    let mut seen: Option<Box<str>> = None;
    for _ in 0..TRIES {
        let mut call = Call::new(&router, clock::now() + handoffs.config.command_timeout);
        let mut holders = match call.holders(&names).await {
            Ok(holders) => holders,
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                clock::sleep(backoff.next()).await;
                continue;
            }
            Err(_) => return,
        };
        holders.retain(|holder| !handoffs.possessions.has(holder));
        if seen.is_none() {
            seen = holders.iter().find(|holder| is_grant(holder, &names)).cloned();
            if seen.is_some() {
                // That server may have made it just now, by a clock that is behind: then its message has yet to come.
                clock::sleep(handoffs.config.fair_grace).await;
                continue;
            }
        }
        holders.retain(|holder| seen.as_ref().is_none_or(|seen| seen == holder));
        for holder in holders {
            let missed = Some(handoffs.released_names.granted_until(&names));
            let claimed = handoffs.possessions.claim_idle(&holder, &names, missed);
            if let Some((idle, permit)) = claimed {
                router.events.release_missed((idle.names.key(), &idle.id()), clock::now());
                release_again(idle, permit, &router, &handoffs).await;
            }
        }
        return;
    }
}

/// Whether Redis has granted the lock to this client by itself.
fn is_grant(holder: &str, names: &Names) -> bool {
    holder.strip_prefix(names.client()).is_some_and(|number| number.starts_with(":-"))
}
