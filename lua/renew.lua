-- renew: prolong the leases of many locks, each judged on its own.
--
-- KEYS[i]    the i-th lock
-- ARGV[1]    lease in milliseconds, at least 1
-- ARGV[i+1]  the owner that holds the i-th lock as far as the client knows
--
-- Replies  an array in the order of the keys
--          1   still held by that owner; its lease is at least ARGV[1] from now
--          0   not held by that owner any more, or no longer a lock
--          -1  held by another owner
--
-- If the user may not read one of them, the reply is that error; the locks before
-- it have been prolonged.
-- Never creates a key and never shortens a lease: a longer one was promised to
-- its owner. A lock whose TTL was taken away (PERSIST) gets one again.
-- What makes a hash a lock is in acquire.
-- The HLEN is protected so that one key of another type does not leave the rest
-- of the batch unrenewed. Any other error says nothing about who holds the lock.
-- Why atomic: between "it is still mine" and the new lease another owner may
-- come in, whose lease this would change.

local renewed = {}
for i, key in ipairs(KEYS) do
  local fields = redis.pcall('HLEN', key)
  local held = fields == 1 and redis.call('HGET', key, ARGV[i + 1])
  if held then
    if redis.call('PTTL', key) < tonumber(ARGV[1]) then
      redis.call('PEXPIRE', key, ARGV[1])
    end
    renewed[i] = 1
  elseif fields == 1 and string.find(redis.call('HRANDFIELD', key), '^.+:%-?%d+$') then
    renewed[i] = -1
  elseif type(fields) == 'table' and not string.find(fields.err, 'WRONGTYPE', 1, true) then
    return fields
  else
    renewed[i] = 0
  end
end
return renewed
