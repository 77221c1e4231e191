-- release: free the lock of an owner.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  owner
-- ARGV[2]  the channel to which this publishes the release
-- ARGV[3]  how: PUBLISH, or SPUBLISH in a cluster with sharded channels
--
-- Replies  number  freed: the key is gone, and so many clients received the message
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and another owner has the lock
--
-- Where holds stay, update lowers the count.
-- The first write is a DEL because Redis allows that when its memory is full; HSET in
-- its place would keep a lock until its lease ended.
-- ARGV[3] is called protected: without permission to publish, the release has
-- happened all the same, and an error would say that it had not.
-- Why atomic: between "it is mine" and "it is gone" the lease may end and
-- another owner may come in, whose lock this would delete.

local failed = lost(KEYS[1], ARGV[1])
if failed then
  return failed
end
redis.call('DEL', KEYS[1])
return tonumber(redis.pcall(ARGV[3], ARGV[2], '0')) or 0
