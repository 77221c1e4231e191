-- rw_rewrite: write what an owner has of a read-write lock again as it is, for the sake of the
-- writing.
--
-- KEYS[1]  the lock, as rw_acquire has it
-- ARGV[1]  owner
--
-- Replies  +OK     written
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and others have the lock
--
-- What that is good for is in rewrite.
-- Why atomic: between "it is mine" and the write the lease may end and another
-- owner may come in, whose lock this would rewrite.

local failed, count = lost_field(KEYS[1], ARGV[1])
if failed then
  return failed
end
redis.call('HSET', KEYS[1], ARGV[1], count)
return redis.status_reply('OK')
