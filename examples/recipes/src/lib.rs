//! The code of the page of recipes (`redlatch::guide::recipes`), as it is compiled and run.
//!
//! Each file is one recipe. A block of code on the page is a part of one of them, word for word; the tests run all of
//! it, and compare the page with the files.

pub mod actix_service;
pub mod apalis_worker;
pub mod axum_service;
pub mod nightly_job;
pub mod orders;
pub mod own_trait;
pub mod shop;
pub mod shutdown;
pub mod tonic_service;
