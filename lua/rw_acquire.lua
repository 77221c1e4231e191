-- rw_acquire: let a reader or a writer have a read-write lock if it is its client's turn, and enter
-- the client into the queue if not.
--
-- KEYS[1]   the lock: a hash with the field `mode`, `read` or `write`, and owner -> 1 for each
--           reader, or the owner of the writer -> hold count
-- KEYS[2]   its queue
-- KEYS[3]   its waiting clients
-- KEYS[4]   the marker of the reader: a string with the TTL of its lease. For a writer that of the
--           reader of ARGV[17], and left out if there is none
-- KEYS[k]   the markers of the readers at which a writer looks: those of ARGV[a]
-- KEYS[#KEYS]  its fencing token, as acquire has it; left out if ARGV[10] is 0
-- ARGV[2]   how long the oldest waiter of the client has waited; empty for a call that takes
--           no entry; and what else fair has
-- ARGV[6]   the grace: a writer behind readers at which it has not looked asks again after that
-- ARGV[10]  how many fencing tokens a writer draws; 1 for a reader that asks for the last one; 0 if
--           the lock is not fenced or the hold is a nested one
-- ARGV[11]  owner; that of a writer has `:write` at its end
-- ARGV[12]  lease in milliseconds, a whole number, at least 1
-- ARGV[13]  1 for a first hold; for a nested one more, which is the hold count to reach of a writer.
--           That of a reader stays 1: all readers of a client are one
-- ARGV[14]  `read` or `write`
-- ARGV[15]  1 if the oldest waiter is another one, as fair_acquire has it; else empty
-- ARGV[16]  1 if a nested hold of a reader waits for its turn as if it were a first one; else empty
-- ARGV[17]  the owner beside which it is to stand: of a reader the writer, of a writer the only
--           reader. Both are of one handle. Empty for any other
-- ARGV[18]  how long the oldest waiter of the client has waited that wants to write, as ARGV[2]
-- ARGV[a]   a reader at which a writer looks,
-- ARGV[a+1] and its count, which is the number of its markers
--
-- Replies  an          array, granted or refused: nil, or the last of the fencing tokens, or an array
--                      of two, what PTTL says of the lease of the holders, and one of these, as
--                      acquire has them; then how long the oldest waiter of other clients has
--                      waited and the server's clock, as fair_acquire has them; then the readers
--                      because of which a writer is refused, and their counts, 64 at most, if it
--                      has looked at none, or at dead ones and not at all. A refusal has no holder
--                      if another client has its turn
--          nil         granted; a nested hold that waited for nothing
--          +GONE       the outer holds, on which a nested one was to stand, or the owner of
--                      ARGV[17] no longer exist; nothing was written
--          +TAKEN      the same, and others have the lock
--          -ERR        the fencing token is not a number; the reader has nothing
--          -WRONGTYPE  the key is a hash, but not a read-write lock; nothing was written. The same,
--                      and `key 2` or `key 3`: that one is of another type than the queue has
--
-- The lock is Redisson's. Its readers have a marker each, because the hash lasts as long as the
-- longest lease: a reader whose markers have ended has died, and a writer takes its field out. So
-- a writer that is refused asks again, with the markers of the readers as declared keys. The reply
-- says when the first of these leases could end.
-- What this sent twice does, and why the entry goes before the lock comes, is in fair_acquire. A
-- hold that is there already never gets a shorter lease.
-- Readers do not wait for each other: one has its turn if no writer of another client came before
-- it, and its reply says of the other clients how long the oldest writer has waited. It passes the
-- turn on: the next client may want to read, too. A message has the next client ask after the
-- grace: a writer may be the first then, and not know it. Another one says if the lease ends before that.
-- A refusal passes the turn on, too, while there are readers: the entry of the client may have been that of a writer
-- until now, behind which others wait that want to read.
-- A handle that writes may read, too, and one that is the only reader may write: it waits for
-- nothing. The lock is then one to write, with both owners, as that of a writer of Redisson that
-- reads. All readers of a client are one owner, and this one is let in beside the writer because
-- it is of the same handle: so it is refused there unless it names the writer, also if it has a
-- hold already.
-- A reader that dies leaves its lease to the others, as one does that leaves many behind, and beside a writer no client
-- looks at markers. So one that comes to its own only reader sets the TTL to the longer lease of the two.
-- Why atomic: between "it is my turn" and "it is mine" no other owner may come in, and
-- between "it is not" and my entry no release may pass.

local key, owner, lease, count, wants = KEYS[1], ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local is_of_another, in_turn, beside = ARGV[15] ~= '', ARGV[16] ~= '', ARGV[17]
local writer_waited = ARGV[18]
local mode, holder, failed = mode_of(key)
if failed then
  return failed
end
local k, a, soonest, alive, died = beside ~= '' and 5 or 4, 19, nil, 0, false
while mode == 'read' and ARGV[a] do
  local longest = -2
  for _ = 1, ARGV[a + 1] do
    local left = redis.call('PTTL', KEYS[k])
    longest = math.max(longest, left == -1 and 2 ^ 53 or left)
    k = k + 1
  end
  if longest > 0 then
    soonest, alive = math.min(soonest or longest, longest), alive + 1
  elseif redis.call('HGET', key, ARGV[a]) == ARGV[a + 1] then
    died = redis.call('HDEL', key, ARGV[a])
  end
  a = a + 2
end
if a > 19 and redis.call('HLEN', key) == 1 then
  redis.call('DEL', key)
  mode, holder = nil, nil
end
local has = mode and redis.call('HEXISTS', key, owner) == 1
local stands = beside ~= '' and mode and redis.call('HEXISTS', key, beside) == 1
if not has and (count ~= '1' or beside ~= '' and not stands) then
  return redis.status_reply(mode and 'TAKEN' or 'GONE')
end
local joins = stands and mode ~= wants and (wants == 'read' or redis.call('HLEN', key) == 2)
local fits = not mode or joins or mode == wants and (has or wants == 'read')
local asks, is_free = not joins and (not has or in_turn), not mode

-- What a refusal says of those that have the lock.
local function refused(foreign, now, is_first)
  local left, named = redis.call('PTTL', key), false
  if soonest then
    left = left < 0 and soonest or math.min(left, soonest)
  end
  if mode == 'read' and redis.call('HLEN', key) > alive + (stands and 2 or 1) then
    if not soonest or died then
      named = redis.call('HRANDFIELD', key, 64, 'WITHVALUES')
    else
      -- Behind those that live may be dead ones, for which no message comes.
      left = math.min(left, tonumber(ARGV[6]))
    end
  end
  return {{left, holder}, foreign, now, named, is_first}
end

local oldest = -1
local looks = asks or not fits or count == '1' or ARGV[2] ~= ''
if looks and (is_of_another or redis.call('EXISTS', key, KEYS[2], KEYS[3]) > 0) then
  if not fits and ARGV[2] == '' then
    return refused(false, false)
  end
  -- Behind   fair
  local asking = age ~= '' and asks and client or nil
  local now, notified = now_us(), redis.pcall('HGET', waiting, 'notified')
  local entered = false
  if type(notified) ~= 'table' then
    entered = asking and enter(now, age, writer_waited) or not asking and redis.pcall('ZSCORE', queue, client)
  end
  for i, look in ipairs({entered, notified}) do
    if type(look) == 'table' and string.find(look.err, 'WRONGTYPE', 1, true) then
      return redis.error_reply('WRONGTYPE key ' .. i + 1 .. ' is not of a queue')
    elseif type(look) == 'table' and not fits and string.find(look.err, 'OOM', 1, true) then
      return refused(false, false)
    elseif type(look) == 'table' then
      return look
    end
  end
  if asking and notified == client then
    redis.call('HDEL', waiting, 'notified')
  end
  local passes_on = asking and mode == 'read' and not writer_waits(now)
  if not fits then
    if passes_on then
      give_turn(now, asking)
    end
    local others, is_first = oldest_foreign(now)
    return refused(others, now, is_first)
  elseif asks then
    local is_own = asking and not is_of_another
    local first, left
    if is_free then
      first, left = give_turn(now, asking)
    end
    if wants == 'read' then
      local came = is_own and tonumber(redis.call('ZSCORE', queue, client))
      local _, alive = oldest_writer(now, came and client, came or math.huge)
      left = alive and (left or alive)
    elseif first == nil or first == asking and is_own then
      left = nil
    end
    if left then
      if passes_on then
        give_turn(now, asking)
      end
      -- The readers may have died, and that writer: then Redis publishes nothing when their leases end.
      local lasts = is_free and grace or redis.call('PTTL', key)
      return {{math.max(1, lasts < 0 and left or math.min(left, lasts)), ''}, false, now}
    end
  end
  if asking and wants == 'read' then
    stand_for_writer()
  elseif asking then
    drop(client, 'notified')
  elseif age ~= '' and wants == 'write' then
    enter(now, '')
  end
  oldest = oldest_foreign(now)
  if asks and oldest >= 0 then
    if wants == 'read' and not writer_waits(now) then
      give_turn(now)
    elseif wants == 'read' then
      tell_end(math.min(tonumber(lease), grace))
    elseif tonumber(lease) < grace or notified ~= client then
      tell_end(lease)
    end
    if wants == 'read' then
      local came = oldest_writer(now, client, math.huge)
      oldest = came and math.max(0, now - came) or -1
    end
  end
end
local token = false
if ARGV[10] ~= '0' and wants == 'write' then
  token = draw(KEYS[#KEYS], ARGV[10])
elseif ARGV[10] ~= '0' then
  token = redis.call('GET', KEYS[#KEYS])
  token = token ~= '0' and token
  if token and not string.find(token, '^%d+$') then
    return redis.error_reply('ERR the fencing token is not a number')
  end
end
if wants == 'read' then
  local kept = math.max(tonumber(lease), redis.call('PTTL', KEYS[4]))
  local marked = redis.pcall('SET', KEYS[4], 1, 'PX', string.format('%.0f', kept))
  if marked.err then
    return marked
  end
end
redis.call('HSET', key, 'mode', joins and 'write' or wants, owner, wants == 'read' and 1 or count)
local upgrades, kept = joins and wants == 'write', tonumber(lease)
if upgrades then
  kept = math.max(kept, redis.call('PTTL', KEYS[4]))
end
if not mode or upgrades or redis.call('PTTL', key) < kept then
  local expires = redis.pcall('PEXPIRE', key, string.format('%.0f', kept))
  if expires ~= 1 then
    if not mode then
      -- Not permitted, say: better no lock than one forever.
      redis.call('DEL', key)
    elseif not has then
      redis.call('HDEL', key, owner)
      redis.call('HSET', key, 'mode', mode)
    end
    return expires
  end
end
if asks or count == '1' then
  return {token, oldest}
end
return nil
