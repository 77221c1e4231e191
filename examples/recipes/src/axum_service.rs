//! An axum handler that answers 409 if the lock is taken, and 503 if Redis is away.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use crate::shop::{Refusal, Shop};

pub fn router(shop: Shop) -> Router {
    Router::new().route("/orders/{order}/pay", post(pay)).with_state(shop)
}

async fn pay(State(shop): State<Shop>, Path(order): Path<i64>) -> Result<String, Refusal> {
    shop.pay(order, Duration::ZERO).await // zero: one attempt, and no waiting
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = self.to_string();
        match self {
            Self::Busy | Self::Lost => (StatusCode::CONFLICT, text).into_response(),
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], text).into_response()
            }
            Self::Failed(error) => {
                eprintln!("{error:#}");
                (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
            }
        }
    }
}
