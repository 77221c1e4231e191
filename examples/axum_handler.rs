//! A web service that charges each order once, however often it is asked to at the same time.
//!
//! A request that finds the order's lock taken is answered with 409 Conflict, one that finds no Redis
//! with 503 Service Unavailable. The state has the client and no lock: calls on one handle nest, so
//! requests that shared one would all be let in.
//!
//! The example calls the service itself, without the network, and stops the server on its way. So it
//! uses a private one in any case.
//!
//! `cargo run --example axum_handler`

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redlatch::{Error, Lease, LockClient};
use support::{Result, Server, unique};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

/// How long a request waits for another one of the same order.
const WAIT: Duration = Duration::from_millis(50);

#[derive(Clone)]
struct Shop {
    locks: LockClient,
    /// The database, which everybody may read and write at any time.
    charged: Arc<Mutex<HashSet<String>>>,
}

/// Why an order was not charged.
enum Refusal {
    Busy,
    ChargedBefore,
    Lock(Error),
}

async fn charge(State(shop): State<Shop>, Path(order): Path<String>) -> Result<String, Refusal> {
    let lock = shop.locks.lock(format!("order:{order}"));
    let charged = lock.try_with(WAIT, Lease::Watchdog, async |_guard| {
        if shop.charged.lock().await.contains(&order) {
            return Err(Refusal::ChargedBefore);
        }
        sleep(Duration::from_millis(500)).await; // the payment service thinks
        shop.charged.lock().await.insert(order.clone());
        Ok(format!("charged {order}"))
    });
    charged.await?.ok_or(Refusal::Busy)?
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Busy => (StatusCode::CONFLICT, "this order is being charged").into_response(),
            Self::ChargedBefore => (StatusCode::CONFLICT, "it has been charged").into_response(),
            Self::Lock(error) if error.is_retryable() => {
                let retry = [("Retry-After", "1")];
                (StatusCode::SERVICE_UNAVAILABLE, retry, "try again").into_response()
            }
            // The text is for the log: it names servers.
            Self::Lock(error) => {
                eprintln!("{error:#}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = Server::private()?;
    let shop = Shop { locks: LockClient::connect(server.url()).await?, charged: Arc::default() };
    let service = Router::new().route("/orders/{order}/charge", post(charge)).with_state(shop);

    let order = unique("order");
    // Three requests at once, as from an impatient user, and a late one.
    let (one, two, three) =
        tokio::try_join!(ask(&service, &order), ask(&service, &order), ask(&service, &order))?;
    let mut answers = [one, two, three];
    answers.sort_by_key(|(status, _)| *status);
    for (status, answer) in answers {
        println!("{status}: {}", answer.replace(&order, "the order"));
    }
    let (status, answer) = ask(&service, &order).await?;
    println!("{status}: {answer}");

    drop(server);
    let started = Instant::now();
    let (status, answer) = ask(&service, &unique("order")).await?;
    assert!(started.elapsed() < Duration::from_secs(10), "a request must not hang without Redis");
    println!("{status}: {answer}");
    Ok(())
}

/// What the service answers to a user who wants to pay.
async fn ask(service: &Router, order: &str) -> Result<(StatusCode, String)> {
    let request = Request::post(format!("/orders/{order}/charge")).body(Body::empty())?;
    let response = service.clone().oneshot(request).await?;
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1_000).await?;
    Ok((status, String::from_utf8(body.into())?))
}
