//! A service that receives `SIGTERM` finishes what it can, and leaves no lock behind.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlatch::{ErrorKind, Lease, LockClient, Shutdown};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

pub async fn serve(
    listener: TcpListener,
    locks: LockClient,
    mut terminate: Signal,
    patience: Duration,
) -> Shutdown {
    let (drain, drained) = oneshot::channel::<()>();
    let server = axum::serve(listener, router(locks.clone()))
        .with_graceful_shutdown(async { _ = drained.await })
        .into_future();
    let server = tokio::spawn(server);

    terminate.recv().await;
    let end = Instant::now() + patience;
    drop(drain); // accepts no connection more, and answers the requests that are under way
    if timeout_at(end, server).await.is_err() {
        eprintln!("some requests take longer than that");
    }
    // Waits for other holders for the rest of the time. Then no lock is left.
    locks.shutdown(end.saturating_duration_since(Instant::now())).await
}

/// A service whose requests take as long as they say, under a lock.
fn router(locks: LockClient) -> Router {
    Router::new().route("/jobs/{name}/{milliseconds}", post(job)).with_state(locks)
}

async fn job(
    State(locks): State<LockClient>,
    Path((name, milliseconds)): Path<(String, u64)>,
) -> (StatusCode, String) {
    let work = sleep(Duration::from_millis(milliseconds));
    match locks.lock(&name).try_with(Duration::ZERO, Lease::Watchdog, async |_| work.await).await {
        Ok(Some(())) => (StatusCode::OK, format!("{name} is done")),
        Ok(None) => (StatusCode::CONFLICT, format!("{name} is under way")),
        // The text of an error is for the log: it names servers.
        Err(error) if error.kind() == ErrorKind::Lost => {
            (StatusCode::CONFLICT, format!("{name} may be under way elsewhere"))
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "try again".to_owned()),
    }
}
