-- lib: what more than one script does. Each script is sent behind those of these functions
-- that it calls, and no others: to make a function costs the server some time, too.

-- holder_of: who holds a lock; nil if it is free. For a key that is no lock or that the user
-- may not read, nil and an error.
--
-- A lock has one field, and that field is an owner: an id, a colon and a number. HLEN counts
-- the fields, and HRANDFIELD names the only one: a large hash costs no more than a lock, and
-- a free lock costs one look.
local function holder_of(key)
  local fields = redis.pcall('HLEN', key)
  if fields == 0 then
    return nil
  end
  local holder = fields == 1 and redis.call('HRANDFIELD', key)
  if holder and string.find(holder, '^.+:%-?%d+$') then
    return holder
  elseif type(fields) == 'table' then
    return nil, fields
  end
  return nil, redis.error_reply('WRONGTYPE the hash is not a lock')
end

-- lost: what a script replies to an owner that does not hold the lock: +TAKEN if another one
-- does, else +GONE. If this one does, nil and its hold count.
--
-- A key that is no lock is as gone as a free one. Any other error says nothing about who holds
-- the lock, and is the reply.
local function lost(key, owner)
  local fields = redis.pcall('HLEN', key)
  local count = fields == 1 and redis.call('HGET', key, owner)
  if count then
    return nil, count
  elseif type(fields) == 'table' and not string.find(fields.err, 'WRONGTYPE', 1, true) then
    return fields
  end
  local taken = fields == 1 and string.find(redis.call('HRANDFIELD', key), '^.+:%-?%d+$')
  return redis.status_reply(taken and 'TAKEN' or 'GONE')
end

-- draw: so many new fencing tokens, of which it returns the last one, as a string.
--
-- A token is the last one plus one, as Redisson counts it, but at least the server's time in
-- microseconds: so it grows even when the last one was lost.
local function draw(key, many)
  local time = redis.call('TIME')
  local last = time[1] * 1000000 + time[2] + many - 1
  if redis.call('INCRBY', key, many) < last then
    redis.call('SET', key, string.format('%.0f', last))
  end
  return redis.call('GET', key)
end

-- now_us: the server's time, in microseconds.
local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- mode_of: whether readers or a writer have a read-write lock, and one of those that have it; nil
-- if it is free. For a key that is no such lock or that the user may not read, nil, nil and an
-- error.
--
-- Such a lock has the field `mode`, and beside it the fields of the readers, or that of the writer.
-- Two fields are looked at, of which one is that of an owner: a large hash costs no more.
local function mode_of(key)
  local mode = redis.pcall('HGET', key, 'mode')
  if type(mode) == 'table' then
    return nil, nil, mode
  elseif not mode and redis.call('EXISTS', key) == 0 then
    return nil
  end
  local two = redis.call('HRANDFIELD', key, 2)
  local holder = two[1] == 'mode' and two[2] or two[1] or ''
  local is_owner = string.find(holder, '^.+:%-?%d+$') or string.find(holder, '^.+:%-?%d+:write$')
  if is_owner and (mode == 'read' or mode == 'write') then
    return mode, holder
  end
  return nil, nil, redis.error_reply('WRONGTYPE the hash is not a read-write lock')
end

-- lost_field: what a script replies to an owner that has no field in a read-write lock: +TAKEN if
-- others have the lock, else +GONE. If it has one, nil and its count. What else it does is in lost.
local function lost_field(key, field)
  local count = redis.pcall('HGET', key, field)
  if type(count) == 'table' then
    local is_wrong = string.find(count.err, 'WRONGTYPE', 1, true)
    return is_wrong and redis.status_reply('GONE') or count
  elseif count then
    return nil, count
  end
  return redis.status_reply(redis.call('HEXISTS', key, 'mode') == 1 and 'TAKEN' or 'GONE')
end
