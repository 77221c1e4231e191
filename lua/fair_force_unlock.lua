-- fair_force_unlock: free a fair lock, whichever owner holds it, and give the next client its
-- turn.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue; and what else fair has
-- ARGV[7]  the channel of the lock
-- ARGV[8]  how to publish on it; and what else fair has
--
-- Replies  number      freed: the next client was notified or has the lock, and so many clients
--                      received the message on the lock's channel
--          +GONE       it was free; nothing was written
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- Why what follows the DEL is protected is in fair_release.
-- Why atomic: the next client has its turn if and only if there was something to free.

local holder, failed = holder_of(KEYS[1])
if not holder then
  return failed or redis.status_reply('GONE')
end
redis.call('DEL', KEYS[1])
if redis.pcall('EXISTS', KEYS[2]) ~= 0 then
  pcall(function()
    -- Behind   fair
    give_turn(now_us(), nil, client)
  end)
end
return tonumber(redis.pcall(ARGV[8], ARGV[7], '0')) or 0
