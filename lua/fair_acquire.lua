-- fair_acquire: let an owner reach a hold count if it is its client's turn, and enter the
-- client into the queue if not.
--
-- Behind   acquire
--
-- KEYS[1]   the lock
-- KEYS[2]   its queue
-- KEYS[3]   its waiting clients
-- KEYS[4]   its fencing token; left out if the hold is a nested one, too
-- ARGV[2]   how long the oldest waiter of the client has waited; empty for a call that takes
--           no entry; and what else fair has
-- ARGV[11]  owner
-- ARGV[12]  lease in milliseconds, a whole number, at least 1
-- ARGV[13]  hold count to reach: 1 for a first hold, more for a nested one
-- ARGV[14]  how many fencing tokens to draw, if the lock is fenced
-- ARGV[15]  1 if the oldest waiter is another one, which asks soon: the client waits for it
--           no longer than the grace; empty if it is the owner
--
-- Replies  an          array, granted or refused: the reply that acquire gives to a first hold,
--                      then how long the oldest waiter of other clients has waited, in
--                      microseconds (-1: there is none), then the microseconds of the server's
--                      clock; each of these two may be nil or left out. A refusal by a holder ends
--                      with nil, and 1 if the client is the first in the queue. A refusal has no
--                      holder if the lock is free and another client has its turn
--          nil         granted; the count is ARGV[13], which is more than 1
--          +GONE       the outer holds, on which a nested one was to stand, no
--                      longer exist; nothing was written
--          +TAKEN      the same, and another owner has the lock
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written. The same, and
--                      `key 2` or `key 3`: that one is of another type than the queue has
--
-- The count to reach is absolute, so this sent twice counts once. A nested hold passes all
-- that wait. A lock that is free and for which no client waits is acquired as a plain one is.
-- What reads or writes the keys of the queue first is protected, because the error has to name
-- the key.
-- The entry is written before the script finds out whose turn it is: the asking waiter may
-- be younger than the one that had the entry.
-- When Redis's memory is full, a client that has an entry has the lock when it is its turn.
-- The owner that has the lock already has sent this twice. By then the entry of the client may
-- stand for another waiter, with a higher ticket: it stays.
-- The entry goes before the lock comes: what is not permitted leaves no hold.
-- A message has the next client ask after the grace, if this client was notified. Another one says when the
-- lease ends, if that is before the grace is over, or if there was no such message.
-- Why atomic: between "it is my turn" and "it is mine" no other owner may come in, and
-- between "it is not" and my entry no release may pass.

local owner, lease, count, tokens = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local is_of_another, oldest = ARGV[15] ~= '', -1
if count ~= '1' then
  return acquire({KEYS[1]}, {owner, lease, count})
elseif is_of_another or redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0 then
  local holder, failed = holder_of(KEYS[1])
  local is_taken = holder and holder ~= owner
  if failed then
    return failed
  elseif is_taken and ARGV[2] == '' then
    return {{redis.call('PTTL', KEYS[1]), holder}}
  end
  -- Behind   fair
  local asking = age ~= '' and holder ~= owner and client or nil
  local now, notified = now_us(), redis.pcall('HGET', waiting, 'notified')
  local entered = false
  if type(notified) ~= 'table' then
    entered = asking and enter(now, age) or not asking and redis.pcall('ZSCORE', queue, client)
  end
  for i, look in ipairs({entered, notified}) do
    if type(look) == 'table' and string.find(look.err, 'WRONGTYPE', 1, true) then
      return redis.error_reply('WRONGTYPE key ' .. i + 1 .. ' is not of a queue')
    elseif type(look) == 'table' and is_taken and string.find(look.err, 'OOM', 1, true) then
      return {{redis.call('PTTL', lock), holder}}
    elseif type(look) == 'table' then
      return look
    end
  end
  if asking and notified == client then
    redis.call('HDEL', waiting, 'notified')
  end
  if is_taken then
    local others, is_first = oldest_foreign(now)
    return {{redis.call('PTTL', lock), holder}, others, now, false, is_first}
  elseif not holder then
    local first, left = give_turn(now, asking)
    if first ~= nil and (first ~= asking or is_of_another) then
      return {{math.max(1, math.min(left, grace)), ''}, false, now}
    end
  end
  if asking then
    drop(client, 'notified')
  elseif age ~= '' then
    enter(now, '')
  end
  oldest = oldest_foreign(now)
  if oldest >= 0 and (tonumber(lease) < grace or notified ~= client) then
    tell_end(lease)
  end
end
local granted = acquire({KEYS[1], KEYS[4]}, {owner, lease, count, tokens})
if type(granted) == 'table' then
  return granted
end
return {granted or false, oldest}
