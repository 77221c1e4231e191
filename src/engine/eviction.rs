//! A warning about a server that may delete locks that are held.

use std::time::Duration;

use crate::clock;
use crate::error::ErrorKind;
use crate::protocol::Call;
use crate::transport::Router;

/// A server that evicts a held lock grants it to a second owner. Every policy but one may evict it,
/// because locks have a TTL. A user who may not run `INFO` gets no warning. False if Redis could not
/// be asked.
pub(super) async fn warn_of_eviction(mut call: Call<'_>) -> bool {
    match call.maxmemory_policy().await {
        Ok(Some(policy)) if policy != "noeviction" => call.router.events.may_evict(&policy),
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(
                error = format_args!("{error:#}"),
                "could not ask whether Redis may evict locks"
            );
            return error.kind() != ErrorKind::Unavailable;
        }
    }
    true
}

/// With the request for that the thread connects.
pub(super) async fn connect_and_warn(router: &Router, answer_timeout: Duration) {
    while !warn_of_eviction(Call::new(router, clock::now() + answer_timeout)).await {
        clock::sleep(answer_timeout).await;
    }
}
