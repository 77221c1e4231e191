//! To hand a lock to another owner of the same client.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "hand-over-resend-forgets",
        file: "src/relay.rs",
        right: "self.gone(names, course.failures > 0 || repeated);",
        wrong: "self.gone(names, (course.failures > 0 || repeated) && !BUG);",
    },
    Mutant {
        bug: "hand-over-tried-once",
        file: "src/relay.rs",
        right: "now >= *course.give_up.get_or_insert(now + longest);",
        wrong: "now >= *course.give_up.get_or_insert(now + longest) || BUG;",
    },
    Mutant {
        bug: "confirmation-forgotten",
        file: "src/relay.rs",
        right: "account.confirmed(*hold, term, last.until, now);",
        wrong: "if !BUG {\n                        account.confirmed(*hold, term, last.until, now);\n                    }",
    },
    Mutant {
        bug: "token-declined-forgotten",
        file: "src/relay.rs",
        right: "owner.account.lock().give_back(hold);",
        wrong: "if BUG {\n            return None;\n        }\n        owner.account.lock().give_back(hold);",
    },
    Mutant {
        bug: "gone-untold",
        file: "src/relay.rs",
        right: "found_gone(&self.waiters, &step.seat.owner, FoundBy::HandOver);",
        wrong: "if !BUG {\n                found_gone(&self.waiters, &step.seat.owner, FoundBy::HandOver);\n            }",
    },
    Mutant {
        bug: "gates-dropped-early",
        file: "src/relay/chain.rs",
        right: "fn push(&mut self, step: Step) {",
        wrong: "fn push(&mut self, mut step: Step) {\n        if BUG {\n            (step.from_gate, step.to_gate) = (None, None);\n        }",
    },
    Mutant {
        bug: "chain-reordered",
        file: "src/relay/chain.rs",
        right: "let lease = steps()",
        wrong: "if BUG {\n            owners[1..].reverse();\n        }\n        let lease = steps()",
    },
    Mutant {
        bug: "stuck-chain-goes-on",
        file: "src/relay/chain.rs",
        right: "Some(_) => return false,\n        None => {}",
        wrong: "Some(_) if !BUG => return false,\n        _ => {}",
    },
    Mutant {
        bug: "unconfirmed-is-believed",
        file: "src/relay/chain.rs",
        right: "Term::new(until.min(passing.until))",
        wrong: "Term::new(if BUG { until } else { until.min(passing.until) })",
    },
    Mutant {
        bug: "told-unconfirmed",
        file: "src/releaser/passage.rs",
        right: "let confirmed = confirmed.expect(",
        wrong: "if BUG {\n        return Ok(true);\n    }\n    let confirmed = confirmed.expect(",
    },
    Mutant {
        bug: "run-without-end",
        file: "src/holds/passing.rs",
        right: "(others > 0 && long)",
        wrong: "(others > 0 && long && !BUG)",
    },
    Mutant {
        bug: "renews-unconfirmed",
        file: "src/holds/passing.rs",
        right: "|passed| passed.unconfirmed || ",
        wrong: "|passed| (passed.unconfirmed && !BUG) || ",
    },
    Mutant {
        bug: "renews-unclaimed",
        file: "src/holds/passing.rs",
        right: "passed.unclaimed)",
        wrong: "(passed.unclaimed && !BUG))",
    },
];
