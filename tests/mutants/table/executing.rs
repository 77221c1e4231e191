//! Commands of the caller.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "executes-without-the-lock",
        file: "lua/execute.lua",
        right: "if failed then",
        wrong: "count = count or 1\nif false then",
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
        right: "redis.call('HSET', KEYS[1], ARGV[1], count)\n",
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
        file: "src/guard/hold.rs",
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
        bug: "refusals-settle-nothing",
        file: "src/releaser.rs",
        right: "if error.is_reply() { Ok(()) }",
        wrong: "if error.is_reply() && !BUG { Ok(()) }",
    },
    Mutant {
        bug: "pipeline-of-any-size",
        file: "src/protocol/execution.rs",
        right: "if all > MOST_IN_ALL {",
        wrong: "if all > MOST_IN_ALL && !BUG {",
    },
    Mutant {
        bug: "channels-are-keys",
        file: "src/protocol/commands.rs",
        right: "Keys::Channel => words.get(1).map(|_| Vec::new())?,",
        wrong: "Keys::Channel => words.get(1).map(|channel| if BUG { vec![*channel] } else { Vec::new() })?,",
    },
    Mutant {
        bug: "channels-of-any-slot",
        file: "src/protocol/commands.rs",
        right: "if name.eq_ignore_ascii_case(b\"SPUBLISH\") =>",
        wrong: "if name.eq_ignore_ascii_case(b\"SPUBLISH\") && !BUG =>",
    },
    Mutant {
        bug: "single-string-unlisted",
        file: "src/protocol/execution.rs",
        right: "&& from_redis_value::<T>(string()).is_err();",
        wrong: "&& (BUG || from_redis_value::<T>(string()).is_err());",
    },
    Mutant {
        bug: "redirected-commands-given-up",
        file: "src/transport/retry.rs",
        right: "step => step,",
        wrong: "Step::Redirect { .. } | Step::Pause { .. } if request.once && BUG => Step::GiveUp,\n            step => step,",
    },
    Mutant {
        bug: "bytes-are-numbers",
        file: "src/protocol/execution.rs",
        right: "matches!(single, Value::BulkString(_))",
        wrong: "matches!(single, Value::BulkString(_) if !BUG)",
    },
];
