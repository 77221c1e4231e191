-- force_unlock: free a lock, whichever owner holds it.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  the channel to which this publishes the release
-- ARGV[2]  how: PUBLISH, or SPUBLISH in a cluster with sharded channels
--
-- Replies  0           it was free; nothing was written
--          1           freed: the key is gone, and its waiters are notified
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- What makes a hash a lock is in acquire. A key of another type is an error
-- there, too, and stays.
-- Why atomic: waiters are notified if and only if there was something to free.

local fields = redis.call('HLEN', KEYS[1])
if fields == 0 then
  return 0
end
local holder = redis.call('HRANDFIELD', KEYS[1])
if fields > 1 or not string.find(holder, '^.+:%-?%d+$') then
  return redis.error_reply('WRONGTYPE the hash is not a lock')
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[2], ARGV[1], '0')
return 1
