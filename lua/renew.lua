-- renew: prolong the leases of many locks, each judged on its own.
--
-- KEYS[i]    the i-th lock
-- ARGV[1]    lease in milliseconds, at least 1
-- ARGV[i+1]  the owner who is believed to hold the i-th lock
--
-- Replies  an array in the order of the keys
--          1  still held by that owner; its lease is at least ARGV[1] from now
--          0  not held by that owner any more, or no longer a lock
--
-- Never creates a key and never shortens a lease: a longer one was promised to
-- somebody. A lock whose TTL was taken away (PERSIST) gets one again.
-- Calls are protected so that one key of another type does not leave the rest
-- of the batch unrenewed.
-- Why atomic: between "it is still mine" and the new lease another owner may
-- come in, whose lease this would change.

local renewed = {}
for i, key in ipairs(KEYS) do
  if redis.pcall('HEXISTS', key, ARGV[i + 1]) == 1 then
    if redis.call('PTTL', key) < tonumber(ARGV[1]) then
      redis.call('PEXPIRE', key, ARGV[1])
    end
    renewed[i] = 1
  else
    renewed[i] = 0
  end
end
return renewed
