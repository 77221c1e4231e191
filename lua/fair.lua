-- fair: what the scripts of the fair lock are given, and what more than one of them does. The
-- line `Behind   fair` of a script stands for this, with those of the functions that the script
-- calls. A lock for which no client waits does not come to that line, and does without.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its queue: a sorted set, client -> microseconds of the server's clock at which its
--          oldest waiter came
-- KEYS[3]  its waiting clients: a hash, with these fields
--            alive:<client>   until when it counts as alive: milliseconds of the server's clock
--            ticket:<client>  that of its entry
--            mode:<client>    what happens when it has its turn
--            tokens:<client>  how many fencing tokens its next grant draws
--            writer:<client>  of a read-write lock: when its oldest waiter came that wants to write,
--                             in microseconds of the server's clock; missing if none does
--            notified         the client that was notified last that it has its turn
-- KEYS[4]  its fencing token, as acquire has it; left out if the lock is not fenced, or if the
--          script neither draws one nor gives a turn
-- ARGV[1]  the client
-- ARGV[2]  how long its oldest waiter has waited, in microseconds; empty if none waits
-- ARGV[3]  the ticket of its entry: a number that is higher each time the entry comes to stand for
--          another waiter, or for one after none; if none waits, no lower one than all before
-- ARGV[4]  mode of the client: `grant` if it can be granted the lock, `notify` if it is notified
--          and asks, `arriving` if it asks soon and is not subscribed yet. Of a read-write lock:
--          `arriving`, or what its oldest waiter wants, `read` or `write`: it is notified and asks
-- ARGV[5]  term in milliseconds: how long the client counts as alive without a request
-- ARGV[6]  grace in milliseconds: how long a client that has its turn may take to come
-- ARGV[7]  the channel of the lock; that of a client is this, a colon and the client
-- ARGV[8]  the command that publishes: PUBLISH, or SPUBLISH in a cluster with sharded channels
-- ARGV[9]  1 if its reply counts all subscribers; empty if this server does not know them all
-- ARGV[10] how many fencing tokens the script draws with a grant to the client; 0 if its waiters
--          need none
--
-- An entry in the queue is not a number in a row but an age: the script computes the time at
-- which the waiter came. So an entry that was dropped, or lost with the server's data, is the
-- same when the client asks again, and no clock of a client matters.
-- The entries expire after three terms: nothing is eternal.
local lock, queue, waiting, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local client, age, ticket, own_mode = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local term, grace = tonumber(ARGV[5]), tonumber(ARGV[6])
local channel, publish, is_counted = ARGV[7], ARGV[8], ARGV[9] ~= ''
local wanted = ARGV[10]

-- notify: publishes on the channel of a client. How many received it, or an error.
local function notify(whom, message)
  return redis.pcall(publish, channel .. ':' .. whom, message)
end

-- drop: removes the entry of a client, and other fields with it. Whether there was one.
local function drop(whom, ...)
  redis.call('HDEL', waiting, 'alive:' .. whom, 'ticket:' .. whom, 'mode:' .. whom,
    'tokens:' .. whom, 'writer:' .. whom, ...)
  return redis.call('ZREM', queue, whom) == 1
end

-- tell_end: has the next two clients ask when a lease of so many milliseconds will have ended. They may
-- know of a longer one, and when a lease ends by itself, Redis publishes nothing.
local function tell_end(lease)
  local after = lease + 1
  for _, whom in ipairs(redis.call('ZRANGE', queue, 0, 1)) do
    notify(whom, after)
    after = after + grace
  end
end

-- oldest_foreign: how long the oldest waiter of other clients has waited, in microseconds; -1
-- if no other client has an entry. Then whether the client is the first in the queue.
--
-- A client counts whether or not it is alive: to find that out is left to give_turn, when it
-- is that client's turn. The client that asks has the lock, and its next waiters rely on this.
local function oldest_foreign(now)
  local two = redis.call('ZRANGE', queue, 0, 1, 'WITHSCORES')
  local came = two[2]
  if two[1] == client then
    came = two[4]
  end
  return came and math.max(0, now - came) or -1, two[1] == client
end

