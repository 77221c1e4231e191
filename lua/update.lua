-- update: set the hold count and the lease of an owner that has the lock.
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
-- ARGV[8]  how many of its subscribers are this client: 0 or 1; empty if no release follows, because
--          no handle is inside, and all have to hear that it ends sooner
--
-- Replies  an      array of two: how many clients are subscribed to the channel (-1: that is
--                  not known), and the last token drawn (0: none)
--          +GONE   the owner holds nothing here; nothing was written
--          +TAKEN  the same, and another owner has the lock
--
-- The client sends this when another holder is inside under the same owner: the lock was
-- handed off without a word to Redis, or is about to be, and count and lease are that
-- one's now. It sends this also when holds of an owner are given back, but not all, and
-- when the last one is, and the lock is to stay for a while.
-- The count and the lease are absolute, so this sent twice counts once. (It draws
-- tokens twice: the first ones are never given to a hold.)
-- A refusal has reported the lease in force to the waiters, and they recheck when it
-- ends. So if it ends sooner now, this publishes the message of a release, which every
-- client understands: if it ends sooner by more than the 50 ms by which a waiter may be
-- late. This client knows without a message.
-- If no release follows, the message that wakes all threads of a Redisson comes before it: that
-- of a release wakes one, which passes nothing on. The other is for a thread that has yet to park.
-- The first write is a PEXPIRE because Redis allows that when its memory is full,
-- and after the first allowed write it lets the script finish. What may be refused
-- all the same is called protected: without tokens the next hold draws its own.
-- Up to Redis 7.0 a PEXPIRE can find that the time is over which it was given a moment
-- before. It deletes the key then, and an HSET would leave one without an end.
-- For fair_update it also returns whether the lease ends sooner.
-- Why atomic: between "it is mine" and the new lease the old one may end and another
-- owner may come in, whose lock this would change.

local key, owner, count, lease = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local channel, numsub, publish, ours = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local failed, held = lost(key, owner)
if failed then
  return failed
end
local remaining = redis.call('PTTL', key)
redis.call('PEXPIRE', key, lease)
if tonumber(held) > tonumber(count) and redis.call('HLEN', key) > 0 then
  redis.call('HSET', key, owner, count)
end
local token = nil
if KEYS[2] then
  local drawn, last = pcall(draw, KEYS[2], ARGV[4])
  token = drawn and last
end
local subscribers = numsub ~= '' and redis.pcall('PUBSUB', numsub, channel)
local listening = subscribers and subscribers[2] or -1
local sooner = remaining < 0 or remaining > tonumber(lease) + 50
if sooner and ours == '' then
  redis.pcall(publish, channel, '1')
end
if sooner and (ours == '' or listening < 0 or listening > tonumber(ours)) then
  redis.pcall(publish, channel, '0')
end
return {listening, token or 0}, sooner
