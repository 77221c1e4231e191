//! Bugs that are put in on purpose, to see that tests, fault cases and hammer go red.
//!
//! They are compiled in with `--cfg redlatch_seeded` only; then the environment variable
//! `REDLATCH_BUG` names the one that is on. `tests/seeded/run` tries them all.

/// Whether that bug is on. Never, in a normal build.
#[cfg(not(redlatch_seeded))]
macro_rules! seeded {
    ($bug:literal) => {
        false
    };
}

#[cfg(redlatch_seeded)]
macro_rules! seeded {
    ($bug:literal) => {
        crate::seeded::is_on($bug)
    };
}

#[cfg(redlatch_seeded)]
pub(crate) fn is_on(bug: &str) -> bool {
    use std::sync::LazyLock;
    static ON: LazyLock<String> =
        LazyLock::new(|| std::env::var("REDLATCH_BUG").unwrap_or_default());
    *ON == bug
}

/// A script with the bug that is on, if that one is in a script.
#[cfg(redlatch_seeded)]
pub(crate) fn script(text: &str) -> String {
    let on = SCRIPTS.iter().find(|(bug, right, _)| is_on(bug) && text.contains(right));
    on.map_or_else(|| text.to_owned(), |(_, right, wrong)| text.replace(right, wrong))
}

