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
-- The count to reach is absolute, so this sent twice counts once. A first hold
-- that finds the field already there takes over what is left of an earlier
-- hold of the same owner, whose release never arrived. Neither that nor a nested
-- hold ever shortens the lease in force: a refusal has reported it to the waiters,
-- and they would not recheck sooner.
-- A client draws several tokens at once, for the holders to which it hands the lock on.
-- They come first, because nothing is written yet if that is refused.
-- Why atomic: between "is it free" and "it is mine" no other owner may come in,
-- and no client may ever see a hash without a TTL.

local key, owner, lease, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local holder, failed = holder_of(key)
if failed then
  return failed
elseif holder ~= owner and count ~= '1' then
  return redis.status_reply(holder and 'TAKEN' or 'GONE')
elseif holder and holder ~= owner then
  return {redis.call('PTTL', key), holder}
end
local token = KEYS[2] and draw(KEYS[2], ARGV[4])
redis.call('HSET', key, owner, count)
if not holder or redis.call('PTTL', key) < tonumber(lease) then
  local expires = redis.pcall('PEXPIRE', key, lease)
  if expires ~= 1 then
    if count == '1' then
      -- Not permitted, say: better no lock than one forever.
      redis.call('DEL', key)
    end
    return expires
  end
end
return token
