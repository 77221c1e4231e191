-- fair_release: free the fair lock of an owner, and tell the client whose turn it is.
--
-- Behind   fair_turn, fair_place
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its queue, as fair_turn has it
-- KEYS[3]  its waiting clients, as fair_turn has them
-- ARGV[1]  owner
-- ARGV[2]  the channel of the lock
-- ARGV[3]  how to publish on it, as fair_turn has it
-- ARGV[4]  whether that counts all subscribers, as fair_turn has it
-- ARGV[5]  the client that releases
-- ARGV[6]  how long its oldest waiter has waited, in microseconds; empty if none waits
-- ARGV[7]  term in milliseconds, as fair_place has it
-- ARGV[8]  grace in milliseconds, as fair_turn has it
-- ARGV[9]  how it has its turn, and the number of that waiter, as fair_place has it
--
-- Replies  number  freed: the next client was told or has the lock, and so many clients
--                  received the message on the lock's channel
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and another owner has the lock
--
-- Why the first write is a DEL is in release.
-- On the channel of the lock itself no client waits in the queue: the message there is
-- for plain locks of this name, and comes last.
-- What follows the DEL is called protected: the release has happened, whatever stands
-- in the keys of the queue, and an error would say that it had not.
-- Why atomic: between "it is mine" and "it is gone" another owner may come in, and
-- between "it is gone" and the message one that does not wait may.

local failed = lost(KEYS[1], ARGV[1])
if failed then
  return failed
end
redis.call('DEL', KEYS[1])
pcall(function()
  if ARGV[6] == '' and redis.call('EXISTS', KEYS[2]) == 0 then
    return
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  place({KEYS[2], KEYS[3]}, {ARGV[5], ARGV[6], ARGV[9], ARGV[7], now, ARGV[8]})
  redis.call('HDEL', KEYS[3], 'told')
  turn({KEYS[2], KEYS[3], KEYS[1]}, {ARGV[2], ARGV[3], ARGV[4], ARGV[8], now, '', ARGV[5]})
end)
return tonumber(redis.pcall(ARGV[3], ARGV[2], '0')) or 0
