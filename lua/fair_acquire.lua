-- fair_acquire: let an owner reach a hold count if it is its client's turn, and give
-- the client a place in the queue if not.
--
-- Behind   fair_turn, fair_place, fair_elsewhere
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its queue, as fair_turn has it
-- KEYS[3]  its waiting clients, as fair_turn has them
-- KEYS[4]  its fencing token, as acquire has it; left out if the lock is not fenced or
--          the hold is a nested one
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds, a whole number, at least 1
-- ARGV[3]  hold count to reach: 1 for a first hold, more for a nested one
-- ARGV[4]  the client that waits; empty for a call that takes no place
-- ARGV[5]  how long its oldest waiter has waited, in microseconds
-- ARGV[6]  term in milliseconds, as fair_place has it
-- ARGV[7]  1 if that is another one, which asks soon: the client waits for it no longer
--          than the grace; empty if it is the owner
-- ARGV[8]  the channel of the lock
-- ARGV[9]  how to publish on it, as fair_turn has it
-- ARGV[10] whether that counts all subscribers, as fair_turn has it
-- ARGV[11] grace in milliseconds, as fair_turn has it
-- ARGV[12] how it has its turn, and the number of that waiter, as fair_place has it
-- ARGV[13] how many fencing tokens to draw, as acquire has it
--
-- Replies  nil         granted; the count is ARGV[3], which is more than 1
--          number      granted; what fair_elsewhere says of the other clients
--          an          array of a string and a number, granted: the last of the fencing tokens
--                      drawn, and what fair_elsewhere says
--          an          array, refused: milliseconds until it may be worth asking again
--                      (-1: the lock has no TTL), and the holder; the holder is empty
--                      if the lock is free and another client has its turn. A client
--                      that waits is told what fair_elsewhere says, too, if there is
--                      a holder, and the microseconds of the server's clock
--          +GONE       the outer holds, on which a nested one was to stand, no
--                      longer exist; nothing was written
--          +TAKEN      the same, and another owner has the lock
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written. The same, and
--                      `key 2` or `key 3`: that one is of another type than the queue has
--
-- Why a lease is never shortened is in acquire. The count to reach is absolute, so this sent twice counts once.
-- The looks at the keys of the queue are protected, because the error has to name the key.
-- The place is written before the script looks whose turn it is: the asking waiter may
-- be younger than the one that had the place.
-- When Redis's memory is full, a client that has a place has the lock when it is its turn.
-- The owner that has the lock already has sent this twice. Meanwhile the client may have
-- another waiter, with a higher number: its place stays.
-- The place goes before the lock comes: what is not permitted leaves no hold.
-- Why atomic: between "it is my turn" and "it is mine" no other owner may come in, and
-- between "it is not" and my place no release may pass.

local holder, failed = holder_of(KEYS[1])
if failed then
  return failed
elseif ARGV[3] ~= '1' then
  if holder ~= ARGV[1] then
    return redis.status_reply(holder and 'TAKEN' or 'GONE')
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return nil
end
local mine = holder == ARGV[1]
local waits = ARGV[4] ~= '' and not mine
local whose = nil
local now = 0
if waits or not holder and redis.call('EXISTS', KEYS[2]) == 1 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  local told = redis.pcall('HGET', KEYS[3], 'told')
  for i, look in ipairs({redis.pcall('ZSCORE', KEYS[2], ARGV[4]), told}) do
    if type(look) == 'table' and string.find(look.err, 'WRONGTYPE', 1, true) then
      return redis.error_reply('WRONGTYPE key ' .. i + 1 .. ' is not of a queue')
    elseif type(look) == 'table' then
      return look
    end
  end
  if waits then
    local refused = place({KEYS[2], KEYS[3]}, {ARGV[4], ARGV[5], ARGV[12], ARGV[6], now, ARGV[11]})
    if refused then
      if holder and type(refused) == 'table' and string.find(refused.err, 'OOM', 1, true) then
        return {redis.call('PTTL', KEYS[1]), holder}
      end
      return refused
    end
    if told == ARGV[4] then
      redis.call('HDEL', KEYS[3], 'told')
    end
  end
  if not holder then
    whose = turn({KEYS[2], KEYS[3], KEYS[1]},
      {ARGV[8], ARGV[9], ARGV[10], ARGV[11], now, ARGV[4], ''})
  end
end
if holder and not mine then
  if not waits then
    return {redis.call('PTTL', KEYS[1]), holder}
  end
  return {redis.call('PTTL', KEYS[1]), holder, elsewhere({KEYS[2]}, {ARGV[4]}), now}
end
if whose and (whose[1] ~= ARGV[4] or ARGV[7] ~= '') then
  return {math.max(1, math.min(whose[2], ARGV[11])), '', -1, now}
end
if waits then
  redis.call('ZREM', KEYS[2], ARGV[4])
  redis.call('HDEL', KEYS[3], ARGV[4], 'told', 'asks:' .. ARGV[4])
elseif ARGV[4] ~= '' then
  place({KEYS[2], KEYS[3]}, {ARGV[4], '', ARGV[12]})
end
if KEYS[4] then
  draw(KEYS[4], ARGV[13])
end
redis.call('HSET', KEYS[1], ARGV[1], '1')
if not mine or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if expires ~= 1 then
    -- Not permitted, say: better no lock than one forever.
    redis.call('DEL', KEYS[1])
    return expires
  end
end
if KEYS[4] then
  return {redis.call('GET', KEYS[4]), elsewhere({KEYS[2]}, {ARGV[4]})}
end
return elsewhere({KEYS[2]}, {ARGV[4]})
