-- fair_release: free the fair lock of an owner, and give the next client its turn.
--
-- KEYS[1]   the lock
-- KEYS[2]   its queue; and what else fair has
-- ARGV[2]   how long the oldest waiter of the client has waited; empty if none waits
-- ARGV[7]   the channel of the lock
-- ARGV[8]   how to publish on it; and what else fair has
-- ARGV[11]  owner
--
-- Replies  number  freed: the next client was notified or has the lock, and so many clients
--                  received the message on the lock's channel
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and another owner has the lock
--
-- Why the first write is a DEL is in release.
-- The message on the channel of the lock itself is for plain locks of this name, and for Redisson; it comes
-- last. Of the queue only the first client may listen there, which has its turn, and asks no more for it.
-- What follows the DEL is called protected: the release has happened, whatever stands in the
-- keys of the queue, and an error would say that it had not.
-- Why atomic: between "it is mine" and "it is gone" another owner may come in, and between "it
-- is gone" and the message one that does not wait may.

local failed = lost(KEYS[1], ARGV[11])
if failed then
  return failed
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' or redis.pcall('EXISTS', KEYS[2]) ~= 0 then
  pcall(function()
    -- Behind   fair
    local now = now_us()
    enter(now, age)
    give_turn(now, nil, client)
  end)
end
return tonumber(redis.pcall(ARGV[8], ARGV[7], '0')) or 0
