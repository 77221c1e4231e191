//! Gives up the client's place in a queue that Redis keeps, when its last waiter has gone.

use std::sync::Arc;

use crate::backoff::Backoff;
use crate::clock;
use crate::config::QUEUE_TERM;
use crate::handoff::Handoffs;
use crate::possession::Possession;
use crate::protocol::{Names, Session};
use crate::transport::Router;

/// Tries until Redis has answered, or the place has ended by itself. The last waiter's requests were about
/// that possession.
pub(super) async fn leave_queue(
    names: &Names,
    behind: Option<Arc<Possession>>,
    router: &Router,
    handoffs: &Handoffs,
) {
    let config = &handoffs.config;
    let give_up = clock::now() + QUEUE_TERM;
    // Behind its last request and the release that undoes it: that one would take the place again.
    if let Some(possession) = behind {
        drop(clock::timeout_at(give_up, possession.permit()).await);
    }
    let mut backoff = Backoff::in_background();
    // Another waiter may have come and asked. Then its place is there instead.
    while let Some(last) = handoffs.waiters.leaves_queue(names) {
        let mut call = Session::new(router, clock::now() + config.command_timeout);
        match call.leave_queue(names, config.fair_grace, last).await {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(name = %names.key(), error = format_args!("{error:#}"), "could not leave a queue");
            }
        }
        if clock::now() >= give_up {
            return;
        }
        clock::sleep(backoff.next()).await;
    }
}
