-- force_unlock: free a lock, whichever owner holds it.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  the channel to which this publishes the release
-- ARGV[2]  how: PUBLISH, or SPUBLISH in a cluster with sharded channels
--
-- Replies  number      freed: the key is gone, and so many clients received the message
--          +GONE       it was free; nothing was written
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- A key of another type is that error, too, and stays.
-- Why atomic: waiters are notified if and only if there was something to free.

local holder, failed = holder_of(KEYS[1])
if not holder then
  return failed or redis.status_reply('GONE')
end
redis.call('DEL', KEYS[1])
return tonumber(redis.pcall(ARGV[2], ARGV[1], '0')) or 0