/// The bugs in scripts: what is right there, and what stands in its place.
#[cfg(any(test, redlatch_seeded))]
const SCRIPTS: &[(&str, &str, &str)] = &[
    ("acquire-not-exclusive", "if holder and holder ~= ARGV[1] then", "if false then"),
    (
        "acquire-not-idempotent",
        "redis.call('HSET', KEYS[1], ARGV[1], '1')",
        "redis.call('HINCRBY', KEYS[1], ARGV[1], 1)",
    ),
    (
        "acquire-adds-nested",
        "redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])",
        "redis.call('HINCRBY', KEYS[1], ARGV[1], 1)",
    ),
    (
        "acquire-nests-on-nothing",
        "return redis.status_reply('GONE')",
        "redis.call('HSET', KEYS[1], ARGV[1], 0)",
    ),
    ("acquire-eternal", "redis.pcall('PEXPIRE', KEYS[1], ARGV[2])", "1"),
    (
        "acquire-nested-shortens",
        "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then\n    redis.call('PEXPIRE', KEYS[1], ARGV[2])",
        "if true then\n    redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    ),
    (
        "token-not-grown",
        "redis.call('INCR', KEYS[2]) < now",
        "redis.call('SETNX', KEYS[2], string.format('%.0f', now)) == 2",
    ),
    (
        "token-after-lock",
        "if KEYS[2] then\n  local time",
        "redis.call('HSET', KEYS[1], ARGV[1], 1)\nif KEYS[2] then\n  local time",
    ),
    (
        "token-for-a-refusal",
        "if holder and holder ~= ARGV[1] then",
        "if KEYS[2] then redis.call('INCR', KEYS[2]) end\nif holder and holder ~= ARGV[1] then",
    ),
    ("token-forgotten", "redis.call('INCR', KEYS[2]) < now", "redis.call('INCR', KEYS[2]) < 0"),
    (
        "release-foreign",
        "local held = fields == 1 and redis.call('HGET', KEYS[1], ARGV[1])\nif",
        "local held = fields == 1 and '1'\nif",
    ),
    (
        "release-silent",
        "redis.call('DEL', KEYS[1])\nlocal told = redis.pcall(ARGV[5], ARGV[4], '0')",
        "redis.call('DEL', KEYS[1])\nlocal told = redis.call('EXISTS', ARGV[4])",
    ),
    (
        "release-needs-publish",
        "redis.call('DEL', KEYS[1])\nlocal told = redis.pcall(ARGV[5], ARGV[4], '0')",
        "redis.call('DEL', KEYS[1])\nlocal told = redis.call(ARGV[5], ARGV[4], '0')",
    ),
    (
        "release-needs-memory",
        "redis.call('DEL', KEYS[1])\nlocal told = redis.pcall(ARGV[5], ARGV[4]",
        "redis.call('HSET', KEYS[1], ARGV[1], 0)\nredis.call('DEL', KEYS[1])\nlocal told = redis.pcall(ARGV[5], ARGV[4]",
    ),
    (
        "renew-creates",
        "local held = fields == 1 and redis.call('HGET', key, ARGV[i + 1])",
        "local held = redis.call('HGET', key, ARGV[i + 1]) or fields == 0 and redis.call('HSET', key, ARGV[i + 1], 1) == 1",
    ),
    (
        "renew-foreign",
        "local held = fields == 1 and redis.call('HGET', key, ARGV[i + 1])",
        "local held = fields == 1",
    ),
    (
        "renew-needs-memory",
        "if redis.call('PTTL', key) < tonumber(ARGV[1])",
        "redis.call('HINCRBY', key, ARGV[i + 1], 0)\n    if redis.call('PTTL', key) < tonumber(ARGV[1])",
    ),
    ("renew-stops-at-a-bad-key", "redis.pcall('HLEN', key", "redis.call('HLEN', key"),
    ("shared-call-stops-at-a-bad-key", "pcall(run, keys, args)", "true, run(keys, args)"),
    ("shared-call-keeps-a-token-key", "keys[1], keys[2] = KEYS[k], nil", "keys[1] = KEYS[k]"),
    ("hand-over-keeps-the-old", "redis.call('HDEL', KEYS[1], has)", "redis.call('HLEN', KEYS[1])"),
    ("hand-over-old-lease", "redis.call('PEXPIRE', KEYS[1], ARGV[2])\n  end\nend\n", "end\nend\n"),
    (
        "hand-over-needs-memory",
        "redis.call('PEXPIRE', KEYS[1], ARGV[2])\n  end\nend\n",
        "redis.call('HSET', KEYS[1], owner, 1)\nredis.call('PEXPIRE', KEYS[1], ARGV[2])\nend\nend\n",
    ),
    (
        "hand-over-creates",
        "if not has then\n  return 0\nend\nlocal told",
        "if not has then\n  redis.call('HSET', KEYS[1], ARGV[#ARGV], 1)\n  redis.call('PEXPIRE', KEYS[1], ARGV[2])\nend\nlocal told",
    ),
    ("hand-over-not-resumable", "elseif not has and i > 5 and", "elseif not has and i == 6 and"),
    ("hand-over-keeps-the-token", "if now > redis.call('INCR', KEYS[2]) then", "if false then"),
    ("force-unlock-silent", "redis.pcall(ARGV[2], ARGV[1], '0')", "redis.call('EXISTS', ARGV[1])"),
    (
        "force-unlock-anything",
        "local fields = redis.call('HLEN', KEYS[1])\nif fields == 0 then\n  return 0\nend\nlocal holder = redis.call('HRANDFIELD', KEYS[1])",
        "local fields = redis.call('EXISTS', KEYS[1])\nif fields == 0 then\n  return 0\nend\nlocal holder = 'any:1'",
    ),
];

#[cfg(test)]
mod tests {
    use super::SCRIPTS;

    #[test]
    fn every_bug_in_a_script_has_its_place_in_exactly_one() {
        let scripts = [
            include_str!("../lua/acquire.lua"),
            include_str!("../lua/release.lua"),
            include_str!("../lua/renew.lua"),
            include_str!("../lua/hand_over.lua"),
            include_str!("../lua/force_unlock.lua"),
            include_str!("../lua/inspect.lua"),
            include_str!("../lua/touch.lua"),
            include_str!("../lua/together.lua"),
        ];
        for (bug, right, wrong) in SCRIPTS {
            let places: usize = scripts.iter().map(|script| script.matches(right).count()).sum();
            assert_eq!(places, 1, "{bug}: {right}");
            assert_ne!(right, wrong);
        }
    }
}
