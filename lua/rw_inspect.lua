-- rw_inspect: read who has a read-write lock, and for how long.
--
-- KEYS[1]  the lock, as rw_acquire has it
-- ARGV[1]  the owner whose holds the script counts
-- ARGV[2]  a client, whose owners that have the lock the script names; may be left out
--
-- Replies  nil         free
--          an          array of four or five: what PTTL says of the longest lease (-1: it has
--                      none), the hold count of ARGV[1] (0: it has none), one of those that have
--                      the lock, `read` or `write`, and the owners of ARGV[2]
--          -WRONGTYPE  the key is a hash, but not a read-write lock
--
-- Of more fields than 1,000 the script looks at a random 1,000: when a replica has taken over, all
-- clients ask in the same moment.
-- Why atomic: the parts of the answer are about the same holders.

local mode, holder, failed = mode_of(KEYS[1])
if not mode then
  return failed or nil
end
local own
if ARGV[2] then
  own = {}
  for _, field in ipairs(redis.call('HRANDFIELD', KEYS[1], 1000)) do
    if string.find(field, ARGV[2] .. ':', 1, true) == 1 then
      own[#own + 1] = field
    end
  end
end
return {redis.call('PTTL', KEYS[1]), redis.call('HGET', KEYS[1], ARGV[1]) or 0, holder, mode, own}
