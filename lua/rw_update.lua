-- rw_update: set the hold count and the lease of a reader or a writer that has a read-write lock.
--
-- KEYS[1]   the lock, as rw_acquire has it
-- KEYS[4]   the marker of the reader, or of the reader of ARGV[15]; left out if there is none
-- KEYS[#KEYS]  the fencing token of a writer, as acquire has it; left out if ARGV[10] is 0; and what
--           else fair has
-- ARGV[7]   the channel of the lock
-- ARGV[8]   how to publish on it; and what else fair has
-- ARGV[10]  how many fencing tokens a writer draws; 0 for a reader
-- ARGV[11]  owner
-- ARGV[12]  hold count to reach: at least 1, and no more than the owner has
-- ARGV[13]  lease in milliseconds, a whole number, at least 1
-- ARGV[14]  how long the oldest waiter of the client has waited that wants to write
-- ARGV[15]  the reader of the same handle that may be beside a writer; left out if none has been
--
-- Replies  an      array of two: as update has it, but that nothing is known of listeners;
--                  and how long the oldest waiter of other clients has waited, in microseconds
--                  (-1: there is none, or it is not known)
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and others have the lock
--
-- The lease of one reader of several is that of its marker: the hash lasts as long as the longest.
-- Beside a writer it lasts as long as the longer lease of the two: no client looks at the marker then.
-- If it lasts for less now, a message says so: to all that wait in Redisson, and to the first two
-- clients in the queue, as fair_update does it. These hear of the marker of one of several, too:
-- the others may be gone when that ends.
-- The first write is a PEXPIRE because Redis allows that when its memory is full. It may delete the
-- key, as in update. What follows the update is called protected: it has happened.
-- Why atomic: between "it is mine" and the new lease the old one may end and another
-- owner may come in, whose lock this would change.

local key, owner, count, lease = KEYS[1], ARGV[11], ARGV[12], ARGV[13]
local beside = ARGV[15]
local marker = ARGV[10] == '0' and not beside and KEYS[4]
local failed, held = lost_field(key, owner)
if failed then
  return failed
end
local remaining = redis.call('PTTL', key)
local fields = redis.call('HLEN', key)
if beside and redis.call('HEXISTS', key, beside) == 1 then
  fields = fields - 1
  lease = string.format('%.0f', math.max(tonumber(lease), redis.call('PTTL', KEYS[4])))
end
local is_alone = fields <= 2
if is_alone or remaining < tonumber(lease) then
  redis.call('PEXPIRE', key, lease)
end
local before = remaining
if marker and not is_alone then
  before = redis.call('PTTL', marker)
end
if marker then
  if redis.call('PEXPIRE', marker, lease) == 0 then
    redis.call('SET', marker, 1, 'PX', lease)
  end
elseif tonumber(held) > tonumber(count) and redis.call('HLEN', key) > 0 then
  redis.call('HSET', key, owner, count)
end
local token, oldest = 0, -1
if ARGV[10] ~= '0' then
  local drawn, last = pcall(draw, KEYS[#KEYS], ARGV[10])
  token = drawn and last or 0
end
pcall(function()
  -- Behind   fair
  local now = now_us()
  enter(now, age, ARGV[14])
  if (is_alone or marker) and (before == -1 or before > tonumber(lease) + 50) then
    if is_alone then
      redis.pcall(ARGV[8], ARGV[7], marker and '0' or '1')
    end
    tell_end(lease)
  end
  oldest = oldest_foreign(now)
end)
return {{-1, token}, oldest}
