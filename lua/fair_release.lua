-- fair_release: let an owner's hold count sink to a number; at zero free the lock, and
-- tell the client whose turn it is.
--
-- Behind   fair_turn, fair_place
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its queue, as fair_turn has it
-- KEYS[3]  its waiting clients, as fair_turn has them
-- ARGV[1]  owner
-- ARGV[2]  hold count to reach
-- ARGV[3]  longest lease still promised to a hold that stays, in milliseconds, at least 1
-- ARGV[4]  the channel of the lock
-- ARGV[5]  how to publish on it, as fair_turn has it
-- ARGV[6]  whether that counts all subscribers, as fair_turn has it
-- ARGV[7]  the client that releases
-- ARGV[8]  how long its oldest waiter has waited, in microseconds; empty if none waits
-- ARGV[9]  term in milliseconds, as fair_place has it
-- ARGV[10] grace in milliseconds, as fair_turn has it
-- ARGV[11] how it has its turn, and the number of that waiter, as fair_place has it
--
-- Replies  0           the owner holds nothing here; nothing was written
--          -1          the same, and another owner has the lock
--          1           held still, with the count ARGV[2] or fewer
--          2           freed: the next client was told, or has the lock
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- What makes a hash a lock is in acquire; why the first write is a PEXPIRE or a DEL, and
-- when a lease that gets shorter is published, in release.
-- The count to reach is absolute, so this sent twice releases once.
-- On the channel of the lock itself no client waits in the queue: the message there is
-- for plain locks of this name, and comes last.
-- What follows the DEL is called protected: the release has happened, whatever stands
-- in the keys of the queue, and an error would say that it had not.
-- Why atomic: between "it is mine" and "it is gone" another owner may come in, and
-- between "it is gone" and the message one that does not wait may.

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
  local left = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if tonumber(held) > tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  end
  if left < 0 or left > tonumber(ARGV[3]) + 50 then
    local first = redis.pcall('ZRANGE', KEYS[2], 0, 0)[1]
    if first then
      redis.pcall(ARGV[5], ARGV[4] .. ':' .. first, '0')
    end
    redis.pcall(ARGV[5], ARGV[4], '0')
  end
  return 1
end
redis.call('DEL', KEYS[1])
pcall(function()
  if ARGV[8] == '' and redis.call('EXISTS', KEYS[2]) == 0 then
    return
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  place({KEYS[2], KEYS[3]}, {ARGV[7], ARGV[8], ARGV[11], ARGV[9], now})
  redis.call('HDEL', KEYS[3], 'told')
  turn({KEYS[2], KEYS[3], KEYS[1]}, {ARGV[4], ARGV[5], ARGV[6], ARGV[10], now, '', ARGV[7]})
end)
redis.pcall(ARGV[5], ARGV[4], '0')
return 2
