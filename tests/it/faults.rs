//! The fault matrix: what must hold when things go wrong, one test or more a row.
//!
//! A row has an id, such as `N6` (network), `S3` (server), `C11` (client process) or `I10` (inputs
//! and scale), and the tests of a row have names that begin with it: `n6_`. Some rows are tested
//! where their subject is, outside this folder: `rows.rs` has the table of all rows, and fails
//! when a row has neither a test anywhere in `tests/` nor a reason.
//!
//! Every case proves that its fault took effect, and ends with no key without a TTL (the server's
//! drop sees to that) and no lock that nobody holds.

mod held_back;
mod inputs;
mod late_requests;
mod loss;
mod lost_answers;
mod outages;
mod process;
mod rows;
mod server;
mod truth;
