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
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let acquire = include_str!("../../lua/acquire.lua");
    let release = include_str!("../../lua/release.lua");
    let batch = [
        ("local function acquire(KEYS, ARGV)", acquire, "end"),
        ("local function release(KEYS, ARGV)", release, "end"),
        ("", include_str!("../../lua/batch.lua"), ""),
    ]
    .map(|(opening, body, end)| format!("{opening}\n{body}{end}\n"))
    .concat();
    Scripts {
        acquire: Script::new(acquire),
        release: Script::new(release),
        renew: Script::new(include_str!("../../lua/renew.lua")),
        hand_off: Script::new(include_str!("../../lua/hand_off.lua")),
        force_unlock: Script::new(include_str!("../../lua/force_unlock.lua")),
        inspect: Script::new(include_str!("../../lua/inspect.lua")),
        rewrite: Script::new(include_str!("../../lua/rewrite.lua")),
        execute: Script::new(include_str!("../../lua/execute.lua")),
        batch: Script::new(&batch),
    }
});

/// All of them, for servers to have before they are called.
pub(crate) fn scripts() -> Vec<&'static Script> {
    let s = &*SCRIPTS;
    let locks = [&s.acquire, &s.release, &s.renew, &s.hand_off, &s.force_unlock, &s.inspect];
    [&locks[..], &[&s.rewrite, &s.execute, &s.batch]].concat()
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
