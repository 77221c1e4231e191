-- rewrite: write a lock again as it is, for the sake of the writing.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  owner
--
-- Replies  +OK     written
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and another owner has the lock
--
-- A WAIT is about what was written on its own connection, and all that the server
-- wrote before. This writes on the connection that waits: one of many locks that
-- were granted on other connections stands for all of them.
-- Why atomic: between "it is mine" and the write the lease may end and another
-- owner may come in, whose lock this would rewrite.

local failed, count = lost(KEYS[1], ARGV[1])
if failed then
  return failed
end
redis.call('HSET', KEYS[1], ARGV[1], count)
return redis.status_reply('OK')
