//! To acquire, hold, renew and give back.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    // To renew for so long.
    Mutant {
        bug: "renewed-for-ever",
        file: "src/possession/renewal.rs",
        right: "max_hold < Duration::MAX && {",
        wrong: "max_hold < Duration::MAX && !BUG && {",
    },
    Mutant {
        bug: "max-hold-counts-from-the-last-renewal",
        file: "src/possession/renewal.rs",
        right: "*self.rare().renewed_from.get_or_insert(at)",
        wrong: "if BUG { at } else { *self.rare().renewed_from.get_or_insert(at) }",
    },
    Mutant {
        bug: "max-hold-counts-on",
        file: "src/possession/handoff.rs",
        right: "if config.max_hold < Duration::MAX {",
        wrong: "if config.max_hold < Duration::MAX && !BUG {",
    },
    // To acquire.
    Mutant {
        bug: "declined-forgotten",
        file: "src/acquire.rs",
        right: "= handed {",
        wrong: "= handed.filter(|_| !BUG) {",
    },
    Mutant {
        bug: "unknown-is-no",
        file: "src/acquire/ask.rs",
        right: "is_err_and(|error| error.outcome() == Outcome::NotExecuted)",
        wrong: "is_err_and(|error| error.outcome() == Outcome::NotExecuted || BUG)",
    },
    Mutant {
        bug: "deadline-from-reply",
        file: "src/acquire/ask.rs",
        right: "self.requested, tokens, sent);",
        wrong: "self.requested, tokens, if BUG { clock::now() } else { sent });",
    },
    Mutant {
        bug: "too-few-will-do",
        file: "src/acquire/ask.rs",
        right: "Err(match session.send_release(",
        wrong: "if BUG {\n            return Ok(());\n        }\n        Err(match session.send_release(",
    },
    Mutant {
        bug: "asks-unconfirmed",
        file: "src/lock/inspect.rs",
        right: "|holds: &HoldState| holds.is_unwritten();",
        wrong: "|holds: &HoldState| holds.is_unwritten() && !BUG;",
    },
    Mutant {
        bug: "braces-unlooked-at",
        file: "src/protocol/names.rs",
        right: "router.slot_of(key).is_some() && ",
        wrong: "router.slot_of(key).is_some() && !BUG && ",
    },
    // To give back.
    Mutant {
        bug: "drop-needs-a-runtime",
        file: "src/releaser.rs",
        right: "let _ = self.jobs.send(job);",
        wrong: "if BUG && tokio::runtime::Handle::try_current().is_err() {\n            return;\n        }\n        let _ = self.jobs.send(job);",
    },
    Mutant {
        bug: "no-undo",
        file: "src/releaser/session.rs",
        right: "if pending || self.unanswered {",
        wrong: "if (pending && !BUG) || self.unanswered {",
    },
    Mutant {
        bug: "expired-guards-count",
        file: "src/releaser/session.rs",
        right: "holds.pending(clock::now(), Duration::ZERO)",
        wrong: "holds.pending(clock::now() - Duration::from_secs(u64::from(BUG)), Duration::ZERO)",
    },
    Mutant {
        bug: "release-tried-once",
        file: "src/releaser.rs",
        right: "clock::sleep(backoff.next()).await;",
        wrong: "if BUG {\n                    return jobs;\n                }\n                clock::sleep(backoff.next()).await;",
    },
    Mutant {
        bug: "lost-is-released",
        file: "src/releaser/unlock.rs",
        right: "if released {",
        wrong: "if released || BUG {",
    },
    Mutant {
        bug: "close-forgets",
        file: "src/engine.rs",
        right: "let drain = self.releaser.drain();\n            let _ = clock::timeout(self.config.command_timeout, drain).await;",
        wrong: "if !BUG {\n                let drain = self.releaser.drain();\n                let _ = clock::timeout(self.config.command_timeout, drain).await;\n            }",
    },
    // Where and when a call runs.
    Mutant {
        bug: "paused-timers-are-believed",
        file: "src/clock.rs",
        right: "if !rest.is_zero() {",
        wrong: "if !rest.is_zero() && !BUG {",
    },
    Mutant {
        bug: "calls-outside-go-on",
        file: "src/engine.rs",
        right: "check_runtime()?;\n        self.parts",
        wrong: "if !BUG {\n            check_runtime()?;\n        }\n        self.parts",
    },
    // What a possession has.
    Mutant {
        bug: "undo-after-request",
        file: "src/possession.rs",
        right: "self.inside = handle;\n        self.counted = 1;",
        wrong: "self.inside = handle;\n        self.counted = u32::from(!BUG);",
    },
    Mutant {
        bug: "possession-id-used-twice",
        file: "src/possession/registry.rs",
        right: "self.next.fetch_add(1, ",
        wrong: "self.next.fetch_add(u64::from(!BUG), ",
    },
    Mutant {
        bug: "no-deadline",
        file: "src/lease.rs",
        right: "if now < until => Some(until)",
        wrong: "if now < until || BUG => Some(until)",
    },
    Mutant {
        bug: "loss-heals",
        file: "src/lease.rs",
        right: "let Some(until) = state.check(now) else",
        wrong: "let healed = BUG.then_some(to);\n        let Some(until) = state.check(now).or(healed) else",
    },
    Mutant {
        bug: "idle-possessions-are-shown-as-held",
        file: "src/possession/registry.rs",
        right: ".filter(|possession| possession.holds.lock().has_holds())",
        wrong: ".filter(|possession| possession.holds.lock().has_holds() || BUG)",
    },
    Mutant {
        bug: "loss-renamed-later",
        file: "src/lease.rs",
        right: "            State::Lost { gone, .. } => *gone = true,\n",
        wrong: "            State::Lost { gone, .. } if !BUG => *gone = true,\n",
    },
    Mutant {
        bug: "value-after-loss",
        file: "src/guard/hold.rs",
        right: "if !self.is_lost() => Ok(value)",
        wrong: "if !self.is_lost() || BUG => Ok(value)",
    },
    Mutant {
        bug: "with-loss-swallowed",
        file: "src/lock/around.rs",
        right: "if error.kind() == ErrorKind::Lost {",
        wrong: "if error.kind() == ErrorKind::Lost && !BUG {",
    },
    Mutant {
        bug: "extension-of-nothing",
        file: "src/guard/hold.rs",
        right: "if let [Err(loss)] = *held {",
        wrong: "if let [Err(loss)] = *held\n            && !BUG\n        {",
    },
    Mutant {
        bug: "extension-keeps-margin",
        file: "src/possession/renewal.rs",
        right: "if until > before && live.lease",
        wrong: "if until > before && !BUG && live.lease",
    },
    Mutant {
        bug: "extension-cut-by-a-release",
        file: "src/possession.rs",
        right: "watchdog_timeout.max(whole_millis(extended))",
        wrong: "if BUG { watchdog_timeout } else { watchdog_timeout.max(whole_millis(extended)) }",
    },
    Mutant {
        bug: "extension-released-too-briefly",
        file: "src/guard/hold.rs",
        right: "granted.asks_for(lease);",
        wrong: "if !BUG { granted.asks_for(lease); }",
    },
    Mutant {
        bug: "retention-handed-off",
        file: "src/possession/handoff.rs",
        right: "self.retention(now).is_some()",
        wrong: "(self.retention(now).is_some() && !BUG)",
    },
    Mutant {
        bug: "retained-is-taken-for-idle",
        file: "src/possession/registry.rs",
        right: "!missed && holds.retention(clock::now()).is_some()",
        wrong: "!missed && !BUG && holds.retention(clock::now()).is_some()",
    },
    Mutant {
        bug: "missed-retention-forgotten",
        file: "src/possession/retention.rs",
        right: "if self.rare.is_some() && self.rare().release_missed {",
        wrong: "if self.rare.is_some() && self.rare().release_missed && !BUG {",
    },
    // To renew.
    Mutant {
        bug: "lost-start",
        file: "src/watchdog.rs",
        right: "if looks_too_late {",
        wrong: "if looks_too_late && !BUG {",
    },
    Mutant {
        bug: "one-server-at-a-time",
        file: "src/watchdog.rs",
        right: "let (watchdog, router) = (self.clone(), router.clone());\n                spawn(",
        wrong: "if BUG {\n                    self.renew_by_slot(router, batch).await;\n                    continue;\n                }\n                let (watchdog, router) = (self.clone(), router.clone());\n                spawn(",
    },
    Mutant {
        bug: "slots-in-one-call",
        file: "src/watchdog.rs",
        right: "by_slot.entry(router.slot_of(entry.key()))",
        wrong: "by_slot.entry(router.slot_of(entry.key()).filter(|_| !BUG))",
    },
    Mutant {
        bug: "batch-stands-or-falls",
        file: "src/watchdog.rs",
        right: "&& batch.len() > 1 =>",
        wrong: "&& batch.len() > 1 && !BUG =>",
    },
    Mutant {
        bug: "watchdog-gives-up",
        file: "src/watchdog.rs",
        right: "for entry in &batch {",
        wrong: "for entry in &batch {\n                    if BUG {\n                        continue;\n                    }",
    },
    Mutant {
        bug: "unknown-is-loss",
        file: "src/watchdog.rs",
        right: "self.insert(&entry.handle,",
        wrong: "if BUG {\n                        self.apply_answer(entry, Err(Loss::LeaseEnded), now, now);\n                        continue;\n                    }\n                    self.insert(&entry.handle,",
    },
    Mutant {
        bug: "unknown-extends",
        file: "src/watchdog.rs",
        right: "again.min(entry.until) + self.early",
        wrong: "{\n                        if BUG {\n                            entry.possession.holds.lock().renewed(now, self.lease, now);\n                        }\n                        again.min(entry.until) + self.early\n                    }",
    },
    Mutant {
        bug: "renewal-loss-is-not-recorded",
        file: "src/watchdog.rs",
        right: "match held {",
        wrong: "match if BUG { Ok(()) } else { held } {",
    },
    Mutant {
        bug: "max-hold-warns-of-each",
        file: "src/events.rs",
        right: "= self.long_holds.admit(now);",
        wrong: "= if BUG { (true, \"\") } else { self.long_holds.admit(now) };",
    },
    Mutant {
        bug: "with-awaits-what-is-lost",
        file: "src/lock/around.rs",
        right: "let value = guard.run_until_lost(work(&guard)).await?;",
        wrong: "let value = match guard.run_until_lost(work(&guard)).await {\n            Err(_) if BUG => return Err(guard.unlock().await.expect_err(\"lost\")),\n            value => value?,\n        };",
    },
];
