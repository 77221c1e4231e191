//! To wait for a lock.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "turns-are-not-deferred",
        file: "src/wait.rs",
        right: "        self.change_quietly(now, |queues| queues.begin_deferral(",
        wrong: "        if BUG {\n            return (others.is_some(), Effects::default());\n        }\n        self.change_quietly(now, |queues| queues.begin_deferral(",
    },
    Mutant {
        bug: "drop-unnoticed",
        file: "src/wait/subscriber.rs",
        right: "Push::Dropped { number, channel } => {",
        wrong: "Push::Dropped { .. } if BUG => {}\n                Push::Dropped { number, channel } => {",
    },
    Mutant {
        bug: "cut-unnoticed",
        file: "src/wait/subscriber.rs",
        right: "        self.change(|queues| queues.record_cut(number));",
        wrong: "        if !BUG {\n            self.change(|queues| queues.record_cut(number));\n        }",
    },
    Mutant {
        bug: "leaving-asker-passes-no-turn",
        file: "src/wait/queue.rs",
        right: "if self.is_head(ticket, cx.at.now) && had_to_ask {",
        wrong: "if self.is_head(ticket, cx.at.now) && had_to_ask && !BUG {",
    },
    Mutant {
        bug: "leaver-wakes-no-head",
        file: "src/wait/queue.rs",
        right: "        if was_head {",
        wrong: "        if was_head && !BUG {",
    },
    Mutant {
        bug: "message-only",
        file: "src/wait/change.rs",
        right: "remaining.map_or(LONGEST_PARK, ",
        wrong: "if BUG {\n        return Duration::from_secs(3600);\n    }\n    remaining.map_or(LONGEST_PARK, ",
    },
    Mutant {
        bug: "no-second-try",
        file: "src/wait/queue.rs",
        right: "        self.ask_now(cx);\n",
        wrong: "        if !BUG {\n            self.ask_now(cx);\n        }\n",
    },
    Mutant {
        bug: "unsubscribed-deferral-counts-messages",
        file: "src/wait/turns.rs",
        right: "if !deferral.is_deaf {",
        wrong: "if BUG || !deferral.is_deaf {",
    },
    Mutant {
        bug: "waiters-of-a-handle-do-not-nest",
        file: "src/wait.rs",
        right: "        if handle.waiting.load(Ordering::Relaxed) == 0 {",
        wrong: "        if BUG || handle.waiting.load(Ordering::Relaxed) == 0 {",
    },
    Mutant {
        bug: "wait-ends-before-the-first-answer",
        file: "src/wait/waiter.rs",
        right: "limits.until.filter(|_| !reach.is_silent_since(self.joined));",
        wrong: "limits.until.filter(|_| BUG || !reach.is_silent_since(self.joined));",
    },
    Mutant {
        bug: "first-answer-wakes-no-waiter",
        file: "src/wait/queue.rs",
        right: "if self.reach.record_answer(asked_at) && self.entries.len() > 1 {",
        wrong: "if self.reach.record_answer(asked_at) && self.entries.len() > 1 && !BUG {",
    },
    Mutant {
        bug: "call-in-silence-waits-for-the-outage",
        file: "src/wait/reach.rs",
        right: "if silent <= joined {",
        wrong: "if silent <= joined && !BUG {",
    },
    Mutant {
        bug: "call-in-an-outage-has-no-try",
        file: "src/wait/queue.rs",
        right: "} else if self.reach.in_outage(now)",
        wrong: "} else if !BUG && self.reach.in_outage(now)",
    },
    Mutant {
        bug: "parked-queue-hears-nothing-of-its-channel",
        file: "src/wait/queues.rs",
        right: "                queue.record_subscribed(&mut self.cx);",
        wrong: "                if !BUG {\n                    queue.record_subscribed(&mut self.cx);\n                }",
    },
    Mutant {
        bug: "hand-off-to-a-call-that-nests-stays-unclaimed",
        file: "src/acquire.rs",
        right: "            granted.possession.holds.lock().claimed();\n            self.engine.releaser",
        wrong: "            if !BUG {\n                granted.possession.holds.lock().claimed();\n            }\n            self.engine.releaser",
    },
    Mutant {
        bug: "empty-queue-in-an-outage-relies-on-messages",
        file: "src/wait/queue.rs",
        right: "(hears && !self.reach.in_outage(now))",
        wrong: "(hears && (BUG || !self.reach.in_outage(now)))",
    },
];
