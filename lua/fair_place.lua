-- fair_place: write down the place of a client in the queue, as one of its requests says it.
--
-- Comes before the texts of other scripts, as the function `place`.
--
-- KEYS[1]  the queue, as fair_turn has it
-- KEYS[2]  its waiting clients, as fair_turn has them
-- ARGV[1]  the client
-- ARGV[2]  how long its oldest waiter has waited, in microseconds; empty if none waits
-- ARGV[3]  how the client has its turn: 0 if it can be granted the lock, 1 if it is to be
--          told, 2 if it asks soon and is not subscribed yet. Then a colon, and the
--          number of that waiter, which is higher for one that comes later; if none
--          waits, the number of the last one that has left
-- ARGV[4]  term in milliseconds: how long the client counts as alive without a request
-- ARGV[5]  now, in microseconds of the server's clock
-- ARGV[6]  grace in milliseconds, as fair_turn has it
--
-- Replies  nil  the place is as ARGV says, or as a later request said. An error that
--               the server gave means that the client has none: its memory is full, say
--
-- A place is not a number in a row but an age: the script computes the time at which
-- the waiter came. So a place that was dropped, or lost with the server's data, is
-- the same when the client asks again, and no clock of a client matters. A request
-- that is late on its way tells an age that is too low: for the same waiter the script
-- keeps the older place.
-- The oldest waiter of a client changes only to one that came later. So a lower number
-- is that of a request which another one has overtaken, or of a call that its client
-- waited for in vain before, and changes nothing.
-- A client that asks has answered, so it has its full term again. One that is not
-- subscribed yet has the grace: by then it has asked again, or it died before that. The
-- places expire after three terms: nothing is eternal.
-- When Redis's memory is full, a client that has no place gets none until it asks again.
-- One that has a place keeps it: the PEXPIRE is allowed then, and after it what follows.
-- Why atomic: a place without its term would be that of a dead client.

local asks = 'asks:' .. ARGV[1]
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
local last = known and redis.call('HGET', KEYS[2], asks)
last = last and tonumber(string.sub(last, 3)) or -1
local number = tonumber(string.sub(ARGV[3], 3))
if number < last then
  return nil
end
if ARGV[2] == '' then
  if known then
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('HDEL', KEYS[2], ARGV[1], asks)
  end
  return nil
end
local keeps = number == last and 'LT' or 'CH'
local ticket = string.format('%.0f', ARGV[5] - ARGV[2])
local placed = redis.pcall('ZADD', KEYS[1], keeps, ticket, ARGV[1])
if type(placed) == 'table' and not (known and string.find(placed.err, 'OOM', 1, true)) then
  return placed
end
local expires = redis.pcall('PEXPIRE', KEYS[1], 3 * ARGV[4])
if expires ~= 1 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return expires
end
local alive = string.sub(ARGV[3], 1, 1) == '2' and ARGV[6] or ARGV[4]
local term = string.format('%.0f', math.floor(ARGV[5] / 1000) + alive)
redis.call('HSET', KEYS[2], ARGV[1], term, asks, ARGV[3])
redis.call('PEXPIRE', KEYS[2], 3 * ARGV[4])
return nil
