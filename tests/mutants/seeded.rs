//! Which bug is on. This file is in the copy only: `write_copy` in `main.rs` puts it into `src`,
//! and the bugs of the scripts into its table.

use std::sync::LazyLock;

/// Whether that bug is on: the environment variable `REDLATCH_BUG` names it.
pub(crate) fn is_on(bug: &str) -> bool {
    static ON: LazyLock<String> =
        LazyLock::new(|| std::env::var("REDLATCH_BUG").unwrap_or_default());
    *ON == bug
}

/// The text of that script, with the bug that is on.
pub(crate) fn script(text: &str) -> String {
    match SCRIPTS.iter().find(|(bug, file, ..)| is_on(bug) && *file == text) {
        Some((_, file, right, wrong)) => file.replacen(right, wrong, 1),
        None => text.to_owned(),
    }
}

/// The bugs in scripts: the text of the file, what is right there, and what stands in its place.
const SCRIPTS: &[(&str, &str, &str, &str)] = &[];
