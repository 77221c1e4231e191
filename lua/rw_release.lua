-- rw_release: release what a reader or a writer has of a read-write lock, and give the next client
-- its turn if the lock is free.
--
-- KEYS[1]   the lock, as rw_acquire has it
-- KEYS[2]   its queue; and what else fair has
-- KEYS[4]   the marker of the reader; left out for a writer, for which its fencing token, as acquire
--           has it, stands there if ARGV[13] does
-- ARGV[2]   how long the oldest waiter of the client has waited; empty if none waits
-- ARGV[7]   the channel of the lock
-- ARGV[8]   how to publish on it; and what else fair has
-- ARGV[11]  owner
-- ARGV[12]  how long the oldest waiter of the client has waited that wants to write
-- ARGV[13]  the last fencing token that was drawn for this writer; left out if it was used
-- ARGV[14]  the last one that was used
--
-- Replies  number  released: so many clients received the message on the lock's channel; 0, and no
--                  message, if other readers have the lock
--          +GONE   the owner has nothing here; nothing was written
--          +TAKEN  the same, and others have the lock
--
-- The client has drawn more tokens than its writers needed. They are given back: the token is what
-- readers have as that of the last writer. No other owner can have drawn one meanwhile, and none of
-- these will be used any more.
-- The message is 0 after the last reader, 1 after a writer, as Redisson has it.
-- Why the first write is a DEL or a HDEL is in release, and why what follows is called protected
-- is in fair_release.
-- Why atomic: between "it is mine" and "it is gone" another owner may come in, and between "it
-- is gone" and the message one that does not wait may.

local failed = lost_field(KEYS[1], ARGV[11])
if failed then
  return failed
end
local marker = not ARGV[13] and KEYS[4]
local is_last = redis.call('HLEN', KEYS[1]) <= 2
if is_last then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], ARGV[11])
end
if marker then
  redis.call('DEL', marker)
elseif not is_last then
  -- Redisson's writer may read, too.
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
if ARGV[13] and redis.pcall('GET', KEYS[4]) == ARGV[13] then
  redis.pcall('SET', KEYS[4], ARGV[14])
end
local ends = is_last or not marker
if ARGV[2] ~= '' or redis.call('EXISTS', KEYS[2]) == 1 then
  pcall(function()
    -- Behind   fair
    local now = now_us()
    enter(now, age, ARGV[12])
    if is_last or ends and not writer_waits(now) then
      give_turn(now, nil, client)
    end
  end)
end
if not ends then
  return 0
end
return tonumber(redis.pcall(ARGV[8], ARGV[7], marker and '0' or '1')) or 0
