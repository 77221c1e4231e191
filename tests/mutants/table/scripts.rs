//! Bugs in the scripts.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "acquire-not-exclusive",
        file: "lua/acquire.lua",
        right: "if holder and holder ~= ARGV[1] then",
        wrong: "if false then",
    },
    Mutant {
        bug: "acquire-not-idempotent",
        file: "lua/acquire.lua",
        right: "redis.call('HSET', KEYS[1], ARGV[1], '1')",
        wrong: "redis.call('HINCRBY', KEYS[1], ARGV[1], 1)",
    },
    Mutant {
        bug: "acquire-adds-nested",
        file: "lua/acquire.lua",
        right: "redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])",
        wrong: "redis.call('HINCRBY', KEYS[1], ARGV[1], 1)",
    },
    Mutant {
        bug: "acquire-nests-on-nothing",
        file: "lua/acquire.lua",
        right: "return redis.status_reply('GONE')",
        wrong: "redis.call('HSET', KEYS[1], ARGV[1], 0)",
    },
    Mutant {
        bug: "acquire-eternal",
        file: "lua/acquire.lua",
        right: "redis.pcall('PEXPIRE', KEYS[1], ARGV[2])",
        wrong: "1",
    },
    Mutant {
        bug: "acquire-nested-shortens",
        file: "lua/acquire.lua",
        right: "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then\n    redis.call('PEXPIRE', KEYS[1], ARGV[2])",
        wrong: "if true then\n    redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    },
    Mutant {
        bug: "token-not-grown",
        file: "lua/acquire.lua",
        right: "redis.call('INCR', KEYS[2]) < now",
        wrong: "redis.call('SETNX', KEYS[2], string.format('%.0f', now)) == 2",
    },
    Mutant {
        bug: "token-after-lock",
        file: "lua/acquire.lua",
        right: "if KEYS[2] then\n  local time",
        wrong: "redis.call('HSET', KEYS[1], ARGV[1], 1)\nif KEYS[2] then\n  local time",
    },
    Mutant {
        bug: "token-for-a-refusal",
        file: "lua/acquire.lua",
        right: "if holder and holder ~= ARGV[1] then",
        wrong: "if KEYS[2] then redis.call('INCR', KEYS[2]) end\nif holder and holder ~= ARGV[1] then",
    },
    Mutant {
        bug: "token-forgotten",
        file: "lua/acquire.lua",
        right: "redis.call('INCR', KEYS[2]) < now",
        wrong: "redis.call('INCR', KEYS[2]) < 0",
    },
    Mutant {
        bug: "release-foreign",
        file: "lua/release.lua",
        right: "local held = fields == 1 and redis.call('HGET', KEYS[1], ARGV[1])\nif",
        wrong: "local held = fields == 1 and '1'\nif",
    },
    Mutant {
        bug: "release-silent",
        file: "lua/release.lua",
        right: "redis.call('DEL', KEYS[1])\nlocal receivers = redis.pcall(ARGV[5], ARGV[4], '0')",
        wrong: "redis.call('DEL', KEYS[1])\nlocal receivers = redis.call('EXISTS', ARGV[4])",
    },
    Mutant {
        bug: "release-needs-publish",
        file: "lua/release.lua",
        right: "redis.call('DEL', KEYS[1])\nlocal receivers = redis.pcall(ARGV[5], ARGV[4], '0')",
        wrong: "redis.call('DEL', KEYS[1])\nlocal receivers = redis.call(ARGV[5], ARGV[4], '0')",
    },
    Mutant {
        bug: "release-needs-memory",
        file: "lua/release.lua",
        right: "redis.call('DEL', KEYS[1])\nlocal receivers = redis.pcall(ARGV[5], ARGV[4]",
        wrong: "redis.call('HSET', KEYS[1], ARGV[1], 0)\nredis.call('DEL', KEYS[1])\nlocal receivers = redis.pcall(ARGV[5], ARGV[4]",
    },
    Mutant {
        bug: "renew-creates",
        file: "lua/renew.lua",
        right: "local held = fields == 1 and redis.call('HGET', key, ARGV[i + 1])",
        wrong: "local held = redis.call('HGET', key, ARGV[i + 1]) or fields == 0 and redis.call('HSET', key, ARGV[i + 1], 1) == 1",
    },
    Mutant {
        bug: "renew-foreign",
        file: "lua/renew.lua",
        right: "local held = fields == 1 and redis.call('HGET', key, ARGV[i + 1])",
        wrong: "local held = fields == 1",
    },
    Mutant {
        bug: "renew-needs-memory",
        file: "lua/renew.lua",
        right: "if redis.call('PTTL', key) < tonumber(ARGV[1])",
        wrong: "redis.call('HINCRBY', key, ARGV[i + 1], 0)\n    if redis.call('PTTL', key) < tonumber(ARGV[1])",
    },
    Mutant {
        bug: "renew-stops-at-a-bad-key",
        file: "lua/renew.lua",
        right: "redis.pcall('HLEN', key",
        wrong: "redis.call('HLEN', key",
    },
    Mutant {
        bug: "shared-call-stops-at-a-bad-key",
        file: "lua/batch.lua",
        right: "pcall(run, keys, args)",
        wrong: "true, run(keys, args)",
    },
    Mutant {
        bug: "shared-call-keeps-a-token-key",
        file: "lua/batch.lua",
        right: "keys[1], keys[2] = KEYS[k], nil",
        wrong: "keys[1] = KEYS[k]",
    },
    Mutant {
        bug: "hand-off-keeps-the-old",
        file: "lua/hand_off.lua",
        right: "redis.call('HDEL', KEYS[1], holder)",
        wrong: "redis.call('HLEN', KEYS[1])",
    },
    Mutant {
        bug: "hand-off-old-lease",
        file: "lua/hand_off.lua",
        right: "redis.call('PEXPIRE', KEYS[1], ARGV[2])\nif moves",
        wrong: "if moves",
    },
    Mutant {
        bug: "hand-off-needs-memory",
        file: "lua/hand_off.lua",
        right: "redis.call('PEXPIRE', KEYS[1], ARGV[2])\nif moves",
        wrong: "redis.call('HSET', KEYS[1], last, '1')\nredis.call('PEXPIRE', KEYS[1], ARGV[2])\nif moves",
    },
    Mutant {
        bug: "hand-off-creates",
        file: "lua/hand_off.lua",
        right: "if not found then\n  return 0",
        wrong: "if not found then\n  redis.call('HSET', KEYS[1], last, 1)\n  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n  return {-1, 0}",
    },
    Mutant {
        bug: "hand-off-not-resumable",
        file: "lua/hand_off.lua",
        right: "found = found or last == holder",
        wrong: "found = found or i == 6 and last == holder",
    },
    Mutant {
        bug: "hand-off-keeps-the-token",
        file: "lua/hand_off.lua",
        right: "if now > redis.call('INCR', KEYS[2]) then",
        wrong: "if false then",
    },
    Mutant {
        bug: "force-unlock-silent",
        file: "lua/force_unlock.lua",
        right: "redis.pcall(ARGV[2], ARGV[1], '0')",
        wrong: "redis.call('EXISTS', ARGV[1])",
    },
    Mutant {
        bug: "force-unlock-anything",
        file: "lua/force_unlock.lua",
        right: "local fields = redis.call('HLEN', KEYS[1])\nif fields == 0 then\n  return 0\nend\nlocal holder = redis.call('HRANDFIELD', KEYS[1])",
        wrong: "local fields = redis.call('EXISTS', KEYS[1])\nif fields == 0 then\n  return 0\nend\nlocal holder = 'any:1'",
    },
];
