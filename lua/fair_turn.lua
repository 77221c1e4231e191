-- fair_turn: find out which client's turn a free fair lock is, and grant it to that client.
--
-- Comes before the texts of the other scripts of the fair lock, as the function `turn`.
--
-- KEYS[1]  the queue: a sorted set, client -> microseconds of the server's clock at
--          which its oldest waiter came
-- KEYS[2]  the waiting clients: a hash, client -> milliseconds of the server's clock
--          until which it counts as alive; `told` -> the client that was told last;
--          `asks:` and the client -> how it has its turn, as fair_place has it
-- KEYS[3]  the lock, which is free
-- ARGV[1]  the channel of the lock; that of a client is this, a colon and the client
-- ARGV[2]  the command that publishes: PUBLISH, or SPUBLISH in a cluster with
--          sharded channels
-- ARGV[3]  1 if its reply counts all subscribers; empty if this server does not know
--          them all
-- ARGV[4]  grace in milliseconds: how long the client that is told may take to come
-- ARGV[5]  now, in microseconds of the server's clock
-- ARGV[6]  the client that asks, which need not be told; empty if none does
-- ARGV[7]  the client that releases, which is alive, whether or not it is subscribed;
--          empty for none
--
-- Replies  nil  no client waits
--          an   array: the client whose turn it is, and for how many milliseconds
--               more; the client is false if that is not known yet, but will be when
--               a client asks then
--
-- The next client is the first in the queue. If the server counts subscribers, the
-- script grants it the lock for the grace, under an owner that no handle is: the client
-- makes it that of a waiter, and the lease longer. Its name has the time in it, so no
-- request about an earlier grant can be about this one. The message says that time,
-- for how long, what fair_elsewhere says, and the key. In any other case the message is
-- 0, and the client asks.
-- The client that releases is told, and asks: it may not be subscribed yet, and its
-- reply could get lost, or nobody wait for it any more.
-- The grant is written before it is published, and undone if nobody has heard it: no
-- client may believe what was not written.
-- The script drops a client that has no subscriber on its channel, because its
-- connection is closed, and one that did not come within the grace. One that has just
-- come is about to subscribe: it is waited for until the grace after that has ended. A
-- client that is dropped and alive asks again, says how old its oldest waiter is, and so
-- has its old place: to drop a client is harmless. One that was silent for too long may
-- be alive, and is told to ask again.
-- If more than the grace is left to the client that was told, the server's clock has
-- been set back: it is told again, so that no step of the clock keeps the others out.
-- The second in the queue is told when the grace of the first ends, and asks then.
-- At most 100 clients are dropped in a call. Then the last one that hears it is asked to
-- go on: those that came last are most likely alive. At most 1,000 are asked: a client before
-- more than that goes on when it refreshes its place.
-- Nothing is published to a client that was told before and has time left, so this
-- sent twice tells it once.
-- Why atomic: between "it is the first" and the message to it, it may leave or have
-- the lock.

local ms = math.floor(ARGV[5] / 1000)
local grace = tonumber(ARGV[4])
for _ = 1, 100 do
  local queue = redis.call('ZRANGE', KEYS[1], 0, 1, 'WITHSCORES')
  local first, second = queue[1], queue[3]
  if not first then
    redis.call('HDEL', KEYS[2], 'told')
    return nil
  end
  local left = (tonumber(redis.call('HGET', KEYS[2], first)) or 0) - ms
  local was_told = redis.call('HGET', KEYS[2], 'told') == first
  if first == ARGV[6] or was_told and left > 0 and left <= grace then
    return {first, left}
  end
  local others = -1
  if second then
    others = math.max(0, ARGV[5] - queue[4])
  end
  local owner = nil
  local message = '0'
  local lease = math.min(left, grace)
  local asks = string.sub(redis.call('HGET', KEYS[2], 'asks:' .. first) or '0', 1, 1)
  if left > 0 and ARGV[3] ~= '' and first ~= ARGV[7] and asks == '0' then
    local now = string.format('%.0f', ARGV[5])
    owner = first .. ':-' .. now
    message = string.format('%s %d %.0f %s', now, lease, others, KEYS[3])
    local written = redis.pcall('HSET', KEYS[3], owner, '1')
    if written ~= 1 or redis.pcall('PEXPIRE', KEYS[3], lease) ~= 1 then
      redis.pcall('DEL', KEYS[3])
      owner, message = nil, '0'
    end
  end
  local heard = redis.pcall(ARGV[2], ARGV[1] .. ':' .. first, message)
  if owner and (type(heard) ~= 'number' or heard == 0) then
    redis.call('DEL', KEYS[3])
    owner = nil
  end
  if type(heard) ~= 'number' or ARGV[3] == '' or first == ARGV[7] or asks == '2' then
    heard = 1
  end
  if left > 0 and heard > 0 then
    if owner then
      redis.call('ZREM', KEYS[1], first)
      redis.call('HDEL', KEYS[2], first, 'told', 'asks:' .. first)
    else
      redis.call('HSET', KEYS[2], 'told', first, first, string.format('%.0f', ms + lease))
    end
    if second and second ~= ARGV[6] then
      redis.pcall(ARGV[2], ARGV[1] .. ':' .. second, lease + 1)
    end
    return {first, lease}
  end
  redis.call('ZREM', KEYS[1], first)
  redis.call('HDEL', KEYS[2], first, 'asks:' .. first)
end
for last = -1, -1000, -100 do
  local page = redis.call('ZRANGE', KEYS[1], last - 99, last)
  for i = #page, 1, -1 do
    if page[i] == ARGV[6] then
      return {false, 1}
    end
    local heard = redis.pcall(ARGV[2], ARGV[1] .. ':' .. page[i], '1')
    if heard ~= 0 or ARGV[3] == '' then
      return {false, 1}
    end
  end
  if #page < 100 then
    break
  end
end
return {false, 1}
