-- fair_force_unlock: free a fair lock, whichever owner holds it, and tell the client
-- whose turn it is.
--
-- Behind   fair_turn
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its queue, as fair_turn has it
-- KEYS[3]  its waiting clients, as fair_turn has them
-- ARGV[1]  the channel of the lock
-- ARGV[2]  how to publish on it, as fair_turn has it
-- ARGV[3]  whether that counts all subscribers, as fair_turn has it
-- ARGV[4]  grace in milliseconds, as fair_turn has it
--
-- Replies  0           it was free; nothing was written
--          1           freed: the key is gone, and the next client was told
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- What makes a hash a lock is in acquire; why what follows the DEL is protected, in
-- fair_release.
-- Why atomic: the next client is told if and only if there was something to free.

local fields = redis.call('HLEN', KEYS[1])
if fields == 0 then
  return 0
end
local holder = redis.call('HRANDFIELD', KEYS[1])
if fields > 1 or not string.find(holder, '^.+:%-?%d+$') then
  return redis.error_reply('WRONGTYPE the hash is not a lock')
end
redis.call('DEL', KEYS[1])
pcall(function()
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  redis.call('HDEL', KEYS[3], 'told')
  turn({KEYS[2], KEYS[3], KEYS[1]}, {ARGV[1], ARGV[2], ARGV[3], ARGV[4], now, '', ''})
end)
redis.pcall(ARGV[2], ARGV[1], '0')
return 1
