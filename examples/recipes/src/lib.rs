//! What services want of a lock most often. Each file is one recipe, and the tests run all of it.

pub mod actix_service;
pub mod apalis_worker;
pub mod axum_service;
pub mod nightly_job;
pub mod orders;
pub mod own_trait;
pub mod shop;
pub mod shutdown;
pub mod tonic_service;
