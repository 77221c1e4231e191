-- renew: prolong the leases of many locks, each judged on its own.
--
-- KEYS[i]    the i-th lock
-- ARGV[1]    lease in milliseconds, at least 1
-- ARGV[i+1]  the owner that holds the i-th lock as far as the client knows
--
-- Replies  an array in the order of the keys
--          +OK     still held by that owner; its lease is at least ARGV[1] from now
--          +GONE   not held by that owner any more, or no longer a lock
--          +TAKEN  held by another owner
--
-- If the user may not read one of them, the reply is that error; the locks before
-- it have been prolonged.
-- Never creates a key and never shortens a lease: a longer one was promised to
-- its owner. A lock whose TTL was taken away (PERSIST) gets one again.
-- A key of another type does not leave the rest of the batch unrenewed.
-- Why atomic: between "it is still mine" and the new lease another owner may
-- come in, whose lease this would change.

local answers, renewed = {}, redis.status_reply('OK')
for i, key in ipairs(KEYS) do
  local failed = lost(key, ARGV[i + 1])
  if failed and failed.err then
    return failed
  elseif not failed and redis.call('PTTL', key) < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', key, ARGV[1])
  end
  answers[i] = failed or renewed
end
return answers
