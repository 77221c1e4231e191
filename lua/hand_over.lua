-- hand_over: let a lock go from owner to owner inside one client.
--
-- KEYS[1]    the lock: a hash with one field, owner -> hold count
-- KEYS[2]    its fencing token, a number that only grows; left out if the lock is
--            not fenced
-- ARGV[1]    the channel on which a release would be told
-- ARGV[2]    lease of the last owner in milliseconds, at least 1
-- ARGV[3]    the owner from whom it goes
-- ARGV[4..]  the owners to whom it goes, one after the other
--
-- Replies    0        none of them holds it; nothing was written
--            {n, t}   the last one holds it, once; n clients are subscribed to the
--                     channel (-1: that may not be asked), t is the fencing token
--                     of the last one, or 0 if the lock is not fenced
--
-- Sent again with more owners at the end, it goes on from the one who has it, so
-- what was executed already is not done twice. (The token grows once more.)
-- Nobody is told, because nobody outside could have got the lock.
-- The token comes first, because nothing is written yet if it is refused; then
-- PEXPIRE, which Redis allows when its memory is full, and after which it lets
-- the script finish.
-- The new owner's field comes before the old one's goes, because a hash without
-- fields is no key and has no TTL.
-- Why atomic: between "it is ours" and the new owner's field the lease may end and
-- another owner may come in, to whose lock this would add a field.

local last = #ARGV
local has = nil
for i = 3, last do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    has = i
    break
  end
end
if not has then
  return 0
end
local token = 0
if KEYS[2] then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if now > redis.call('INCR', KEYS[2]) then
    redis.call('SET', KEYS[2], string.format('%.0f', now))
  end
  token = redis.call('GET', KEYS[2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
for i = has + 1, last do
  redis.call('HSET', KEYS[1], ARGV[i], 1)
  redis.call('HDEL', KEYS[1], ARGV[i - 1])
end
local told = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1])
return {told[2] or -1, token}
