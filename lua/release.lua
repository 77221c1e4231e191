-- release: let an owner's hold count sink to a number, and free the lock at zero.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  owner
-- ARGV[2]  hold count to reach
-- ARGV[3]  longest lease still promised to a hold that stays, in milliseconds, at least 1
-- ARGV[4]  the channel to which this publishes a release, and a shorter lease
-- ARGV[5]  how: PUBLISH, or SPUBLISH in a cluster with sharded channels
--
-- Replies  0           the owner holds nothing here; nothing was written
--          -1          the same, and another owner has the lock
--          1           held still, with the count ARGV[2] or fewer
--          2 + n       freed: the key is gone, and n clients received the message
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- What makes a hash a lock is in acquire.
-- The count to reach is absolute, so this sent twice releases once.
-- The first write is a PEXPIRE or a DEL because Redis allows those when its
-- memory is full, and after the first allowed write it lets the script finish;
-- HSET in their place would keep a lock until its lease ended.
-- A refusal has reported the lease in force to the waiters, and they recheck when
-- it ends. So if it ends sooner now, the script publishes the message of a release,
-- which every client understands: if it ends sooner by more than the 50 ms by
-- which a waiter may be late.
-- ARGV[5] is called protected: without permission to publish, the release has
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
if ARGV[2] ~= '0' then
  local remaining = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if tonumber(held) > tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  end
  if remaining < 0 or remaining > tonumber(ARGV[3]) + 50 then
    redis.pcall(ARGV[5], ARGV[4], '0')
  end
  return 1
end
redis.call('DEL', KEYS[1])
local receivers = redis.pcall(ARGV[5], ARGV[4], '0')
return 2 + (tonumber(receivers) or 0)
