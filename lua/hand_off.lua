-- hand_off: hand a lock off from owner to owner inside one client.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its fencing token, a number that only grows; left out if the last owner
--          needs none
-- ARGV[1]  the channel to which a release would be published
-- ARGV[2]  lease of the last owner in milliseconds, a whole number, at least 1
-- ARGV[3]  how to count its subscribers: NUMSUB, or SHARDNUMSUB in a cluster with
--          sharded channels; empty if this server does not know them all
-- ARGV[4]  the command that publishes: PUBLISH, or SPUBLISH in a cluster with
--          sharded channels
-- ARGV[5]  how many of its subscribers are this client: 0 or 1
-- ARGV[i]  from the sixth on: the owner that has it, and those that get it one
--          after the other
--
-- Replies  0           none of them holds it; nothing was written
--          -1          the same, and another owner has it
--          an          array of two: how many clients are subscribed to the channel
--                      (-1: that is not known), and the fencing token of the last
--                      owner, which has it now (0 if it needs none)
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- What makes a hash a lock is in acquire.
-- Sent again, with more owners at the end or not, it goes on from the one that has
-- it, so what was executed already is not done twice. (The token grows once more.)
-- Of the owners between the one that has it and the last nothing can be seen, so the
-- script writes none of them.
-- The script publishes nothing about the hand-off itself: no other client could
-- have got the lock. But if the lease ends sooner than the one that was in force, it
-- wakes other clients: they have parked until that one ends. This client knows
-- without a message.
-- The token comes first, because nothing is written yet if it is refused; then
-- PEXPIRE, which Redis allows when its memory is full, and after which it lets
-- the script finish. The new owner's field comes before the old one's goes, because
-- a hash without fields is no key and has no TTL.
-- Why atomic: between "it is ours" and the new owner's field the lease may end and
-- another owner may come in, to whose lock this would add a field.

local fields = redis.call('HLEN', KEYS[1])
if fields > 1 then
  return redis.error_reply('WRONGTYPE the hash is not a lock')
end
local holder = redis.call('HRANDFIELD', KEYS[1])
local found = false
local moves = false
local last = nil
for i = 6, #ARGV do
  last = ARGV[i]
  found = found or last == holder
  moves = moves or found and last ~= holder
end
if not found then
  if holder and string.find(holder, '^.+:%-?%d+$') then
    return -1
  end
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
local remaining = redis.call('PTTL', KEYS[1])
local shorter = remaining < 0 or remaining > tonumber(ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if moves then
  redis.call('HSET', KEYS[1], last, '1')
end
if last ~= holder then
  redis.call('HDEL', KEYS[1], holder)
end
local subscribers = {}
if ARGV[3] ~= '' then
  subscribers = redis.pcall('PUBSUB', ARGV[3], ARGV[1])
end
local listening = subscribers[2] or -1
if shorter and (listening < 0 or listening > tonumber(ARGV[5])) then
  redis.pcall(ARGV[4], ARGV[1], '0')
end
return {listening, token}
