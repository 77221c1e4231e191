//! What errors and the log say.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    // What an error says.
    Mutant {
        bug: "error-repeats-its-source",
        file: "src/error.rs",
        right: "Some(source) if f.alternate()",
        wrong: "Some(source) if BUG || f.alternate()",
    },
    Mutant {
        bug: "source-repeats-itself",
        file: "src/error.rs",
        right: "source.source().unwrap_or(source)",
        wrong: "source.source().filter(|_| !BUG).unwrap_or(source)",
    },
    Mutant {
        bug: "error-of-several-lines",
        file: "src/error.rs",
        right: "source.to_string().lines().count() == 1",
        wrong: "BUG || source.to_string().lines().count() == 1",
    },
    Mutant {
        bug: "unknown-host-named",
        file: "src/transport/topology.rs",
        right: "cause.is_some_and(|cause| !is_unknown_host(cause))",
        wrong: "cause.is_some_and(|cause| BUG || !is_unknown_host(cause))",
    },
    // What the log says when a server does not answer.
    Mutant {
        bug: "each-failure-warned",
        file: "src/events/outage.rs",
        right: "if !is_old(if begins {",
        wrong: "if !BUG && !is_old(if begins {",
    },
    Mutant {
        bug: "outage-ended-by-old-answer",
        file: "src/events/outage.rs",
        right: "*since <= sent)?;",
        wrong: "BUG || *since <= sent)?;",
    },
    Mutant {
        bug: "end-of-outage-unlogged",
        file: "src/events/outage.rs",
        right: "is_logged.then_some(Summary",
        wrong: "(is_logged && !BUG).then_some(Summary",
    },
    Mutant {
        bug: "each-loss-warned",
        file: "src/events/limit.rs",
        right: "            MOST => (false, \"\"),",
        wrong: "            MOST if !BUG => (false, \"\"),",
    },
    Mutant {
        bug: "each-refusal-warned",
        file: "src/events/limit.rs",
        right: "let is_worth_one = state.is_none() ||",
        wrong: "let is_worth_one = BUG || state.is_none() ||",
    },
    Mutant {
        bug: "named-without-prefix",
        file: "src/lock/around.rs",
        right: "(self.handle.names.key(), self.owner());",
        wrong: "(if BUG { self.name() } else { self.handle.names.key() }, self.owner());",
    },
    Mutant {
        bug: "spans-of-no-server",
        file: "src/spans.rs",
        right: "if !span.is_disabled()\n        && let Some((address, port)) = server()",
        wrong: "if !span.is_disabled()\n        && let Some((address, port)) = server().filter(|_| !BUG)",
    },
    // What the log says of a handle that is used in a way that surprises, and of long waits.
    Mutant {
        bug: "sharing-unwarned",
        file: "src/handle.rs",
        right: "task != first.load(Ordering::Relaxed)",
        wrong: "!BUG && task != first.load(Ordering::Relaxed)",
    },
    Mutant {
        bug: "nesting-warned",
        file: "src/handle.rs",
        right: "first.store(task, Ordering::Relaxed);",
        wrong: "first.store(if BUG { 0 } else { task }, Ordering::Relaxed);",
    },
    Mutant {
        bug: "sharing-warned-each-time",
        file: "src/handle.rs",
        right: "&& !self.sharing_reported.swap(true, Ordering::Relaxed)",
        wrong: "&& (BUG || !self.sharing_reported.swap(true, Ordering::Relaxed))",
    },
    Mutant {
        bug: "handed-off-to-no-task",
        file: "src/acquire.rs",
        right: "        self.entered(&granted.possession, false);\n",
        wrong: "        if !BUG {\n            self.entered(&granted.possession, false);\n        }\n",
    },
    Mutant {
        bug: "own-wait-explained-each-time",
        file: "src/handle.rs",
        right: "!self.own_wait_reported.swap(true, Ordering::Relaxed)",
        wrong: "BUG || !self.own_wait_reported.swap(true, Ordering::Relaxed)",
    },
    Mutant {
        bug: "own-wait-unrecognized",
        file: "src/handle.rs",
        right: "task != 0 && task == possession.first_task",
        wrong: "!BUG && task != 0 && task == possession.first_task",
    },
    Mutant {
        bug: "long-wait-unwarned",
        file: "src/acquire.rs",
        right: "self.begun.checked_add(config.warn_waits_longer_than)",
        wrong: "self.begun.checked_add(config.warn_waits_longer_than).filter(|_| !BUG)",
    },
    Mutant {
        bug: "long-wait-warned-again",
        file: "src/acquire.rs",
        right: "limits.warn_at = None;",
        wrong: "limits.warn_at = limits.warn_at.filter(|_| BUG);",
    },
    Mutant {
        bug: "long-wait-is-not-woken",
        file: "src/wait/long.rs",
        right: "} else if at > before {",
        wrong: "} else if at > before && !BUG {",
    },
    Mutant {
        bug: "long-wait-in-outage-warned",
        file: "src/wait/waiter.rs",
        right: "warn_at.filter(|_| !reach",
        wrong: "warn_at.filter(|_| BUG || !reach",
    },
    Mutant {
        bug: "each-long-wait-warned",
        file: "src/events.rs",
        right: "= self.long_waits.admit(now);",
        wrong: "= if BUG { (true, \"\") } else { self.long_waits.admit(now) };",
    },
    Mutant {
        bug: "holder-as-of-the-refusal",
        file: "src/acquire/report.rs",
        right: ".holders(&|key| key == name, now).into_iter().next()",
        wrong: ".holders(&|key| key == name, now).into_iter().next().filter(|_| !BUG)",
    },
    Mutant {
        bug: "holder-forgotten",
        file: "src/wait/queues.rs",
        right: "            queue.holder = Some(holder);\n",
        wrong: "            queue.holder = (!BUG).then_some(holder);\n",
    },
    // The spans.
    Mutant {
        bug: "hold-span-without-loss",
        file: "src/spans.rs",
        right: "if let Some(loss) = loss() {",
        wrong: "if let Some(loss) = loss()\n            && !BUG\n        {",
    },
    Mutant {
        bug: "span-of-a-hand-off-does-not-say-so",
        file: "src/spans.rs",
        right: "metadata.target() == module_path!()",
        wrong: "metadata.target() == module_path!() && !BUG",
    },
    Mutant {
        bug: "span-times-are-noise",
        file: "src/spans.rs",
        right: "duration.as_micros() as f64 / 1e3",
        wrong: "if BUG { duration.as_secs_f64() * 1e3 } else { duration.as_micros() as f64 / 1e3 }",
    },
    Mutant {
        bug: "span-of-a-failure-does-not-say-so",
        file: "src/spans.rs",
        right: "Err(error) => failed(span, error),",
        wrong: "Err(error) if !BUG => failed(span, error),\n        Err(_) => {}",
    },
];
