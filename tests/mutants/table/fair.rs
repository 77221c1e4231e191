//! The fair lock.

use crate::Mutant;

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        bug: "fair-try-barges",
        file: "lua/fair_acquire.lua",
        right: "if waits or not holder and redis.call('EXISTS', KEYS[2]) == 1 then",
        wrong: "if waits then",
    },
    Mutant {
        bug: "fair-resent-age-counts",
        file: "lua/fair_acquire.lua",
        right: "redis.call('ZADD', KEYS[2], 'LT', ticket, ARGV[4])",
        wrong: "redis.call('ZADD', KEYS[2], ticket, ARGV[4])",
    },
    Mutant {
        bug: "fair-place-is-inherited",
        file: "lua/fair_acquire.lua",
        right: "      redis.call('ZADD', KEYS[2], ticket, ARGV[4])",
        wrong: "      redis.call('ZADD', KEYS[2], 'LT', ticket, ARGV[4])",
    },
    Mutant {
        bug: "fair-queue-is-eternal",
        file: "lua/fair_acquire.lua",
        right: "redis.call('PEXPIRE', KEYS[2], 3 * ARGV[6])",
        wrong: "redis.call('PTTL', KEYS[2])",
    },
    Mutant {
        bug: "fair-granted-keeps-its-place",
        file: "lua/fair_acquire.lua",
        right: "  redis.call('ZREM', KEYS[2], ARGV[4])\n",
        wrong: "",
    },
    Mutant {
        bug: "fair-release-tells-nobody",
        file: "lua/fair_release.lua",
        right: "  turn({KEYS[2], KEYS[3]}, {ARGV[4]",
        wrong: "  type({KEYS[2], KEYS[3]}, {ARGV[4]",
    },
    Mutant {
        bug: "fair-release-hides-from-plain",
        file: "lua/fair_release.lua",
        right: "redis.pcall(ARGV[5], ARGV[4], '0')\nreturn 2",
        wrong: "return 2",
    },
    Mutant {
        bug: "fair-dead-are-told",
        file: "lua/fair_turn.lua",
        right: "  if heard > 0 then",
        wrong: "  if left > 0 then",
    },
    Mutant {
        bug: "fair-grace-never-ends",
        file: "lua/fair_turn.lua",
        right: "    left = math.min(left, tonumber(ARGV[4]))\n",
        wrong: "",
    },
    Mutant {
        bug: "fair-second-is-untold",
        file: "lua/fair_turn.lua",
        right: "redis.pcall(ARGV[2], ARGV[1] .. ':' .. second, left + 1)",
        wrong: "redis.call('EXISTS', KEYS[1])",
    },
    Mutant {
        bug: "fair-drops-without-end",
        file: "lua/fair_turn.lua",
        right: "for _ = 1, 100 do",
        wrong: "for _ = 1, 100000 do",
    },
    Mutant {
        bug: "fair-leaver-keeps-its-turn",
        file: "lua/fair_leave.lua",
        right: "if redis.call('EXISTS', KEYS[1]) == 0 then",
        wrong: "if false then",
    },
    Mutant {
        bug: "fair-refresh-prolongs-a-turn",
        file: "lua/fair_refresh.lua",
        right: "if redis.call('HGET', KEYS[i + 2], 'told') ~= ARGV[1] then",
        wrong: "if true then",
    },
    Mutant {
        bug: "fair-force-is-silent",
        file: "lua/fair_force_unlock.lua",
        right: "  turn({KEYS[2], KEYS[3]}",
        wrong: "  type({KEYS[2], KEYS[3]}",
    },
    Mutant {
        bug: "fair-age-is-that-of-the-first-sending",
        file: "src/transport/request.rs",
        right: "if let Some(make) = &request.make {",
        wrong: "if let Some(make) = &request.make\n                && !(BUG && retry.repeated)\n            {",
    },
    Mutant {
        bug: "fair-place-outlives-its-waiters",
        file: "src/acquire.rs",
        right: "        if place {\n",
        wrong: "        if place && !BUG {\n",
    },
    Mutant {
        bug: "fair-next-head-is-unknown",
        file: "src/wait/queue/place.rs",
        right: "        now + WHILE_HELD\n",
        wrong: "        now + WHILE_HELD * if BUG { 3_000 } else { 1 }\n",
    },
    Mutant {
        bug: "fair-head-after-hand-off-is-unknown",
        file: "src/wait/queue/place.rs",
        right: "(!self.taken).then_some(now + WHILE_HELD)",
        wrong: "(!self.taken && !BUG).then_some(now + WHILE_HELD)",
    },
    Mutant {
        bug: "fair-hand-off-passes-over-others",
        file: "src/wait/queue/place.rs",
        right: "elsewhere.oldest.is_none_or(|oldest| since <= oldest)",
        wrong: "(BUG || elsewhere.oldest.is_none_or(|oldest| since <= oldest))",
    },
    Mutant {
        bug: "fair-hand-off-trusts-old-news",
        file: "src/wait/queue/place.rs",
        right: "since <= elsewhere.as_of && ",
        wrong: "(BUG || since <= elsewhere.as_of) && ",
    },
    Mutant {
        bug: "fair-late-news-count",
        file: "src/wait/queue/place.rs",
        right: "known.as_of <= elsewhere.as_of",
        wrong: "known.as_of <= elsewhere.as_of || BUG",
    },
    Mutant {
        bug: "fair-handed-keeps-its-place",
        file: "lua/fair_hand_off.lua",
        right: "    redis.call('ZREM', KEYS[2], ARGV[1])\n",
        wrong: "",
    },
    Mutant {
        bug: "fair-elsewhere-is-itself",
        file: "lua/fair_elsewhere.lua",
        right: "if first[1] == ARGV[1] then",
        wrong: "if false then",
    },
    Mutant {
        bug: "fair-retention-is-untold",
        file: "lua/fair_hand_off.lua",
        right: "redis.pcall(ARGV[8], ARGV[5] .. ':' .. client, after)",
        wrong: "redis.call('EXISTS', KEYS[1])",
    },
    Mutant {
        bug: "fair-retention-forgets-its-waiters",
        file: "src/releaser.rs",
        right: "let place = handoffs.place_in_queue(owner);\n    let answer = call.retain",
        wrong: "let place = if BUG { handoffs.no_place(owner.kind) } else { handoffs.place_in_queue(owner) };\n    let answer = call.retain",
    },
    Mutant {
        bug: "fair-places-are-not-refreshed",
        file: "src/wait/places.rs",
        right: "for head in self.queues.lock().heads_with_places() {",
        wrong: "for head in self.queues.lock().heads_with_places().into_iter().filter(|_| !BUG) {",
    },
    Mutant {
        bug: "fair-lost-place-is-unnoticed",
        file: "src/wait/places.rs",
        right: "if place != Refreshed::Kept {",
        wrong: "if place != Refreshed::Kept && !BUG {",
    },
    Mutant {
        bug: "fair-close-keeps-places",
        file: "src/engine.rs",
        right: "for owner in self.waiters.close() {",
        wrong: "for owner in self.waiters.close().into_iter().filter(|_| !BUG) {",
    },
];
