//! Which mutant is on. Only the copy has this module: `write_copy` in `main.rs` puts it into `src`,
//! and the mutants of the scripts into its table.

use std::sync::LazyLock;

/// Whether that mutant is on: the environment variable `REDLATCH_MUTANT` names it.
pub(crate) fn is_on(name: &str) -> bool {
    static ON: LazyLock<String> =
        LazyLock::new(|| std::env::var("REDLATCH_MUTANT").unwrap_or_default());
    *ON == name
}

/// The text of that script, with the mutant that is on.
pub(crate) fn script(text: &str) -> String {
    match SCRIPTS.iter().find(|(name, file, ..)| is_on(name) && *file == text) {
        Some((_, file, right, wrong)) => file.replacen(right, wrong, 1),
        None => text.to_owned(),
    }
}

/// The mutants of scripts: the text of the file, what is right there, and what stands in its place.
const SCRIPTS: &[(&str, &str, &str, &str)] = &[];
