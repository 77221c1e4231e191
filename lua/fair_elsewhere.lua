-- fair_elsewhere: how long the oldest waiter of other clients has waited.
--
-- Comes before the texts of other scripts, as the function `elsewhere`.
--
-- KEYS[1]  the queue, as fair_turn has it
-- ARGV[1]  the client that asks
--
-- Replies  number  in microseconds
--          -1      no other client has a place
--
-- A client counts with the age of its oldest waiter, and whether or not it is alive: to
-- find that out is left to fair_turn, when it is that client's turn.
-- Why atomic: the client that asks has the lock, and its next waiters rely on this.

local first = redis.call('ZRANGE', KEYS[1], 0, 1, 'WITHSCORES')
local ticket = first[2]
if first[1] == ARGV[1] then
  ticket = first[4]
end
if not ticket then
  return -1
end
local time = redis.call('TIME')
return math.max(0, time[1] * 1000000 + time[2] - ticket)
