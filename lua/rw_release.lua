-- rw_release: release what a reader or a writer has of a read-write lock, and give the next client
-- its turn if the lock is free.
--
-- KEYS[1]   the lock, as rw_acquire has it
-- KEYS[2]   its queue; and what else fair has
-- KEYS[4]   the marker of the reader; left out for a writer, for which its fencing token, as acquire
--           has it, stands there if ARGV[13] does
-- ARGV[2]   how long the oldest waiter of the client has waited; empty if none waits
-- ARGV[7]   the channel of the lock
-- ARGV[8]   how to publish on it; and what else fair has
-- ARGV[11]  owner
-- ARGV[12]  how long the oldest waiter of the client has waited that wants to write
-- ARGV[13]  the last fencing token that was drawn for this writer; left out if it was used
-- ARGV[14]  the last one that was used
--
-- Replies  number  released: so many clients received the message on the lock's channel; 0, and no
--                  message, if other readers have the lock
--          +GONE   the owner has nothing here; nothing was written
--          +TAKEN  the same, and others have the lock
--
-- The client has drawn more tokens than its writers needed. They are given back: the token is what
-- readers have as that of the last writer. No other owner can have drawn one meanwhile, and none of
-- these will be used any more.
-- The message is 0 after the last reader, 1 after a writer, as Redisson has it.
-- The hash lasts as long as its longest lease, and a reader that has died leaves its field. A writer of this crate
-- looks at the markers; one of Redisson counts on the readers that leave, and so this does what those do: it leaves
-- nothing to the dead, and to others no hash that lasts for more than twice their leases. It looks at four of them, so
-- as to cost the same beside a thousand, and of more it takes the dead out. Their markers are in the slot of the lock,
-- and their names follow from its fields, as those in Redisson's script: they cannot be declared.
-- Why the first write is a DEL or a HDEL is in release, and why what follows is called protected
-- is in fair_release.
-- Why atomic: between "it is mine" and "it is gone" another owner may come in, and between "it
-- is gone" and the message one that does not wait may.

local none_lives = false

-- settle: a reader leaves so many fields behind. The markers of others begin with `prefix`, as its own does.
local function settle(key, fields, prefix)
  local dead, longest, some = {}, -2, redis.call('HRANDFIELD', key, 5, 'WITHVALUES')
  for i = 1, #some, 2 do
    local reader, many, left = some[i], tonumber(some[i + 1]), -2
    for n = 1, many and math.min(many, 16) or 0 do
      local marker = prefix .. reader .. ':rwlock_timeout:' .. n
      local lasts = redis.call('PTTL', marker)
      if lasts == -2 then
        -- Of a slot on its way it may be at the other node: asked for together with the lock, that is an error.
        redis.call('EXISTS', key, marker)
      end
      left = math.max(left, (lasts == -1 or many > 16) and 2 ^ 53 or lasts)
    end
    if many and left <= 0 then
      dead[#dead + 1] = reader
    end
    longest = math.max(longest, left)
  end
  if fields > #some / 2 then
    for _, reader in ipairs(dead) do
      redis.call('HDEL', key, reader)
    end
    none_lives = redis.call('HLEN', key) == 1 and redis.call('DEL', key) == 1
  elseif longest <= 0 then
    none_lives = redis.call('DEL', key) == 1
  elseif longest < redis.call('PTTL', key) then
    redis.call('PEXPIRE', key, longest)
  end
end

-- look_at_others: the same, unless another reader lives, and the hash lasts hardly longer: then, as most times, there is
-- nothing to do. Nor is there beside a writer, whose lease is that of the lock.
local function look_at_others(key, fields)
  local prefix = string.sub(KEYS[4], 1, -#(ARGV[11] .. ':rwlock_timeout:1') - 1)
  local two = redis.call('HRANDFIELD', key, 2, 'WITHVALUES')
  local one = two[1] == 'mode' and 3 or 1
  local lasts = redis.call('PTTL', prefix .. two[one] .. ':rwlock_timeout:' .. two[one + 1])
  local is_over = lasts <= 0 or redis.call('PTTL', key) > 2 * lasts
  if is_over and redis.call('HGET', key, 'mode') == 'read' then
    settle(key, fields, prefix)
  end
end

local failed = lost_field(KEYS[1], ARGV[11])
if failed then
  return failed
end
local marker = not ARGV[13] and KEYS[4]
local fields = redis.call('HLEN', KEYS[1])
local is_last = fields <= 2
if is_last then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], ARGV[11])
end
if marker then
  redis.pcall('DEL', marker)
  if not is_last then
    pcall(look_at_others, KEYS[1], fields - 1)
    is_last = none_lives
  end
elseif not is_last then
  -- Redisson's writer may read, too.
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
if ARGV[13] and redis.pcall('GET', KEYS[4]) == ARGV[13] then
  redis.pcall('SET', KEYS[4], ARGV[14])
end
local ends = is_last or not marker
if ARGV[2] ~= '' or redis.pcall('EXISTS', KEYS[2]) ~= 0 then
  pcall(function()
    -- Behind   fair
    local now = now_us()
    enter(now, age, ARGV[12])
    if is_last or ends and not writer_waits(now) then
      give_turn(now, nil, client)
    elseif ends then
      -- The writer that waits may have died, and those behind it hear of no release.
      tell_end(0)
    end
  end)
end
if not ends then
  return 0
end
return tonumber(redis.pcall(ARGV[8], ARGV[7], marker and '0' or '1')) or 0
