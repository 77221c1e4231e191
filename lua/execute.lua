-- execute: run a caller's commands, if an owner still holds the lock.
--
-- KEYS[1]    the lock: a hash with one field, owner -> hold count
--            (behind it come the keys of the commands, for a cluster and for permissions)
-- ARGV[1]    owner
-- ARGV[at]   for each command: of how many words it is,
-- ARGV[i]    and then its words: its name and its arguments
--
-- Replies  an      array in the order of the commands, as far as they were run
--          reply   what the command replied; an error is the last one
--          +GONE   not held by that owner, or not a lock; nothing was written
--          +TAKEN  held by another owner; nothing was written
--
-- The lock is written again as it is before the first command: a server that may
-- not write now (a replica, say, or one whose memory is full) replies with its
-- error before anything is written, and the client may send all of it again.
-- So an error further on is that of a command. The commands before it stay
-- executed, because Redis undoes nothing, and those behind it are not run.
-- Sent twice, it would run the commands twice: the client never does that.
-- Why atomic: between "it is mine" and the last command the lease may end, and
-- another owner may come in, under whose lock these commands would write.

local failed, count = lost(KEYS[1], ARGV[1])
if failed then
  return failed
end
redis.call('HSET', KEYS[1], ARGV[1], count)
local replies, at = {}, 2
while ARGV[at] do
  local last = at + ARGV[at]
  local reply = redis.pcall(unpack(ARGV, at + 1, last))
  replies[#replies + 1] = reply
  if type(reply) == 'table' and reply.err then
    break
  end
  at = last + 1
end
return replies
