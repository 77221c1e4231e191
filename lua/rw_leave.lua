-- rw_leave: remove a client's entry from the queue of a read-write lock, and pass its turn on.
--
-- KEYS and ARGV are those of fair.
--
-- Replies  +GONE  it had no entry, or has it for another waiter
--          +OK    the entry is gone
--
-- If the lock is free, or readers have it and the next client may want to read, that one has its turn. So it is
-- too if the entry was gone: a release by a reader that was not the last one takes it out, and gives no turn.
-- What this sent twice does, why the next client asks that keeps its turn, and why the first write is a
-- HDEL, is in fair_leave.
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
local now, mode = now_us(), redis.pcall('HGET', lock, 'mode')
if mode == 'read' and not writer_waits(now) or redis.call('EXISTS', lock) == 0 then
  give_turn(now)
elseif was_first then
  tell_end(0)
end
return redis.status_reply(had_entry and 'OK' or 'GONE')
