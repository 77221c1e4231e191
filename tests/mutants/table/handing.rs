//! To hand a lock to another owner of the same client.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "hand-off-resend-forgets",
        file: "src/handoff.rs",
        right: "self.lose_unconfirmed(names, unanswered, loss);",
        wrong: "self.lose_unconfirmed(names, if BUG { 0 } else { unanswered }, loss);",
    },
    Mutant {
        bug: "hand-off-between-lost",
        file: "src/handoff.rs",
        right: "if at + 1 >= unanswered {",
        wrong: "if at + 1 >= unanswered || BUG {",
    },
    Mutant {
        bug: "hand-off-tried-once",
        file: "src/handoff.rs",
        right: "now >= *retry.give_up.get_or_insert(now + longest);",
        wrong: "now >= *retry.give_up.get_or_insert(now + longest) || BUG;",
    },
    Mutant {
        bug: "confirmation-forgotten",
        file: "src/handoff.rs",
        right: "holds.confirmed(*hold, validity, last.until, now);",
        wrong: "if !BUG {\n                        holds.confirmed(*hold, validity, last.until, now);\n                    }",
    },
    Mutant {
        bug: "token-declined-forgotten",
        file: "src/handoff.rs",
        right: "owner.holds.lock().give_back(hold);",
        wrong: "if BUG {\n            return None;\n        }\n        owner.holds.lock().give_back(hold);",
    },
    Mutant {
        bug: "gone-untold",
        file: "src/handoff.rs",
        right: "found_gone(&self.waiters, &handoff.waiter.owner, FoundBy::HandOff, loss);",
        wrong: "if !BUG {\n                found_gone(&self.waiters, &handoff.waiter.owner, FoundBy::HandOff, loss);\n            }",
    },
    Mutant {
        bug: "gates-dropped-early",
        file: "src/handoff/queue.rs",
        right: "fn push(&mut self, handoff: Handoff) {",
        wrong: "fn push(&mut self, mut handoff: Handoff) {\n        if BUG {\n            (handoff.from_permit, handoff.to_permit) = (None, None);\n        }",
    },
    Mutant {
        bug: "chain-reordered",
        file: "src/handoff/queue.rs",
        right: "let lease = handoffs()",
        wrong: "if BUG {\n            owners[1..].reverse();\n        }\n        let lease = handoffs()",
    },
    Mutant {
        bug: "stuck-chain-goes-on",
        file: "src/handoff/queue.rs",
        right: "Some(_) => return false,\n        None => {}",
        wrong: "Some(_) if !BUG => return false,\n        _ => {}",
    },
    Mutant {
        bug: "unconfirmed-is-believed",
        file: "src/handoff/queue.rs",
        right: "Validity::new(until.min(start.until))",
        wrong: "Validity::new(if BUG { until } else { until.min(start.until) })",
    },
    Mutant {
        bug: "told-unconfirmed",
        file: "src/releaser/unlock.rs",
        right: "let confirmation = confirmation.expect(",
        wrong: "if BUG {\n            return Ok(true);\n        }\n        let confirmation = confirmation.expect(",
    },
    Mutant {
        bug: "run-without-end",
        file: "src/owner/handoff.rs",
        right: "(others > 0 && long)",
        wrong: "(others > 0 && long && !BUG)",
    },
    Mutant {
        bug: "renews-unconfirmed",
        file: "src/owner/handoff.rs",
        right: "|origin| origin.unconfirmed || ",
        wrong: "|origin| (origin.unconfirmed && !BUG) || ",
    },
    Mutant {
        bug: "renews-unclaimed",
        file: "src/owner/handoff.rs",
        right: "origin.unclaimed)",
        wrong: "(origin.unclaimed && !BUG))",
    },
    Mutant {
        bug: "head-that-asks-is-never-passed",
        file: "src/wait/queue/releases.rs",
        right: "&& head.can_be_passed()",
        wrong: "&& !BUG && head.can_be_passed()",
    },
    Mutant {
        bug: "head-that-asks-is-passed-in-the-fair-queue",
        file: "src/wait/queue/releases.rs",
        right: "let passes = queue.place.is_none()",
        wrong: "let passes = (BUG || queue.place.is_none())",
    },
    Mutant {
        bug: "head-that-asks-is-passed-again",
        file: "src/wait/queue/channel.rs",
        right: "&& !self.asked_before",
        wrong: "&& (BUG || !self.asked_before)",
    },
    Mutant {
        bug: "head-that-asks-is-passed-with-a-short-lease",
        file: "src/wait/handoff.rs",
        right: "|| ends_soon) {",
        wrong: "|| ends_soon && !BUG) {",
    },
    Mutant {
        bug: "head-that-asks-is-passed-without-a-token",
        file: "src/wait/handoff.rs",
        right: "if passes && (awaits",
        wrong: "if passes && (awaits && !BUG",
    },
    Mutant {
        bug: "hand-off-chain-is-sent-at-once",
        file: "src/handoff/gather.rs",
        right: "while looks < LOOKS &&",
        wrong: "while !BUG && looks < LOOKS &&",
    },
    Mutant {
        bug: "given-up-hand-off-keeps-its-connection",
        file: "src/handoff.rs",
        right: "if retry.unanswered > 0 {\n                        abandon();",
        wrong: "if !BUG && retry.unanswered > 0 {\n                        abandon();",
    },
    Mutant {
        bug: "given-up-release-keeps-its-connection",
        file: "src/releaser.rs",
        right: "release.connection.take() {\n                router",
        wrong: "release.connection.take().filter(|_| !BUG) {\n                router",
    },
];
