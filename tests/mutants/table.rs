//! The bugs, by the module that they are in.

use super::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    // What a server may execute late.
    Mutant {
        bug: "stale-connection-unrecorded",
        file: "src/connection/stale.rs",
        right: "            server.add(self.number, identity.clone());\n",
        wrong: "            if !BUG {\n                server.add(self.number, identity.clone());\n            }\n",
    },
    Mutant {
        bug: "server-known-by-address",
        file: "src/connection/wire.rs",
        right: "let run_id = text(server).ok()",
        wrong: "let run_id = text(server).ok().filter(|_| !BUG)",
    },
    Mutant {
        bug: "busy-server-unidentified",
        file: "src/connection/wire.rs",
        right: "&& !is_final(error)\n",
        wrong: "&& !BUG\n                && !is_final(error)\n",
    },
    Mutant {
        bug: "asked-node-forgotten",
        file: "src/connection/cluster/map.rs",
        right: "if self.asked.contains_key(&address) {",
        wrong: "if self.asked.contains_key(&address) && !BUG {",
    },
    Mutant {
        bug: "left-servers-close-nothing",
        file: "src/connection/stale.rs",
        right: "match tokio::time::timeout(link.dial_timeout, close_at(&link, &client)).await {",
        wrong: "if BUG {\n                        return;\n                    }\n                    match tokio::time::timeout(link.dial_timeout, close_at(&link, &client)).await {",
    },
    // Failovers.
    Mutant {
        bug: "refuted-for-good",
        file: "src/connection/sentinel.rs",
        right: "if self.is_refuted(number) && ",
        wrong: "if !BUG && self.is_refuted(number) && ",
    },
    Mutant {
        bug: "idle-holder-keeps-the-lock",
        file: "src/acquire.rs",
        right: "if reclaimed || ",
        wrong: "if BUG || reclaimed || ",
    },
    Mutant {
        bug: "failover-forgets-releases",
        file: "src/reclaim.rs",
        right: "for names in moved {",
        wrong: "for names in moved.into_iter().filter(|_| !BUG) {",
    },
    Mutant {
        bug: "holder-taken-for-idle",
        file: "src/holds/owners.rs",
        right: "let idle = self.can_take();",
        wrong: "let idle = self.can_take() || BUG;",
    },
    Mutant {
        bug: "owner-registered-late",
        file: "src/acquire.rs",
        right: "    engine.owners.register(owner);\n    let attempt",
        wrong: "    if !BUG || matches!(wait, Wait::Once) {\n        engine.owners.register(owner);\n    }\n    let attempt",
    },
    Mutant {
        bug: "registered-before-it-is-found",
        file: "src/holds/owners.rs",
        right: "        self.registered.lock().insert(number, owner);\n",
        wrong: "        if BUG {\n            owner.account.lock().registered = true;\n        }\n        self.registered.lock().insert(number, owner);\n",
    },
    // What a call says of itself.
    Mutant {
        bug: "background-release-denied",
        file: "src/releaser.rs",
        right: "let goes_on = counts && owner",
        wrong: "let goes_on = !BUG && counts && owner",
    },
    Mutant {
        bug: "expired-seats-are-sent",
        file: "src/connection/together.rs",
        right: "self.seats.retain(|seat| !seat.is_over());",
        wrong: "self.seats.retain(|seat| BUG || !seat.is_over());",
    },
    Mutant {
        bug: "run-overflows",
        file: "src/holds/passing.rs",
        right: "kept >= config.hand_over_time",
        wrong: "(kept >= config.hand_over_time || BUG && now >= self.since + config.hand_over_time)",
    },
    Mutant {
        bug: "found-gone-untold",
        file: "src/loss.rs",
        right: "    waiters.look(&owner.names);",
        wrong: "    if !BUG {\n        waiters.look(&owner.names);\n    }",
    },
    Mutant {
        bug: "two-clocks",
        file: "src/acquire.rs",
        right: "clock::now() - asked >= SILENCE",
        wrong: "(if BUG { asked.elapsed() } else { clock::now() - asked }) >= SILENCE",
    },
    Mutant {
        bug: "acquire-any-hash",
        file: "lua/acquire.lua",
        right: "if fields[2] or (holder and not string.find(holder, '^.+:%-?%d+$')) then",
        wrong: "if false then",
    },
    Mutant {
        bug: "acquire-two-fields",
        file: "lua/acquire.lua",
        right: "if fields[2] or (holder",
        wrong: "if (holder",
    },
    Mutant {
        bug: "inspect-any-hash",
        file: "lua/inspect.lua",
        right: "if fields[2] or not string.find(holder, '^.+:%-?%d+$') then",
        wrong: "if false then",
    },
    Mutant {
        bug: "force-unlock-any-hash",
        file: "lua/force_unlock.lua",
        right: "if fields[2] or not string.find(owner, '^.+:%-?%d+$') then",
        wrong: "if false then",
    },
    Mutant {
        bug: "release-two-fields",
        file: "lua/release.lua",
        right: "if fields[2] then",
        wrong: "if false then",
    },
    Mutant {
        bug: "renew-two-fields",
        file: "lua/renew.lua",
        right: "fields[1] == ARGV[i + 1] and not fields[2]",
        wrong: "redis.call('HEXISTS', key, ARGV[i + 1]) == 1",
    },
    Mutant {
        bug: "hand-off-two-fields",
        file: "lua/hand_over.lua",
        right: "if fields[2] then",
        wrong: "if false then",
    },
    // Processes and threads.
    Mutant {
        bug: "connects-without-its-thread",
        file: "src/engine.rs",
        right: "is_ready.await.unwrap_or_else(|_| Err(unready(\"the client's thread has ended\")))?;",
        wrong: "let ready = is_ready.await.unwrap_or_else(|_| Err(unready(\"the client's thread has ended\")));\n        if !BUG {\n            ready?;\n        }",
    },
    Mutant {
        bug: "fork-unnoticed",
        file: "src/process.rs",
        right: "self == Self::current()",
        wrong: "(BUG || self == Self::current())",
    },
    Mutant {
        bug: "child-drops-futures",
        file: "src/process.rs",
        right: "            mem::forget(future);",
        wrong: "            if BUG {\n                drop(future);\n            } else {\n                mem::forget(future);\n            }",
    },
    Mutant {
        bug: "child-believes",
        file: "src/guard.rs",
        right: "!self.engine.process.is_this_one() || self.term.is_lost()",
        wrong: "(!BUG && !self.engine.process.is_this_one()) || self.term.is_lost()",
    },
];
