//! Commands of the caller.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "executes-without-the-lock",
        file: "lua/execute.lua",
        right: "if not held then",
        wrong: "held = held or 1\nif false then",
    },
    Mutant {
        bug: "executes-behind-an-error",
        file: "lua/execute.lua",
        right: "reply.err then\n    break",
        wrong: "reply.err then",
    },
    Mutant {
        bug: "executes-half",
        file: "lua/execute.lua",
        right: "redis.call('HSET', KEYS[1], ARGV[1], held)\n",
        wrong: "",
    },
    Mutant {
        bug: "executes-twice",
        file: "src/transport/retry.rs",
        right: "Step::Reconnect if request.once =>",
        wrong: "Step::Reconnect if request.once && !BUG =>",
    },
    Mutant {
        bug: "dropped-execution-forgotten",
        file: "src/guard/execute.rs",
        right: "session.unanswered = true;",
        wrong: "session.unanswered = !BUG;",
    },
    Mutant {
        bug: "unanswered-is-settled",
        file: "src/releaser.rs",
        right: "if !pending && !release.unanswered {",
        wrong: "if !pending && (BUG || !release.unanswered) {",
    },
    Mutant {
        bug: "handed-off-beside-an-execution",
        file: "src/releaser.rs",
        right: "release.connection.is_none() && !release.unanswered;",
        wrong: "release.connection.is_none() && (BUG || !release.unanswered);",
    },
    Mutant {
        bug: "executes-for-an-earlier-hold",
        file: "src/guard.rs",
        right: "acquire_permit(clock::now()).await?;\n        if granted.validity.is_lost() {",
        wrong: "acquire_permit(clock::now()).await?;\n        if granted.validity.is_lost() && !BUG {",
    },
    Mutant {
        bug: "executes-across-slots",
        file: "src/protocol/execution.rs",
        right: "is_some_and(|slot| slot != slot::of(key))",
        wrong: "is_some_and(|slot| slot != slot::of(key) && !BUG)",
    },
    Mutant {
        bug: "commands-write-the-lock",
        file: "src/protocol/execution.rs",
        right: "if key == lock.as_bytes() {",
        wrong: "if key == lock.as_bytes() && !BUG {",
    },
    Mutant {
        bug: "bytes-are-numbers",
        file: "src/protocol/execution.rs",
        right: "matches!(single, Value::BulkString(_))",
        wrong: "matches!(single, Value::BulkString(_) if !BUG)",
    },
];
