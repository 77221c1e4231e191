//! The scripts of `lua/`, as they are sent: without their comments, which are more than half of them. A
//! server that knows no scripts is sent all of them by each client, over a network that may be narrow.

use std::sync::LazyLock;

use redis::Script;

use crate::transport::Channels;

/// The scripts, with the digests by which they are called.
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) prolong: Script,
    pub(super) force_unlock: Script,
    pub(super) inspect: Script,
    pub(super) rewrite: Script,
    pub(super) execute: Script,
    /// Many acquires and releases in one.
    pub(super) batch: Script,
    pub(super) fair_acquire: Script,
    pub(super) fair_release: Script,
    pub(super) fair_prolong: Script,
    pub(super) fair_leave: Script,
    pub(super) fair_refresh: Script,
    pub(super) fair_force_unlock: Script,
}

macro_rules! lua {
    ($name:literal) => {
        lines(include_str!(concat!("../../lua/", $name, ".lua")))
    };
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let (acquire, release, prolong) = (lua!("acquire"), lua!("release"), lua!("prolong"));
    let both = function("acquire", &acquire) + &function("release", &release);
    let batch = both + &lua!("batch");
    let turn = function("turn", &lua!("fair_turn"));
    let place = function("place", &lua!("fair_place"));
    let elsewhere = function("elsewhere", &lua!("fair_elsewhere"));
    let fair = |script: &str| Script::new(&format!("{turn}{script}"));
    Scripts {
        acquire: Script::new(&acquire),
        release: Script::new(&release),
        renew: Script::new(&lua!("renew")),
        prolong: Script::new(&prolong),
        force_unlock: Script::new(&lua!("force_unlock")),
        inspect: Script::new(&lua!("inspect")),
        rewrite: Script::new(&lua!("rewrite")),
        execute: Script::new(&lua!("execute")),
        batch: Script::new(&batch),
        fair_acquire: fair(&format!("{place}{elsewhere}{}", lua!("fair_acquire"))),
        fair_release: fair(&format!("{place}{}", lua!("fair_release"))),
        fair_prolong: Script::new(&format!(
            "{place}{elsewhere}{}{}",
            function("prolong", &prolong),
            lua!("fair_prolong")
        )),
        fair_leave: fair(&lua!("fair_leave")),
        fair_refresh: Script::new(&lua!("fair_refresh")),
        fair_force_unlock: fair(&lua!("fair_force_unlock")),
    }
});

/// The first line, which names the script, and those of its code. Each keeps its number, by which an error of
/// the server names it.
fn lines(script: &str) -> String {
    let is_comment = |line: &str| line.trim_start().starts_with("--");
    let mut lines = script.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let code = lines.map(|line| if is_comment(line) { "" } else { line });
    code.fold(first, |script, line| script + "\n" + line) + "\n"
}

/// A script as a function that another script calls.
fn function(name: &str, script: &str) -> String {
    format!("local function {name}(KEYS, ARGV)\n{script}end\n")
}

/// All of them, for servers to have before they are called.
pub(crate) fn scripts() -> Vec<&'static Script> {
    SCRIPTS.named().map(|(_, script)| script).into()
}

/// The command that publishes a release.
pub(super) fn publish(channels: Channels) -> &'static str {
    match channels {
        Channels::Plain | Channels::Everywhere => "PUBLISH",
        Channels::Sharded => "SPUBLISH",
    }
}

/// How to count the clients that would receive the message of a release.
pub(super) fn count_listeners(channels: Channels) -> &'static str {
    match channels {
        Channels::Plain => "NUMSUB",
        Channels::Everywhere => "",
        Channels::Sharded => "SHARDNUMSUB",
    }
}

impl Scripts {
    pub(super) fn named(&self) -> [(&'static str, &Script); 15] {
        [
            ("acquire", &self.acquire),
            ("release", &self.release),
            ("renew", &self.renew),
            ("prolong", &self.prolong),
            ("force_unlock", &self.force_unlock),
            ("inspect", &self.inspect),
            ("rewrite", &self.rewrite),
            ("execute", &self.execute),
            ("batch", &self.batch),
            ("fair_acquire", &self.fair_acquire),
            ("fair_release", &self.fair_release),
            ("fair_prolong", &self.fair_prolong),
            ("fair_leave", &self.fair_leave),
            ("fair_refresh", &self.fair_refresh),
            ("fair_force_unlock", &self.fair_force_unlock),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_sent_without_its_comments_and_its_lines_keep_their_numbers() {
        let script =
            "-- it: does it.\n--\n-- KEYS[1]  it\n\nlocal a = 1 -- one\n  -- Two.\nreturn a\n";
        assert_eq!(lines(script), "-- it: does it.\n\n\n\nlocal a = 1 -- one\n\nreturn a\n");
    }
}
