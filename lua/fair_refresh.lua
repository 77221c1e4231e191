-- fair_refresh: keep the places of one client in many queues, each judged on its own.
--
-- KEYS[i]    the i-th lock
-- KEYS[i+1]  its queue, as fair_turn has it
-- KEYS[i+2]  its waiting clients, as fair_turn has them
-- ARGV[1]    the client
-- ARGV[2]    term in milliseconds, as fair_acquire has it
--
-- Replies  an array in the order of the locks, and behind that the microseconds of
--             the server's clock
--          0  the client has no place, or its queue is not one; it has to ask again
--          1  it has
--          2  it has, and the lock is free: it has to ask
--
-- A client that was told that it has its turn keeps the end of its grace: it is
-- alive, but must come.
-- The first write is a PEXPIRE because Redis allows that when its memory is full, and
-- after it lets the script finish.
-- The looks are protected so that one key of another type does not leave the other
-- places unrefreshed: there is no place in it.
-- Why atomic: between "it has a place" and its new term another client may drop it,
-- and this would leave a term without a place.

local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local places = {}
for i = 1, #KEYS, 3 do
  local at = (i + 2) / 3
  local ticket = redis.pcall('ZSCORE', KEYS[i + 1], ARGV[1])
  if not ticket or type(ticket) == 'table' then
    places[at] = 0
  else
    redis.call('PEXPIRE', KEYS[i + 1], 3 * ARGV[2])
    local told = redis.pcall('HGET', KEYS[i + 2], 'told')
    if type(told) ~= 'table' and told ~= ARGV[1] then
      redis.call('HSET', KEYS[i + 2], ARGV[1], string.format('%.0f', ms + ARGV[2]))
      redis.call('PEXPIRE', KEYS[i + 2], 3 * ARGV[2])
    end
    places[at] = 1
    if type(told) == 'table' then
      places[at] = 0
    elseif redis.call('EXISTS', KEYS[i]) == 0 then
      places[at] = 2
    end
  end
end
table.insert(places, time[1] * 1000000 + time[2])
return places
