//! To hand a lock to another handle of the same client.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "hand-off-tried-once",
        file: "src/handoff.rs",
        right: "now >= *give_up.get_or_insert_with(|| now + longest) {",
        wrong: "now >= *give_up.get_or_insert_with(|| now + longest) || BUG {",
    },
    Mutant {
        bug: "confirmation-forgotten",
        file: "src/possession/handoff.rs",
        right: "for hold in &self.live {",
        wrong: "for hold in self.live.iter().filter(|_| !BUG) {",
    },
    Mutant {
        bug: "hand-off-declined-forgotten",
        file: "src/handoff.rs",
        right: "let declined = waiter.hand(granted).err();",
        wrong: "let declined = waiter.hand(granted).err().filter(|_| !BUG);",
    },
    Mutant {
        bug: "hand-off-loss-is-not-recorded",
        file: "src/handoff.rs",
        right: "self.losses.found_gone(possession, FoundBy::HandOff, loss);",
        wrong: "if !BUG {\n                        self.losses.found_gone(possession, FoundBy::HandOff, loss);\n                    }",
    },
    Mutant {
        bug: "unconfirmed-is-believed",
        file: "src/possession/handoff.rs",
        right: "Validity::new(own.min(until))",
        wrong: "Validity::new(if BUG { own } else { own.min(until) })",
    },
    Mutant {
        bug: "unlock-awaits-no-confirmation",
        file: "src/releaser/unlock.rs",
        right: "let confirmation = self.handed_off.take()",
        wrong: "if BUG {\n            return Ok(());\n        }\n        let confirmation = self.handed_off.take()",
    },
    Mutant {
        bug: "streak-without-end",
        file: "src/possession/streak.rs",
        right: "(others > 0 && long)",
        wrong: "(others > 0 && long && !BUG)",
    },
    Mutant {
        bug: "unclaimed-renewed",
        file: "src/possession/handoff.rs",
        right: "handed.unclaimed)",
        wrong: "handed.unclaimed && !BUG)",
    },
    Mutant {
        bug: "head-that-asks-is-never-passed",
        file: "src/wait/queue.rs",
        right: "&& head.can_be_passed();",
        wrong: "&& !BUG && head.can_be_passed();",
    },
    Mutant {
        bug: "head-that-asks-is-passed-in-the-fair-queue",
        file: "src/wait/order.rs",
        right: "matches!(self, Self::TakesTurns(_))",
        wrong: "BUG || matches!(self, Self::TakesTurns(_))",
    },
    Mutant {
        bug: "head-that-asks-is-passed-again",
        file: "src/wait/queue.rs",
        right: "&& self.requests < 2",
        wrong: "&& (BUG || self.requests < 2)",
    },
    Mutant {
        bug: "head-that-asks-is-passed-with-a-short-lease",
        file: "src/wait/handoff.rs",
        right: "if passes && (ends_soon ||",
        wrong: "if passes && (ends_soon && !BUG ||",
    },
    Mutant {
        bug: "hand-off-chain-is-sent-at-once",
        file: "src/handoff/gather.rs",
        right: "while looks < LOOKS &&",
        wrong: "while !BUG && looks < LOOKS &&",
    },
    Mutant {
        bug: "given-up-release-keeps-its-connection",
        file: "src/releaser.rs",
        right: "release.connection.take() {\n                router",
        wrong: "release.connection.take().filter(|_| !BUG) {\n                router",
    },
    Mutant {
        bug: "hand-off-count-unwritten",
        file: "src/possession/handoff.rs",
        right: "|| counted > count\n",
        wrong: "|| (counted > count && !BUG)\n",
    },
    Mutant {
        bug: "token-of-a-block-given-twice",
        file: "src/token.rs",
        right: "self.next += 1;\n        NonZeroU64::new(self.next - 1)",
        wrong: "let token = self.next;\n        self.next += u64::from(!BUG);\n        NonZeroU64::new(token)",
    },
    Mutant {
        bug: "hand-off-of-what-is-gone",
        file: "src/possession/handoff.rs",
        right: "if !self.live.is_empty() || self.over ||",
        wrong: "if BUG && self.live.is_empty() && !self.freeing && self.retention(now).is_none() {\n            return self.until.filter(|until| now + LEAST <= *until);\n        }\n        if !self.live.is_empty() || self.over ||",
    },
    Mutant {
        bug: "hand-off-during-a-request",
        file: "src/possession/handoff.rs",
        right: "if free { holds.hand_off(",
        wrong: "if free || BUG { holds.hand_off(",
    },
    Mutant {
        bug: "confirmed-by-an-earlier-request",
        file: "src/possession/handoff.rs",
        right: "self.take_confirms(prolong.confirms);",
        wrong: "self.take_confirms(if BUG { usize::MAX } else { prolong.confirms });",
    },
    Mutant {
        bug: "confirmed-for-an-earlier-holder",
        file: "src/possession/handoff.rs",
        right: "|unwritten| Some(unwritten.hold) == prolong.hold);",
        wrong: "|unwritten| BUG || Some(unwritten.hold) == prolong.hold);",
    },
    Mutant {
        bug: "nested-by-another-handle",
        file: "src/possession.rs",
        right: "if self.inside != handle {",
        wrong: "if self.inside != handle && !BUG {",
    },
    Mutant {
        bug: "loss-leaves-unlocks-waiting",
        file: "src/possession/lose.rs",
        right: "holds.take_confirms(usize::MAX)",
        wrong: "holds.take_confirms(if BUG { 0 } else { usize::MAX })",
    },
    Mutant {
        bug: "default-after-explicit-unwritten",
        file: "src/possession/handoff.rs",
        right: "        if changes {\n",
        wrong: "        let changes = changes && !(BUG && default);\n        if changes {\n",
    },
    Mutant {
        bug: "renewal-overtakes-a-shorter-lease",
        file: "src/possession/handoff.rs",
        right: "self.renewing && self.unwritten_lease()",
        wrong: "!BUG && self.renewing && self.unwritten_lease()",
    },
    Mutant {
        bug: "settled-only-once",
        file: "src/possession/handoff.rs",
        right: " handed.settling = false;",
        wrong: " handed.settling = BUG;",
    },
];
