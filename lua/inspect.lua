-- inspect: read who holds a lock, how often, and for how long.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  the owner whose holds the script counts
--
-- Replies  nil         free
--          an          array of three: what PTTL says of the holder's lease (-1: it
--                      has none), the hold count of ARGV[1] (0: it is not the
--                      holder), and the holder
--          -WRONGTYPE  the key is a hash, but not a lock
--
-- What makes a hash a lock is in acquire.
-- Why atomic: the three parts of the answer are about the same holder.

local fields = redis.call('HLEN', KEYS[1])
if fields == 0 then
  return nil
end
local holder = redis.call('HRANDFIELD', KEYS[1])
if fields > 1 or not string.find(holder, '^.+:%-?%d+$') then
  return redis.error_reply('WRONGTYPE the hash is not a lock')
end
return {redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[1], ARGV[1]) or 0, holder}
