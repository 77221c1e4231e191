-- force_unlock: free a lock whoever holds it.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  the channel on which a release is told
-- ARGV[2]  how: PUBLISH, or SPUBLISH in a cluster with sharded channels
--
-- Replies  0  it was free; nothing was written
--          1  freed: the key is gone and its waiters have been told
--
-- HLEN instead of EXISTS: a key of another type is an error and stays.
-- Why atomic: waiters are told if and only if there was something to free.

if redis.call('HLEN', KEYS[1]) == 0 then
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[2], ARGV[1], '0')
return 1
