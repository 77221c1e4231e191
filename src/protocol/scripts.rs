//! The scripts, as they are called, and how they publish.

use std::sync::LazyLock;

use redis::Script;

use crate::metrics::Operation;
use crate::transport::Channels;

use super::texts::text;

macro_rules! scripts {
    ($($operation:ident { $($name:ident)* })*) => {
        /// The scripts, with the digests by which they are called.
        pub(super) struct Scripts {
            $($(pub(super) $name: Script,)*)*
        }

        pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            $($($name: Script::new(&text(stringify!($name), str::to_owned)),)*)*
        });

        impl Scripts {
            pub(super) fn named(&self) -> Vec<(&'static str, &Script)> {
                vec![$($((stringify!($name), &self.$name)),*),*]
            }
        }

        /// What a script does, as the client exports it.
        #[cfg(feature = "metrics")]
        pub(super) fn operation(script: Option<&Script>) -> Operation {
            let Some(script) = script else { return Operation::Other };
            let scripts = &*SCRIPTS;
            $($(if std::ptr::eq(script, &scripts.$name) {
                return Operation::$operation;
            })*)*
            Operation::Other
        }
    };
}

scripts! {
    Acquire { acquire acquire_all fair_acquire rw_acquire }
    Release { release fair_release rw_release }
    Renew { renew rw_renew }
    HandOff { update fair_update rw_update }
    Execute { execute }
    Queue { fair_leave fair_refresh rw_leave }
    ForceUnlock { force_unlock fair_force_unlock rw_force_unlock }
    Inspect { inspect rw_inspect }
    Wait { rewrite rw_rewrite }
    Other { batch }
}

/// Whether a script of a lock with a queue may end a hold, so that clients on the common channel hear of it.
pub(super) fn frees(script: &Script) -> bool {
    let scripts = &*SCRIPTS;
    let these = [
        &scripts.fair_release,
        &scripts.rw_release,
        &scripts.fair_update,
        &scripts.rw_update,
        &scripts.fair_force_unlock,
        &scripts.rw_force_unlock,
    ];
    these.into_iter().any(|one| std::ptr::eq(one, script))
}

/// Without the feature the client does not use it.
#[cfg(not(feature = "metrics"))]
pub(super) fn operation(_: Option<&Script>) -> Operation {
    Operation::Other
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
