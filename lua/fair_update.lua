-- fair_update: set the hold count and the lease of an owner that has a fair lock.
--
-- Behind   update
--
-- KEYS[1]   the lock
-- KEYS[4]   its fencing token; left out if none is drawn
-- ARGV[7]   the channel of the lock
-- ARGV[8]   how to publish on it; and what else fair has
-- ARGV[11]  owner
-- ARGV[12]  hold count to reach: at least 1, and no more than the owner has
-- ARGV[13]  lease in milliseconds, a whole number, at least 1
-- ARGV[14]  how many fencing tokens to draw
-- ARGV[15]  as update has it: 0, or empty if no release follows
--
-- Replies  an      array of two: the reply of update, and how long the oldest waiter of other
--                  clients has waited, in microseconds (-1: there is none, or it is not known)
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and another owner has the lock
--
-- The entry was that of the waiter that is inside now. From here on it is that of the next
-- one, which so need not ask for it.
-- If the lease ends sooner than the one that was in force, as update has it, a message has the
-- first client ask when it ends, and the second when the grace of the first is over.
-- What follows the update is called protected: it has happened.
-- Why atomic: between the new lease and the entry, this client could be notified of its turn
-- twice, or never.

local owner, count, lease, tokens = ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local updated, sooner =
  update({KEYS[1], KEYS[4]}, {owner, count, lease, tokens, ARGV[7], '', ARGV[8], ARGV[15]})
if not updated[1] then
  return updated
end
local oldest = -1
pcall(function()
  -- Behind   fair
  local now = now_us()
  enter(now, age)
  if sooner then
    tell_end(lease)
  end
  oldest = oldest_foreign(now)
end)
return {updated, oldest}
