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
        bug: "asked-node-forgotten",
        file: "src/connection/cluster/map.rs",
        right: "if self.asked.contains_key(&address) {",
        wrong: "if self.asked.contains_key(&address) && !BUG {",
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
];
