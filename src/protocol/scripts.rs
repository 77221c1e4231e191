//! The scripts, as they are called, and how they publish.

use std::sync::LazyLock;

use redis::Script;

use crate::transport::Channels;

use super::texts::text;

macro_rules! scripts {
    ($($name:ident)*) => {
        /// The scripts, with the digests by which they are called.
        pub(super) struct Scripts {
            $(pub(super) $name: Script,)*
        }

        pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            $($name: Script::new(&text(stringify!($name), str::to_owned)),)*
        });

        impl Scripts {
            pub(super) fn named(&self) -> Vec<(&'static str, &Script)> {
                vec![$((stringify!($name), &self.$name)),*]
            }
        }
    };
}

scripts! {
    acquire release renew prolong force_unlock inspect rewrite execute batch acquire_all
    fair_acquire fair_release fair_prolong fair_leave fair_refresh fair_force_unlock
    rw_acquire rw_release rw_prolong rw_renew rw_force_unlock rw_inspect rw_rewrite rw_leave
}

/// All of them, for servers to have before they are called.
pub(crate) fn scripts() -> Vec<&'static Script> {
    SCRIPTS.named().into_iter().map(|(_, script)| script).collect()
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
