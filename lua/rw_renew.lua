-- rw_renew: prolong the leases of many readers and writers, each judged on its own.
--
-- KEYS[i]    the i-th lock, as rw_acquire has it
-- KEYS[i+1]  the marker of the reader; for a writer the lock once more
-- ARGV[1]    lease in milliseconds, at least 1
-- ARGV[a]    the owner that has the i-th lock as far as the client knows
--
-- Replies  an array in the order of the locks
--          +OK     still held by that owner; its lease is at least ARGV[1] from now
--          +GONE   not held by that owner any more, or no longer a lock
--          +TAKEN  held by others
--
-- Never creates a lock and never shortens a lease, as renew. A marker that is not there was taken
-- from outside, and is written again: without it a writer would take the reader for dead.
-- Why atomic: between "it is still mine" and the new lease another owner may
-- come in, whose lease this would change.

local answers, renewed, a = {}, redis.status_reply('OK'), 2
local function prolong(key)
  local left = redis.call('PTTL', key)
  if left ~= -2 and left < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', key, ARGV[1])
  end
  return left ~= -2
end
for i = 1, #KEYS, 2 do
  local failed = lost_field(KEYS[i], ARGV[a])
  if failed and failed.err then
    return failed
  elseif not failed then
    prolong(KEYS[i])
    if not prolong(KEYS[i + 1]) then
      redis.call('SET', KEYS[i + 1], 1, 'PX', ARGV[1])
    end
  end
  answers[a - 1] = failed or renewed
  a = a + 1
end
return answers
