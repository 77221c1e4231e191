-- prolong: set the hold count and the lease of an owner that has the lock.
--
-- KEYS[1]  the lock: a hash with one field, owner -> hold count
-- KEYS[2]  its fencing token, as acquire has it; left out if none is drawn
-- ARGV[1]  owner
-- ARGV[2]  hold count to reach: at least 1, and no more than the owner has
-- ARGV[3]  lease in milliseconds, a whole number, at least 1
-- ARGV[4]  how many fencing tokens to draw
-- ARGV[5]  the channel to which a release would be published
-- ARGV[6]  how to count its subscribers: NUMSUB, or SHARDNUMSUB in a cluster with
--          sharded channels; empty if this server does not know them all
-- ARGV[7]  the command that publishes: PUBLISH, or SPUBLISH in a cluster with
--          sharded channels
-- ARGV[8]  how many of its subscribers are this client: 0 or 1
--
-- Replies  0           the owner holds nothing here; nothing was written
--          -1          the same, and another owner has the lock
--          an          array of two: how many clients are subscribed to the channel
--                      (-1: that is not known), and the last token drawn (0: none)
--          -WRONGTYPE  the key is a hash, but not a lock; nothing was written
--
-- What makes a hash a lock is in acquire, and so is what a token is.
-- The client sends this when holds of an owner are given back, but not all, and when
-- another holder is inside under the same owner: the lock was handed off without a word
-- to Redis, and count and lease are that one's now.
-- The count and the lease are absolute, so this sent twice counts once. (It draws
-- tokens twice: the first ones are never given to a hold.)
-- A refusal has reported the lease in force to the waiters, and they recheck when it
-- ends. So if it ends sooner now, this publishes the message of a release, which every
-- client understands: if it ends sooner by more than the 50 ms by which a waiter may be
-- late. This client knows without a message.
-- The first write is a PEXPIRE because Redis allows that when its memory is full,
-- and after the first allowed write it lets the script finish. What may be refused
-- all the same is called protected: without tokens the next hold draws its own.
-- Why atomic: between "it is mine" and the new lease the old one may end and another
-- owner may come in, whose lock this would change.

local fields = redis.call('HLEN', KEYS[1])
if fields > 1 then
  return redis.error_reply('WRONGTYPE the hash is not a lock')
end
local held = fields == 1 and redis.call('HGET', KEYS[1], ARGV[1])
if not held then
  if fields == 1 and string.find(redis.call('HRANDFIELD', KEYS[1]), '^.+:%-?%d+$') then
    return -1
  end
  return 0
end
local remaining = redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
if tonumber(held) > tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
local token = 0
if KEYS[2] then
  local time = redis.call('TIME')
  local last = time[1] * 1000000 + time[2] + ARGV[4] - 1
  local drawn = redis.pcall('INCRBY', KEYS[2], ARGV[4])
  if type(drawn) == 'number' then
    if drawn < last then
      redis.call('SET', KEYS[2], string.format('%.0f', last))
    end
    token = redis.call('GET', KEYS[2])
  end
end
local subscribers = {}
if ARGV[6] ~= '' then
  subscribers = redis.pcall('PUBSUB', ARGV[6], ARGV[5])
end
local listening = subscribers[2] or -1
local shorter = remaining < 0 or remaining > tonumber(ARGV[3]) + 50
if shorter and (listening < 0 or listening > tonumber(ARGV[8])) then
  redis.pcall(ARGV[7], ARGV[5], '0')
end
return {listening, token}
