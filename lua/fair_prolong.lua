-- fair_prolong: set the hold count and the lease of an owner that has a fair lock.
--
-- Behind   fair_place, fair_elsewhere, prolong
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its queue, as fair_turn has it
-- KEYS[3]  its waiting clients, as fair_turn has them
-- KEYS[4]  its fencing token, as prolong has it
-- ARGV[1]  the client
-- ARGV[2]  how long its oldest waiter has waited, in microseconds; empty if none waits
-- ARGV[3]  term in milliseconds, as fair_place has it
-- ARGV[4]  grace in milliseconds, as fair_turn has it
-- ARGV[5]  how it has its turn, and the number of that waiter, as fair_place has it
-- ARGV[8]  lease in milliseconds
-- ARGV[10] the channel of the lock
-- ARGV[12] how to publish on it, as fair_turn has it
-- ARGV[i]  from the sixth on: those of prolong
--
-- Replies  an  array, or another reply of prolong. In place of the number of clients
--              it has what fair_elsewhere says (-1, too, if that is not known)
--
-- The place was that of the waiter that is inside now. From here on it is that of the
-- next one, which so need not ask for it.
-- If the lease ends sooner than the one that was in force, as prolong has it, the first
-- client is told when to ask, and the second when the grace of the first is over.
-- What follows the prolonging is called protected: it has happened.
-- Why atomic: between the new lease and the place, this client's turn could be told to
-- it twice, or never.

local left = redis.call('PTTL', KEYS[1])
local done = prolong({KEYS[1], KEYS[4]}, {unpack(ARGV, 6)})
if not done[1] then
  return done
end
local others = -1
pcall(function()
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  place({KEYS[2], KEYS[3]}, {ARGV[1], ARGV[2], ARGV[5], ARGV[3], now, ARGV[4]})
  if left < 0 or left > tonumber(ARGV[8]) + 50 then
    local after = ARGV[8] + 1
    for _, client in ipairs(redis.call('ZRANGE', KEYS[2], 0, 1)) do
      redis.pcall(ARGV[12], ARGV[10] .. ':' .. client, after)
      after = after + ARGV[4]
    end
  end
  others = elsewhere({KEYS[2]}, {ARGV[1]})
end)
return {others, done[2]}
