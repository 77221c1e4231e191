-- fair_refresh: keep the entries of one client in many queues, each judged on its own.
--
-- KEYS[i]    the i-th lock
-- KEYS[i+1]  its queue, as fair has it
-- KEYS[i+2]  its waiting clients, as fair has them
-- ARGV[1]    the client
-- ARGV[2]    term in milliseconds, as fair has it
--
-- Replies  an     array of two: an array in the order of the locks, and the microseconds of the
--                 server's clock
--          +GONE  the client has no entry, or a part of it only, or its queue is not one; it has
--                 to ask again
--          +OK    it has
--          +FREE  it has, and the lock is free: it has to ask
--
-- A client that was notified that it has its turn keeps the end of its grace: it is alive, but
-- must come.
-- The first write is a PEXPIRE because Redis allows that when its memory is full, and after it
-- lets the script finish.
-- The looks are protected so that one key of another type does not leave the other entries
-- unrefreshed: there is no entry in it. Nor is there one without a ticket: the server has evicted
-- the waiting clients, and only the client can say again what its entry was.
-- Why atomic: between "it has an entry" and its new term another client may drop it, and this
-- would leave a term without an entry.

local client, term, now = ARGV[1], tonumber(ARGV[2]), now_us()
local alive = string.format('%.0f', math.floor(now / 1000) + term)
local entries = {}
for i = 1, #KEYS, 3 do
  local queue, waiting = KEYS[i + 1], KEYS[i + 2]
  local came = redis.pcall('ZSCORE', queue, client)
  local ticket = redis.pcall('HGET', waiting, 'ticket:' .. client)
  local state = 'GONE'
  if came and ticket and type(came) ~= 'table' and type(ticket) ~= 'table' then
    local notified = redis.call('HGET', waiting, 'notified')
    redis.call('PEXPIRE', queue, 3 * term)
    if notified ~= client then
      redis.call('HSET', waiting, 'alive:' .. client, alive)
      redis.call('PEXPIRE', waiting, 3 * term)
    end
    local is_free = redis.call('EXISTS', KEYS[i]) == 0
    state = is_free and 'FREE' or 'OK'
  end
  table.insert(entries, redis.status_reply(state))
end
return {entries, now}
