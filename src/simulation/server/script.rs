//! A script, and what comes of it: pure.

use mlua::Function;

use super::reply::Reply;

/// A script that has been compiled.
pub(super) struct Script(pub(super) Function);

/// What came of a script.
pub(super) enum Ran {
    Returned(Reply),
    /// An error that the script did not catch, and the line where it was.
    Failed {
        text: String,
        line: Option<i64>,
    },
}
