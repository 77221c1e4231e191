//! To wait for a lock.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "stands-not-back",
        file: "src/waiters.rs",
        right: "let mut board = self.board.lock();\n        let (ends, head)",
        wrong: "if BUG {\n            return (others.is_some(), Stirred::default());\n        }\n        let mut board = self.board.lock();\n        let (ends, head)",
    },
    Mutant {
        bug: "drop-unnoticed",
        file: "src/waiters.rs",
        right: "Push::Dropped { number, channel } => {",
        wrong: "Push::Dropped { .. } if BUG => {}\n                Push::Dropped { number, channel } => {",
    },
    Mutant {
        bug: "cut-unnoticed",
        file: "src/waiters.rs",
        right: "let wakes = self.board.lock().cut(",
        wrong: "if BUG {\n            return;\n        }\n        let wakes = self.board.lock().cut(",
    },
    Mutant {
        bug: "baton-dropped",
        file: "src/waiters/board.rs",
        right: "if line.is_head(ticket) && holds_baton {",
        wrong: "if line.is_head(ticket) && holds_baton && !BUG {",
    },
    Mutant {
        bug: "leaver-wakes-nobody",
        file: "src/waiters/board.rs",
        right: "let head = if was_head {",
        wrong: "let head = if was_head && !BUG {",
    },
    Mutant {
        bug: "message-only",
        file: "src/waiters/board/line.rs",
        right: "left.map_or(LONGEST_PARK, ",
        wrong: "if BUG {\n        return Duration::from_secs(3600);\n    }\n    left.map_or(LONGEST_PARK, ",
    },
    Mutant {
        bug: "no-second-try",
        file: "src/waiters/board/subscriptions.rs",
        right: "channel.ask_now(&self.turns, now, &mut wakes);",
        wrong: "if !BUG {\n                    channel.ask_now(&self.turns, now, &mut wakes);\n                }",
    },
];
