//! To wait for a lock.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "turns-are-not-deferred",
        file: "src/wait.rs",
        right: "let mut queues = self.queues.lock();\n        let (ends, head)",
        wrong: "if BUG {\n            return (others.is_some(), WakeList::default());\n        }\n        let mut queues = self.queues.lock();\n        let (ends, head)",
    },
    Mutant {
        bug: "drop-unnoticed",
        file: "src/wait.rs",
        right: "Push::Dropped { number, channel } => {",
        wrong: "Push::Dropped { .. } if BUG => {}\n                Push::Dropped { number, channel } => {",
    },
    Mutant {
        bug: "cut-unnoticed",
        file: "src/wait.rs",
        right: "let wakes = self.queues.lock().cut(",
        wrong: "if BUG {\n            return;\n        }\n        let wakes = self.queues.lock().cut(",
    },
    Mutant {
        bug: "leaving-asker-passes-no-turn",
        file: "src/wait/queue.rs",
        right: "if queue.is_head(ticket) && had_to_ask {",
        wrong: "if queue.is_head(ticket) && had_to_ask && !BUG {",
    },
    Mutant {
        bug: "leaver-wakes-no-head",
        file: "src/wait/queue.rs",
        right: "let head = if was_head {",
        wrong: "let head = if was_head && !BUG {",
    },
    Mutant {
        bug: "message-only",
        file: "src/wait/queue/channel.rs",
        right: "remaining.map_or(LONGEST_PARK, ",
        wrong: "if BUG {\n        return Duration::from_secs(3600);\n    }\n    remaining.map_or(LONGEST_PARK, ",
    },
    Mutant {
        bug: "no-second-try",
        file: "src/wait/queue/subscriptions.rs",
        right: "channel.ask_now(&self.turns, now, &mut wakes);",
        wrong: "if !BUG {\n                    channel.ask_now(&self.turns, now, &mut wakes);\n                }",
    },
    Mutant {
        bug: "unsubscribed-deferral-counts-messages",
        file: "src/wait/queue/turns.rs",
        right: "if deferral.is_deaf {",
        wrong: "if !BUG && deferral.is_deaf {",
    },
];
