-- acquire: let an owner reach a hold count, if the name is free or its own.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its fencing token, a number that only grows; left out if the lock is not
--          fenced or the hold is a nested one
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds, a whole number, at least 1
-- ARGV[3]  hold count to reach: 1 for a first hold, more for a nested one
-- ARGV[4]  how many fencing tokens to draw, if the lock is fenced
--
-- Replies  nil         granted; the count is ARGV[3]
--          string      granted; the last of the fencing tokens drawn
--          an          array of two, refused: what PTTL says of the holder's lease
--                      (-1: it has none), and the holder, who is another owner
--          +GONE       the outer holds, on which a nested one was to stand, no
--                      longer exist; nothing was written
--          +TAKEN      the same, and another owner has the lock
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- A lock has one field, and that field is an owner: an id, a colon and a number.
-- HLEN counts the fields, and HRANDFIELD names the only one: a large hash costs no
-- more than a lock, and a free lock costs one look.
-- The count to reach is absolute, so this sent twice counts once. A first hold
-- that finds the field already there takes over what is left of an earlier
-- hold of the same owner, whose release never arrived. Neither that nor a nested
-- hold ever shortens the lease in force: a refusal has reported it to the waiters,
-- and they would not recheck sooner.
-- A token is the last one plus one, as Redisson counts it, but at least the
-- server's time in microseconds: so it grows even when the last one was lost. A
-- client draws several at once for the holders to which it hands the lock on.
-- It comes first, because nothing is written yet if it is refused.
-- Why atomic: between "is it free" and "it is mine" no other owner may come in,
-- and no client may ever see a hash without a TTL.

local fields = redis.call('HLEN', KEYS[1])
local holder = nil
if fields > 0 then
  holder = redis.call('HRANDFIELD', KEYS[1])
  if fields > 1 or not string.find(holder, '^.+:%-?%d+$') then
    return redis.error_reply('WRONGTYPE the hash is not a lock')
  end
end
if ARGV[3] ~= '1' then
  if not holder then
    return redis.status_reply('GONE')
  elseif holder ~= ARGV[1] then
    return redis.status_reply('TAKEN')
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return nil
end
if holder and holder ~= ARGV[1] then
  return {redis.call('PTTL', KEYS[1]), holder}
end
if KEYS[2] then
  local time = redis.call('TIME')
  local last = time[1] * 1000000 + time[2] + ARGV[4] - 1
  if redis.call('INCRBY', KEYS[2], ARGV[4]) < last then
    redis.call('SET', KEYS[2], string.format('%.0f', last))
  end
end
redis.call('HSET', KEYS[1], ARGV[1], '1')
if holder and redis.call('PTTL', KEYS[1]) >= tonumber(ARGV[2]) then
  return KEYS[2] and redis.call('GET', KEYS[2]) or nil
end
local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if expires ~= 1 then
  -- Not permitted, say: better no lock than one forever.
  redis.call('DEL', KEYS[1])
  return expires
end
if KEYS[2] then
  return redis.call('GET', KEYS[2])
end
return nil
