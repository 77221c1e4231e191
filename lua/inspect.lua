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
-- Why atomic: the three parts of the answer are about the same holder.

local holder, failed = holder_of(KEYS[1])
if not holder then
  return failed or nil
end
return {redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[1], ARGV[1]) or 0, holder}
