//! A script, and what comes of it: pure.

use mlua::Function;

use super::reply::Reply;

/// A script that has been compiled.
pub(super) struct Script {
    pub(super) function: Function,
    /// What its first line says, if that says how to run it.
    pub(super) shebang: Option<Shebang>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shebang {
    /// It writes nothing.
    pub(super) only_reads: bool,
    /// It may run when memory is full.
    pub(super) allows_oom: bool,
}

/// What came of a script.
pub(super) enum Ran {
    Returned(Reply),
    /// An error that nobody caught, and the line where it was.
    Failed {
        text: String,
        line: Option<i64>,
    },
}
