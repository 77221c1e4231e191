//! What a call says is true: what is not a lock, what was not executed, which options work, who
//! hears that a key is gone, and by which clock a wait is measured.

mod foreign;
mod found_gone;
mod not_executed;
mod options;
