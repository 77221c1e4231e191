//! Which bug is on. This file is in the copy only: `write_copy` in `main.rs` puts it into `src`,
//! and the bugs of the scripts into its table.

use std::sync::LazyLock;

use redis::Script;

/// Whether that bug is on: the environment variable `REDLATCH_BUG` names it.
pub(crate) fn is_on(bug: &str) -> bool {
    static ON: LazyLock<String> =
        LazyLock::new(|| std::env::var("REDLATCH_BUG").unwrap_or_default());
    *ON == bug
}

/// The script of that text, with the bug that is on. A text that contains several files has the bugs
/// of each.
pub(crate) fn script(text: &str) -> Script {
    match SCRIPTS.iter().find(|(bug, ..)| is_on(bug)) {
        Some((_, file, right, wrong)) => {
            Script::new(&text.replace(file, &file.replacen(right, wrong, 1)))
        }
        None => Script::new(text),
    }
}

/// The bugs in scripts: the text of the file, what is right there, and what stands in its place.
const SCRIPTS: &[(&str, &str, &str, &str)] = &[];
