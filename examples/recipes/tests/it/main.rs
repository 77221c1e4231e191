//! The recipes do what their page says: each runs against a real Redis, and those that write against a real PostgreSQL.

mod actix_service;
mod apalis_worker;
mod axum_service;
#[path = "../../../support/guardian.rs"]
mod guardian;
mod nightly_job;
mod orders;
mod own_trait;
mod page;
#[allow(dead_code, reason = "shared with a bench, which uses more of it")]
#[path = "../../../support/postgres.rs"]
mod postgres;
mod shutdown;
mod street;
#[allow(dead_code, reason = "shared with the examples, which use more of it")]
#[path = "../../../support/mod.rs"]
mod support;
mod tonic_service;
