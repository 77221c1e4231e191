-- release: free the lock of an owner.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  owner
-- ARGV[2]  the channel to which this publishes the release
-- ARGV[3]  how: PUBLISH, or SPUBLISH in a cluster with sharded channels
--
-- Replies  0           the owner holds nothing here; nothing was written
--          -1          the same, and another owner has the lock
--          2 + n       freed: the key is gone, and n clients received the message
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- What makes a hash a lock is in acquire. Where holds stay, prolong lowers the count.
-- The first write is a DEL because Redis allows that when its memory is full; HSET in
-- its place would keep a lock until its lease ended.
-- ARGV[3] is called protected: without permission to publish, the release has
-- happened all the same, and an error would say that it had not.
-- Why atomic: between "it is mine" and "it is gone" the lease may end and
-- another owner may come in, whose lock this would delete.

local fields = redis.call('HLEN', KEYS[1])
if fields > 1 then
  return redis.error_reply('WRONGTYPE the hash is not a lock')
end
local held = fields == 1 and redis.call('HGET', KEYS[1], ARGV[1])
if not held then
  if fields == 1 and string.find(redis.call('HRANDFIELD', KEYS[1]), '^.+:%-?%d+$') then
    return -1
  end
  return 0
end
redis.call('DEL', KEYS[1])
local receivers = redis.pcall(ARGV[3], ARGV[2], '0')
return 2 + (tonumber(receivers) or 0)
