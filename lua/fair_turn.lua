-- fair_turn: find out which client's turn a free fair lock is, and tell it.
--
-- Comes before the texts of the other scripts of the fair lock, as the function `turn`.
--
-- KEYS[1]  the queue: a sorted set, client -> microseconds of the server's clock at
--          which its oldest waiter came
-- KEYS[2]  the waiting clients: a hash, client -> milliseconds of the server's clock
--          until which it counts as alive; `told` -> the client that was told last
-- ARGV[1]  the channel of the lock; that of a client is this, a colon and the client
-- ARGV[2]  the command that publishes: PUBLISH, or SPUBLISH in a cluster with
--          sharded channels
-- ARGV[3]  1 if its reply counts all subscribers; empty if this server does not know
--          them all
-- ARGV[4]  grace in milliseconds: how long the client that is told may take to come
-- ARGV[5]  now, in milliseconds of the server's clock
-- ARGV[6]  the client that asks, which need not be told; empty if none does
-- ARGV[7]  a client that is alive, whether or not it is subscribed; empty for none
--
-- Replies  nil  no client waits
--          an   array of two: the client whose turn it is, and for how many
--               milliseconds more; the client is false if that is not known yet, but
--               will be when a client asks then
--
-- The next client is the first in the queue. The script drops a client that has no
-- subscriber on its channel, because its connection is closed, and one that did not
-- come within the grace. A client that is dropped and alive asks again, says how old
-- its oldest waiter is, and so has its old place: to drop a client is harmless. One
-- that was silent for too long may be alive, and is told to ask again.
-- If more than the grace is left to the client that was told, the server's clock has
-- been set back: it is told again, so that no step of the clock keeps the others out.
-- The second in the queue is told when the grace of the first ends, and asks then.
-- At most 100 clients are dropped in a call. Then the one that came last is asked to
-- go on: it is the one that is most likely alive.
-- Nothing is published to a client that was told before and has time left, so this
-- sent twice tells it once.
-- Why atomic: between "it is the first" and the message to it, it may leave or have
-- the lock.

for _ = 1, 100 do
  local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not first then
    redis.call('HDEL', KEYS[2], 'told')
    return nil
  end
  local left = (tonumber(redis.call('HGET', KEYS[2], first)) or 0) - ARGV[5]
  local grace = tonumber(ARGV[4])
  local was_told = redis.call('HGET', KEYS[2], 'told') == first
  if first == ARGV[6] or was_told and left > 0 and left <= grace then
    return {first, left}
  end
  local heard = redis.pcall(ARGV[2], ARGV[1] .. ':' .. first, '0')
  if type(heard) ~= 'number' or ARGV[3] == '' or first == ARGV[7] then
    heard = 1
  end
  if left > 0 and heard > 0 then
    left = math.min(left, grace)
    redis.call('HSET', KEYS[2], 'told', first, first, string.format('%.0f', ARGV[5] + left))
    local second = redis.call('ZRANGE', KEYS[1], 1, 1)[1]
    if second and second ~= ARGV[6] then
      redis.pcall(ARGV[2], ARGV[1] .. ':' .. second, left + 1)
    end
    return {first, left}
  end
  redis.call('ZREM', KEYS[1], first)
  redis.call('HDEL', KEYS[2], first)
end
local last = redis.call('ZRANGE', KEYS[1], -1, -1)[1]
if last and last ~= ARGV[6] then
  redis.pcall(ARGV[2], ARGV[1] .. ':' .. last, '1')
end
return {false, 1}
