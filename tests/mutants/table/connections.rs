//! To reach a server, and the right one.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    // To connect with the first call.
    Mutant {
        bug: "lazy-client-connects-at-once",
        file: "src/engine.rs",
        right: "begin.notified().await;",
        wrong: "if !BUG {\n                    begin.notified().await;\n                }",
    },
    Mutant {
        bug: "lazy-thread-waits-for-a-need",
        file: "src/engine.rs",
        right: "if lazy => {}",
        wrong: "if lazy && !BUG => {}",
    },
    Mutant {
        bug: "closed-lazy-client-goes-on",
        file: "src/engine.rs",
        right: "_ = closed.wait_for(|closed| *closed) => {}",
        wrong: "_ = closed.wait_for(|closed| *closed && !BUG) => {}",
    },
    Mutant {
        bug: "lazy-primary-is-a-sentinel",
        file: "src/transport/topology/sentinel.rs",
        right: "self.found.load(Ordering::Acquire).then",
        wrong: "(BUG || self.found.load(Ordering::Acquire)).then",
    },
    Mutant {
        bug: "lazy-first-release-is-published-plainly",
        file: "src/protocol.rs",
        right: "if !self.router.knows_channels() {",
        wrong: "if !BUG && !self.router.knows_channels() {",
    },
    Mutant {
        bug: "closed-lazy-client-connects",
        file: "src/engine.rs",
        right: "self.connects.store(true, Ordering::Relaxed);\n        let close",
        wrong: "self.connects.store(!BUG, Ordering::Relaxed);\n        let close",
    },
    // How a request is carried out.
    Mutant {
        bug: "undo-does-not-wait",
        file: "src/transport/request.rs",
        right: "        if let Some(entry) = &on.entry\n            && clock",
        wrong: "        if let Some(entry) = &on.entry\n            && !BUG\n            && clock",
    },
    Mutant {
        bug: "asks-without-asking",
        file: "src/transport/request.rs",
        right: "if asking {\n            return Box::pin",
        wrong: "if asking && !BUG {\n            return Box::pin",
    },
    Mutant {
        bug: "release-is-published-at-the-target-only",
        file: "src/transport/request.rs",
        right: "if asking {\n                        self.publish_at_source",
        wrong: "if asking && !BUG {\n                        self.publish_at_source",
    },
    Mutant {
        bug: "resend-forgets",
        file: "src/transport/request.rs",
        right: "                retry.repeated = true;\n",
        wrong: "                retry.repeated = !BUG;\n",
    },
    Mutant {
        bug: "no-resend",
        file: "src/transport/request.rs",
        right: "            Step::Reconnect => {\n                self.drop_connection(&on);\n",
        wrong: "            Step::Reconnect => {\n                self.drop_connection(&on);\n                if BUG {\n                    return Err(unavailable(request.what, true, Some(error)));\n                }\n",
    },
    Mutant {
        bug: "silence-is-kept",
        file: "src/transport/request.rs",
        right: "connection.take_if(|on| on.is_silent(asked, request.patience))",
        wrong: "connection.take_if(|on| on.is_silent(asked, request.patience) && !BUG)",
    },
    Mutant {
        bug: "redirections-at-once",
        file: "src/transport/retry.rs",
        right: "at_once: redirections < REDIRECTIONS",
        wrong: "at_once: BUG || redirections < REDIRECTIONS",
    },
    Mutant {
        bug: "busy-is-final",
        file: "src/transport/error_class.rs",
        right: "if RETRY_LATER.iter().any(|code| has_code(error, code)) {",
        wrong: "if RETRY_LATER.iter().any(|code| has_code(error, code)) && !BUG {",
    },
    Mutant {
        bug: "late-requests",
        file: "src/transport/connection/stale.rs",
        right: "self.any.load(Ordering::Acquire)",
        wrong: "self.any.load(Ordering::Acquire) && !BUG",
    },
    Mutant {
        bug: "cancelled-batch-entries-are-sent",
        file: "src/transport/connection/batch.rs",
        right: "State::Cancelled | State::Sent(_) | State::Done(_) => false",
        wrong: "State::Cancelled if BUG => {\n                *state = State::Sent(None);\n                true\n            }\n            State::Cancelled | State::Sent(_) | State::Done(_) => false",
    },
    Mutant {
        bug: "slots-share-a-call",
        file: "src/transport/connection/batch_sender.rs",
        right: "while let Some(last) = entries.last() {",
        wrong: "if BUG {\n            self.entries = entries;\n            return self.send_batch().await;\n        }\n        while let Some(last) = entries.last() {",
    },
    // Where to.
    Mutant {
        bug: "old-master-kept",
        file: "src/transport/node.rs",
        right: "let runtime_slots = self.runtime_slots();\n        Ok(",
        wrong: "if BUG {\n            return Ok(Vec::new());\n        }\n        let runtime_slots = self.runtime_slots();\n        Ok(",
    },
    Mutant {
        bug: "role-unasked",
        file: "src/transport/node.rs",
        right: "lock().clone(), self.has_to_be_primary)",
        wrong: "lock().clone(), self.has_to_be_primary && !BUG)",
    },
    Mutant {
        bug: "any-sentinel-will-do",
        file: "src/transport/topology/sentinel.rs",
        right: "all.filter(|report| !rejected.contains(report)).max()",
        wrong: "let mut valid = all.filter(|report| !rejected.contains(report));\n        if BUG { valid.next() } else { valid.max() }",
    },
    Mutant {
        bug: "moved-not-learned",
        file: "src/transport/topology/cluster.rs",
        right: "if for_good {",
        wrong: "if for_good && !BUG {",
    },
    Mutant {
        bug: "plain-channels",
        file: "src/transport/subscriptions.rs",
        right: "if cluster.is_sharded() => Channels::Sharded",
        wrong: "if cluster.is_sharded() && !BUG => Channels::Sharded",
    },
    Mutant {
        bug: "late-request-costs-the-connection",
        file: "src/transport/connection/silence.rs",
        right: "now.saturating_duration_since(first) >= patience",
        wrong: "BUG || now.saturating_duration_since(first) >= patience",
    },
    Mutant {
        bug: "request-without-time-is-sent",
        file: "src/transport/connection/silence.rs",
        right: "too_late || left.is_zero()",
        wrong: "!BUG && too_late || left.is_zero()",
    },
];