-- enter: writes the entry of the client, or removes it if no waiter waits. Returns nil, or the
-- error because of which the client has none: the server's memory is full, say.
--
-- A request with a lower ticket is one that another request has overtaken, and changes nothing.
-- A request that is late on its way tells an age that is too low: for the same ticket the
-- script keeps the older entry. A client that asks has answered, so it has its full term again.
-- One that is not subscribed yet has the grace: by then it has asked again, or it died before
-- that.
-- `writer_waited` is how long the oldest waiter of the client has waited that wants to write: nil
-- if the lock is no read-write lock, empty if none does. It may be younger than the oldest waiter
-- of all.
-- For the same ticket an older time stays, as that of the entry does.
-- When Redis's memory is full, a client that has no entry gets none until it asks again. One
-- that has an entry keeps it: the PEXPIRE is allowed then, and after it what follows.
-- Why atomic: an entry without its term would be that of a dead client.
local function enter(now, waited, writer_waited)
  local last = tonumber(redis.call('HGET', waiting, 'ticket:' .. client))
  if last and ticket < last then
    return nil
  elseif waited == '' then
    if last then
      drop(client)
    end
    return nil
  end
  local keeps = ticket == last and 'LT' or 'CH'
  local entered = redis.pcall('ZADD', queue, keeps, string.format('%.0f', now - waited), client)
  if type(entered) == 'table' and not (last and string.find(entered.err, 'OOM', 1, true)) then
    return entered
  end
  local expires = redis.pcall('PEXPIRE', queue, 3 * term)
  if expires ~= 1 then
    redis.call('ZREM', queue, client)
    return expires == 0 and entered or expires
  end
  local stays = own_mode == 'arriving' and grace or term
  local alive = string.format('%.0f', math.floor(now / 1000) + stays)
  redis.call('HSET', waiting, 'ticket:' .. client, ticket, 'mode:' .. client, own_mode,
    'alive:' .. client, alive, 'tokens:' .. client, wanted)
  if writer_waited == '' then
    redis.call('HDEL', waiting, 'writer:' .. client)
  elseif writer_waited then
    local came = now - writer_waited
    local before = ticket == last and tonumber(redis.call('HGET', waiting, 'writer:' .. client))
    came = math.min(came, before or came)
    redis.call('HSET', waiting, 'writer:' .. client, string.format('%.0f', came))
  end
  redis.call('PEXPIRE', waiting, 3 * term)
  return nil
end

-- grant: gives a client the lock for so many milliseconds. Whether the client has heard it.
--
-- The owner is a possession that the client has from now on, and makes the lease longer. Its
-- name has the time in it, so no request about an earlier grant can be about this one. The
-- message says that time, for how long, what oldest_foreign says, the last of the fencing tokens
-- that were drawn for the client (0: none), how many those are, and the key. A client that needs
-- tokens and has none draws some itself: the script has no key for them, or cannot write it.
-- The grant is written before it is published, and undone if no client has received it: none
-- may believe what was not written.
local function grant(whom, now, lease, others)
  local at = string.format('%.0f', now)
  local written = redis.pcall('HSET', lock, whom .. ':-' .. at, '1')
  if written == 1 and redis.pcall('PEXPIRE', lock, lease) == 1 then
    local many, last = counter and redis.call('HGET', waiting, 'tokens:' .. whom) or '0', '0'
    if many ~= '0' then
      local drawn, token = pcall(draw, counter, many)
      last = drawn and token or last
    end
    -- A format would end the key at a zero byte.
    local said = string.format('%s %d %.0f %s %s ', at, lease, others, last, many)
    local heard = notify(whom, said .. lock)
    if type(heard) == 'number' and heard > 0 then
      return true
    end
  end
  redis.pcall('DEL', lock)
  return false
end

