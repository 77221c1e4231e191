-- fair_leave: give a client's place in the queue up, and pass its turn on.
--
-- Behind   fair_turn
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its queue, as fair_turn has it
-- KEYS[3]  its waiting clients, as fair_turn has them
-- ARGV[1]  the client, of which no waiter is left
-- ARGV[2]  the channel of the lock
-- ARGV[3]  how to publish on it, as fair_turn has it
-- ARGV[4]  whether that counts all subscribers, as fair_turn has it
-- ARGV[5]  grace in milliseconds, as fair_turn has it
-- ARGV[6]  the number of the last waiter that has left
--
-- Replies  0  it had no place
--          1  its place is gone; if the lock is free, the next client was told
--
-- Sent twice it finds no place the second time, and the next client is told once. If
-- another waiter has come meanwhile, its number is higher, and its place stays.
-- The first write is a ZREM because Redis allows that when its memory is full, and
-- after it lets the script finish.
-- Why atomic: if the turn of the client came between two steps, no other client
-- would be told.

local last = redis.call('HGET', KEYS[3], 'asks:' .. ARGV[1])
if last and tonumber(string.sub(last, 3)) > tonumber(ARGV[6]) then
  return 0
end
local had = redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1], 'asks:' .. ARGV[1])
if redis.call('HGET', KEYS[3], 'told') == ARGV[1] then
  redis.call('HDEL', KEYS[3], 'told')
end
if had == 0 then
  return 0
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  turn({KEYS[2], KEYS[3], KEYS[1]}, {ARGV[2], ARGV[3], ARGV[4], ARGV[5], now, '', ''})
end
return 1
