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
-- Replies  number      freed: the next client was told or has the lock, and so many clients
--                      received the message on the lock's channel
--          +GONE       it was free; nothing was written
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- Why what follows the DEL is protected is in fair_release.
-- Why atomic: the next client is told if and only if there was something to free.

local holder, failed = holder_of(KEYS[1])
if not holder then
  return failed or redis.status_reply('GONE')
end
redis.call('DEL', KEYS[1])
pcall(function()
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  redis.call('HDEL', KEYS[3], 'told')
  turn({KEYS[2], KEYS[3], KEYS[1]}, {ARGV[1], ARGV[2], ARGV[3], ARGV[4], now, '', ''})
end)
return tonumber(redis.pcall(ARGV[2], ARGV[1], '0')) or 0