-- give_turn: finds out which client's turn the free lock is, and grants it to that client or
-- notifies it. Returns that client, and for how many milliseconds more it has its turn; nil if
-- no client waits; false and 1 if it is not known yet, but will be when a client asks then.
-- `asking` is the client if it asks, and need not be notified. `releasing` is the client if it
-- releases the lock: it is alive, whether or not it is subscribed, and the turn is a new one,
-- whichever client was notified before.
--
-- The next client is the first in the queue. If the server counts subscribers, the script
-- grants it the lock. In any other case the message is 0, and the client asks.
-- One without a mode asks, too: the server has evicted it, and not each kind takes grants.
-- The client that releases is notified, and asks: it may not be subscribed yet, and its reply
-- could get lost, or no call wait for it any more.
-- The script drops a client that has no subscriber on its channel, because its connection is
-- closed, and one that did not come within the grace. One that has just come is about to
-- subscribe: it is waited for until the grace after that has ended. A client that is dropped
-- and alive asks again, says how old its oldest waiter is, and so has its old entry: to drop a
-- client is harmless. One that was silent for too long may be alive: the message has it ask.
-- If more than the grace is left to the client that was notified, the server's clock has been
-- set back: it is notified again, so that no step of the clock keeps the others out.
-- The message to the second in the queue says when the grace of the first ends: it asks then.
-- At most 100 clients are dropped in a call. Then the last one that hears it is asked to go on:
-- those that came last are most likely alive. At most 1,000 are asked: a client before more
-- than that goes on when it refreshes its entry.
-- Nothing is published to a client that was notified before and has time left, so this sent
-- twice notifies it once.
-- Why atomic: between "it is the first" and the message to it, it may leave or have the lock.
local function give_turn(now, asking, releasing)
  local ms = math.floor(now / 1000)
  for _ = 1, 100 do
    local two = redis.call('ZRANGE', queue, 0, 1, 'WITHSCORES')
    local first, second = two[1], two[3]
    if not first then
      redis.call('HDEL', waiting, 'notified')
      return nil
    end
    local left = (tonumber(redis.call('HGET', waiting, 'alive:' .. first)) or 0) - ms
    local was_notified = not releasing and redis.call('HGET', waiting, 'notified') == first
    if first == asking or was_notified and left > 0 and left <= grace then
      return first, left
    end
    local its_mode = redis.call('HGET', waiting, 'mode:' .. first)
    local lease = math.min(left, grace)
    local others = second and math.max(0, now - two[4]) or -1
    local takes_it = left > 0 and is_counted and first ~= releasing and its_mode == 'grant'
    local granted = takes_it and grant(first, now, lease, others)
    local heard = granted or notify(first, '0')
    local is_there = heard ~= 0 or not is_counted or first == releasing or its_mode == 'arriving'
    if left > 0 and is_there then
      if granted then
        drop(first, 'notified')
      else
        local alive = string.format('%.0f', ms + lease)
        redis.call('HSET', waiting, 'notified', first, 'alive:' .. first, alive)
      end
      if second and second ~= asking then
        notify(second, lease + 1)
      end
      return first, lease
    end
    drop(first)
  end
  redis.call('HDEL', waiting, 'notified')
  for last = -1, -1000, -100 do
    local page = redis.call('ZRANGE', queue, last - 99, last)
    for i = #page, 1, -1 do
      if page[i] == asking or notify(page[i], '1') ~= 0 or not is_counted then
        return false, 1
      end
    end
    if #page < 100 then
      break
    end
  end
  return false, 1
end

-- writer_waits: for how many milliseconds more the first client in the queue of a read-write lock
-- counts as alive, if its oldest waiter wants to write: while there are readers, it is not its turn,
-- nor that of those behind it. In any other case nil. `asking` is what it is in give_turn.
--
-- A release notifies it when the last reader goes. Until then no script finds out whether it has died,
-- but it counts as alive for no longer than the term.
local function writer_waits(now, asking)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local its_mode = first and first ~= asking and redis.call('HGET', waiting, 'mode:' .. first)
  if its_mode ~= 'write' then
    return nil
  end
  local alive = tonumber(redis.call('HGET', waiting, 'alive:' .. first)) or 0
  local left = alive - math.floor(now / 1000)
  return left > 0 and left or nil
end

-- oldest_writer: when the oldest waiter came that wants to write, and for how many milliseconds
-- more its client counts as alive; nil if none came before `limit`. It leaves the client `but` out.
--
-- For a reader no others count. The entry of a client says when its oldest waiter came, which may
-- be a reader before that writer: no writer of a client came before its entry.
local function oldest_writer(now, but, limit)
  local came, left
  for from = 0, math.huge, 100 do
    local page = redis.call('ZRANGE', queue, from, from + 99, 'WITHSCORES')
    for i = 1, #page, 2 do
      if tonumber(page[i + 1]) >= limit then
        return came, left
      end
      local whom = page[i]
      local one = whom ~= but and tonumber(redis.call('HGET', waiting, 'writer:' .. whom))
      if one and one < limit then
        local alive = tonumber(redis.call('HGET', waiting, 'alive:' .. whom)) or 0
        alive = alive - math.floor(now / 1000)
        if alive > 0 then
          came, left, limit = one, alive, one
        end
      end
    end
    if #page < 200 then
      return came, left
    end
  end
end

-- stand_for_writer: the reader has the lock for which the client had its entry. From now on the
-- entry stands for the oldest waiter of the client that wants to write, if there is one: else
-- others would pass that until the client asks again.
local function stand_for_writer()
  local came = redis.call('HGET', waiting, 'writer:' .. client)
  if not came then
    return drop(client)
  end
  redis.call('ZADD', queue, came, client)
  if own_mode ~= 'arriving' then
    redis.call('HSET', waiting, 'mode:' .. client, 'write')
  end
end
