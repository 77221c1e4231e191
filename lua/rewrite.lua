-- rewrite: write a lock again as it is, for the sake of the writing.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- ARGV[1]  owner
--
-- Replies  0  the owner holds nothing here; nothing was written
--          1  written
--
-- A WAIT is about what was written on its own connection, and all that the server
-- wrote before. This writes on the connection that waits: one of many locks that
-- were granted on other connections stands for all of them.
-- Why atomic: between "it is mine" and the write the lease may end and another
-- owner may come in, whose lock this would rewrite.

local held = redis.call('HLEN', KEYS[1]) == 1 and redis.call('HGET', KEYS[1], ARGV[1])
if not held then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], held)
return 1
