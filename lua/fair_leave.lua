-- fair_leave: remove a client's entry from the queue, and pass its turn on.
--
-- KEYS and ARGV are those of fair.
--
-- Replies  +GONE  it had no entry, or has it for another waiter
--          +OK    the entry is gone; if the lock is free, the next client has its turn
--          an     array: it has no entry, and has the lock, because it was granted that: the
--                 message of that may not have come. What PTTL says of the lock, with the owner,
--                 in an array, and the microseconds of the server's clock
--
-- If the client was the first in the queue of a lock that is held, the next one asks: it learns that
-- it is the first, and that the holder may not tell it when it releases the lock.
-- Sent twice it finds no entry the second time, and the next client is notified once. If
-- the entry stands for another waiter by then, its ticket is higher, and it stays.
-- The first write is a HDEL because Redis allows that when its memory is full, and after it
-- lets the script finish.
-- Why atomic: if the turn of the client came between two steps, no other client would be
-- notified.

-- Behind   fair
local last = redis.call('HGET', waiting, 'ticket:' .. client)
if last and ticket < tonumber(last) then
  return redis.status_reply('GONE')
end
local was_first = redis.call('ZRANGE', queue, 0, 0)[1] == client
local had_entry = drop(client)
if redis.call('HGET', waiting, 'notified') == client then
  redis.call('HDEL', waiting, 'notified')
end
if had_entry and redis.call('EXISTS', lock) == 0 then
  give_turn(now_us())
elseif had_entry and was_first then
  tell_end(0)
end
local holder = holder_of(lock)
if holder and string.find(holder, client .. ':-', 1, true) == 1 then
  return {{redis.call('PTTL', lock), holder}, now_us()}
end
return redis.status_reply(had_entry and 'OK' or 'GONE')
