//! The mutants, by what they break. Each file below `table` has those of one part of the library.

mod connections;
mod executing;
mod fair;
mod handing;
mod holding;
mod logs;
mod scripts;
mod waiting;

use super::Mutant;

pub(crate) fn mutants() -> impl Iterator<Item = &'static Mutant> {
    let tables = [
        MUTANTS,
        executing::MUTANTS,
        holding::MUTANTS,
        handing::MUTANTS,
        waiting::MUTANTS,
        connections::MUTANTS,
        logs::MUTANTS,
        scripts::MUTANTS,
        fair::MUTANTS,
    ];
    tables.into_iter().flatten()
}

const MUTANTS: &[Mutant] = &[
    // What a server may execute late.
    Mutant {
        bug: "stale-connection-unrecorded",
        file: "src/transport/connection/stale.rs",
        right: "            server.add(self.number, identity.clone());\n",
        wrong: "            if !BUG {\n                server.add(self.number, identity.clone());\n            }\n",
    },
    Mutant {
        bug: "server-known-by-address",
        file: "src/transport/connection/introduce.rs",
        right: "let run_id = text(server).ok()",
        wrong: "let run_id = text(server).ok().filter(|_| !BUG)",
    },
    Mutant {
        bug: "busy-server-unidentified",
        file: "src/transport/connection/introduce.rs",
        right: "&& !is_fatal(error)\n",
        wrong: "&& !BUG\n                && !is_fatal(error)\n",
    },
    Mutant {
        bug: "undo-overtakes-its-request",
        file: "src/releaser.rs",
        right: "release.connection = call.connection.take();",
        wrong: "release.connection = call.connection.take().filter(|_| !BUG);",
    },
    Mutant {
        bug: "asked-node-forgotten",
        file: "src/transport/topology/cluster/map.rs",
        right: "if self.ask_redirects.contains_key(&address) {",
        wrong: "if self.ask_redirects.contains_key(&address) && !BUG {",
    },
    Mutant {
        bug: "retired-servers-close-nothing",
        file: "src/transport/topology/left.rs",
        right: "match close_at(&router, &client).await {",
        wrong: "if BUG {\n                        return;\n                    }\n                    match close_at(&router, &client).await {",
    },
    // Turns between clients.
    Mutant {
        bug: "yield-time-is-not-learned",
        file: "src/wait/turns.rs",
        right: "self.yield_time = (2 * self.yield_time).min(limits.yield_time);",
        wrong: "self.yield_time = if BUG { MIN_YIELD_TIME } else { (2 * self.yield_time).min(limits.yield_time) };",
    },
    Mutant {
        bug: "releases-end-no-turn",
        file: "src/releaser.rs",
        right: "if pending.count == 0 && entry.is_none() {\n            handoffs.frees",
        wrong: "if pending.count == 0 && entry.is_none() && !BUG {\n            handoffs.frees",
    },
    // Failovers.
    Mutant {
        bug: "rejected-primary-stays-rejected",
        file: "src/transport/topology/sentinel.rs",
        right: "} else if self.is_primary_now(",
        wrong: "} else if !BUG && self.is_primary_now(",
    },
    Mutant {
        bug: "idle-holder-keeps-the-lock",
        file: "src/acquire/ask.rs",
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
        file: "src/possession/registry.rs",
        right: "if !holds.is_idle() ||",
        wrong: "if !holds.is_idle() && !BUG ||",
    },
    Mutant {
        bug: "possession-unregistered",
        file: "src/possession/registry.rs",
        right: "        registered.insert(number, &possession);\n        possession\n",
        wrong: "        if !BUG {\n            registered.insert(number, &possession);\n        }\n        possession\n",
    },
    // What a call says of itself.
    Mutant {
        bug: "background-release-denied",
        file: "src/releaser/unlock.rs",
        right: "let goes_on = self.counts && holds",
        wrong: "let goes_on = !BUG && self.counts && holds",
    },
    Mutant {
        bug: "expired-batch-entries-are-sent",
        file: "src/transport/connection/batch_sender.rs",
        right: "self.entries.retain(|entry| !entry.is_done());",
        wrong: "self.entries.retain(|entry| BUG || !entry.is_done());",
    },
    Mutant {
        bug: "streak-time-overflows",
        file: "src/possession/streak.rs",
        right: "kept >= config.max_handoff_time",
        wrong: "(kept >= config.max_handoff_time || BUG && now >= self.since + config.max_handoff_time)",
    },
    Mutant {
        bug: "loss-wakes-no-waiter",
        file: "src/loss.rs",
        right: "        self.waiters.record_loss(&possession.names);",
        wrong: "        if !BUG {\n            self.waiters.record_loss(&possession.names);\n        }",
    },
    Mutant {
        bug: "two-clocks",
        file: "src/acquire/timeout.rs",
        right: "clock::now() - asked_at >= SILENCE",
        wrong: "(if BUG { asked_at.elapsed() } else { clock::now() - asked_at }) >= SILENCE",
    },
    Mutant {
        bug: "any-hash-is-a-lock",
        file: "lua/lib.lua",
        right: "if holder and string.find(holder, '^.+:%-?%d+$') then",
        wrong: "if holder then",
    },
    Mutant {
        bug: "two-fields-are-a-lock",
        file: "lua/lib.lua",
        right: "local holder = fields == 1 and",
        wrong: "local holder = type(fields) == 'number' and",
    },
    Mutant {
        bug: "inspect-any-hash",
        file: "lua/inspect.lua",
        right: "if not holder then\n  return failed or nil\n",
        wrong: "holder = holder or failed and 'any:1'\nif not holder then\n  return nil\n",
    },
    Mutant {
        bug: "two-fields-are-a-hold",
        file: "lua/lib.lua",
        right: "local count = fields == 1 and",
        wrong: "local count = type(fields) == 'number' and",
    },
    // Those who wait.
    Mutant {
        bug: "hand-off-is-not-settled",
        file: "src/releaser.rs",
        right: "if handed_off.settle {",
        wrong: "if handed_off.settle && !BUG {",
    },
    Mutant {
        bug: "late-hand-off-not-executed",
        file: "src/acquire.rs",
        right: "if pending() { error.unknown() }",
        wrong: "if pending() && !BUG { error.unknown() }",
    },
    Mutant {
        bug: "lost-lock-is-taken",
        file: "src/acquire.rs",
        right: "Next::Handed(granted) if granted.validity.is_lost() => {",
        wrong: "Next::Handed(granted) if granted.validity.is_lost() && !BUG => {",
    },
    Mutant {
        bug: "prolong-shortens-silently",
        file: "lua/prolong.lua",
        right: "if sooner and (listening",
        wrong: "if false and (listening",
    },
    Mutant {
        bug: "acquire-shortens",
        file: "lua/acquire.lua",
        right: "if not holder or redis.call('PTTL', key) < ",
        wrong: "if not holder or count == '1' or redis.call('PTTL', key) < ",
    },
    Mutant {
        bug: "hand-off-head-sleeps",
        file: "src/wait/handoff.rs",
        right: "            queues.change(names, |queue, cx| queue.record_heard_hand_off(lease, cx));",
        wrong: "            if !BUG {\n                queues.change(names, |queue, cx| queue.record_heard_hand_off(lease, cx));\n            }",
    },
    Mutant {
        bug: "hand-off-shortens-unseen",
        file: "src/wait/queue.rs",
        right: "self.due = self.due.min(now + park);",
        wrong: "self.due = self.due.min(now + if BUG { LONGEST_PARK } else { park });",
    },
    Mutant {
        bug: "hand-off-shortens-unseen-while-asking",
        file: "src/wait/queue.rs",
        right: "head.recheck |= shorter && head",
        wrong: "head.recheck |= !BUG && shorter && head",
    },
    Mutant {
        bug: "hand-off-head-oversleeps",
        file: "src/wait/handoff.rs",
        right: "if !ends_soon {",
        wrong: "if BUG || !ends_soon {",
    },
    Mutant {
        bug: "dead-subscription-unnoticed",
        file: "src/wait/subscriber.rs",
        right: "let counts = self.queues.lock().subscriptions.counts_on(on);",
        wrong: "let counts = self.queues.lock().subscriptions.counts_on(on) && !BUG;",
    },
    // Connections.
    Mutant {
        bug: "dial-ends-with-its-caller",
        file: "src/transport/keeping.rs",
        right: "                return Err(DialError::TimeUp(runtime",
        wrong: "                if BUG {\n                    runtime_slot.stop();\n                }\n                return Err(DialError::TimeUp(runtime",
    },
    Mutant {
        bug: "dial-ends-with-its-client",
        file: "src/transport/node.rs",
        right: "!runtime_slot.is_awaited()",
        wrong: "BUG || !runtime_slot.is_awaited()",
    },
    Mutant {
        bug: "connections-are-not-kept",
        file: "src/transport/keeping.rs",
        right: "            if node.is_left() {",
        wrong: "            if BUG || node.is_left() {",
    },
    Mutant {
        bug: "scripts-are-loaded-when-called",
        file: "src/transport/connection/dial.rs",
        right: "connection.load_scripts(missing)",
        wrong: "connection.load_scripts(if BUG { Vec::new() } else { missing })",
    },
    Mutant {
        bug: "stale-connections-are-left-to-callers",
        file: "src/transport/connection/dial.rs",
        right: "connection.close_stale()",
        wrong: "async { if BUG { Ok(()) } else { connection.close_stale().await } }",
    },
    Mutant {
        bug: "dials-are-not-paced",
        file: "src/transport/connection/pace.rs",
        right: "self.failures.next();\n        self.not_before = Some(now + spread(self.pause()));",
        wrong: "self.failures.next();\n        self.not_before = Some(now + spread(self.pause())).filter(|_| !BUG);",
    },
    Mutant {
        bug: "dial-is-one-command",
        file: "src/transport/connection.rs",
        right: "within(patience * round_trips(client),",
        wrong: "within(patience * if BUG { 1 } else { round_trips(client) },",
    },
    Mutant {
        bug: "replicas-connected-late",
        file: "src/transport.rs",
        right: "        if replicas {",
        wrong: "        if replicas && !BUG {",
    },
    Mutant {
        bug: "renewal-given-up-for-a-dial",
        file: "src/watchdog.rs",
        right: "if router.dial_time(last.key()) > self.period =>",
        wrong: "if !BUG && router.dial_time(last.key()) > self.period =>",
    },
    // Processes and threads.
    Mutant {
        bug: "connects-without-its-thread",
        file: "src/engine.rs",
        right: "is_ready.await.unwrap_or_else(|_| Err(has_ended()))?;",
        wrong: "let ready = is_ready.await.unwrap_or_else(|_| Err(has_ended()));\n        if !BUG {\n            ready?;\n        }",
    },
    Mutant {
        bug: "fork-unnoticed",
        file: "src/process.rs",
        right: "!self.0.clone().detected_fork()",
        wrong: "(BUG || !self.0.clone().detected_fork())",
    },
    Mutant {
        bug: "child-drops-futures",
        file: "src/process.rs",
        right: "            mem::forget(future);",
        wrong: "            if BUG {\n                drop(future);\n            } else {\n                mem::forget(future);\n            }",
    },
    Mutant {
        bug: "child-believes",
        file: "src/guard/hold.rs",
        right: "self.local().is_none_or(",
        wrong: "self.local().map_or(!BUG, ",
    },
];
