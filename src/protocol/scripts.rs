//! The scripts of `lua/`, as they are sent.

use std::sync::LazyLock;

use redis::Script;

use crate::transport::Channels;

/// The scripts, with the digests by which they are called.
pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) renew: Script,
    pub(super) hand_off: Script,
    pub(super) force_unlock: Script,
    pub(super) inspect: Script,
    pub(super) rewrite: Script,
    pub(super) execute: Script,
    /// Many acquires and releases in one.
    pub(super) batch: Script,
    pub(super) fair_acquire: Script,
    pub(super) fair_release: Script,
    pub(super) fair_hand_off: Script,
    pub(super) fair_leave: Script,
    pub(super) fair_refresh: Script,
    pub(super) fair_force_unlock: Script,
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let acquire = include_str!("../../lua/acquire.lua");
    let release = include_str!("../../lua/release.lua");
    let hand_off = include_str!("../../lua/hand_off.lua");
    let batch = [
        function("acquire", acquire),
        function("release", release),
        include_str!("../../lua/batch.lua").to_owned(),
    ]
    .concat();
    let turn = function("turn", include_str!("../../lua/fair_turn.lua"));
    let place = function("place", include_str!("../../lua/fair_place.lua"));
    let elsewhere = function("elsewhere", include_str!("../../lua/fair_elsewhere.lua"));
    let fair_acquire = include_str!("../../lua/fair_acquire.lua");
    let fair_release = include_str!("../../lua/fair_release.lua");
    let fair_hand_off = include_str!("../../lua/fair_hand_off.lua");
    let fair = |script: &str| Script::new(&format!("{turn}{script}"));
    Scripts {
        acquire: Script::new(acquire),
        release: Script::new(release),
        renew: Script::new(include_str!("../../lua/renew.lua")),
        hand_off: Script::new(hand_off),
        force_unlock: Script::new(include_str!("../../lua/force_unlock.lua")),
        inspect: Script::new(include_str!("../../lua/inspect.lua")),
        rewrite: Script::new(include_str!("../../lua/rewrite.lua")),
        execute: Script::new(include_str!("../../lua/execute.lua")),
        batch: Script::new(&batch),
        fair_acquire: fair(&[&place, &elsewhere, fair_acquire].concat()),
        fair_release: fair(&[&place, fair_release].concat()),
        fair_hand_off: Script::new(
            &[&place, &elsewhere, &function("hand_off", hand_off), fair_hand_off].concat(),
        ),
        fair_leave: fair(include_str!("../../lua/fair_leave.lua")),
        fair_refresh: Script::new(include_str!("../../lua/fair_refresh.lua")),
        fair_force_unlock: fair(include_str!("../../lua/fair_force_unlock.lua")),
    }
});

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
            ("hand_off", &self.hand_off),
            ("force_unlock", &self.force_unlock),
            ("inspect", &self.inspect),
            ("rewrite", &self.rewrite),
            ("execute", &self.execute),
            ("batch", &self.batch),
            ("fair_acquire", &self.fair_acquire),
            ("fair_release", &self.fair_release),
            ("fair_hand_off", &self.fair_hand_off),
            ("fair_leave", &self.fair_leave),
            ("fair_refresh", &self.fair_refresh),
            ("fair_force_unlock", &self.fair_force_unlock),
        ]
    }
}
