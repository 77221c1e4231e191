-- What the scripts of a simulated server find, and how they are run.
--
-- Arguments  the functions that the server gives, for `redis` and for `math`; what
--            the errors of Lua begin with
-- Returns    run      calls a script with its keys and arguments: true and what it returns, or
--                     false, its error, and the line of it
--            protect  gives a script its surroundings, in which it can leave nothing behind
--
-- A script sees an empty table. What it looks for there is found in `inside`, which it cannot
-- change.

local redis, random, code = ...
local where, raised_text = redis.where, redis.raised
local error, type, tostring = error, type, tostring
local xpcall, rawpcall, rawset, setmetatable, setfenv = xpcall, pcall, rawset, setmetatable, setfenv
redis.where, redis.raised = nil, nil

function redis.replicate_commands()
  return true
end

for name, value in pairs({ LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3 }) do
  redis[name] = value
end

-- What was raised, as a script may see it.
local function text_of(raised)
  if type(raised) == 'userdata' then
    return raised_text(raised)
  elseif type(raised) == 'table' and type(raised.err) == 'string' then
    return raised.err
  end
  return nil
end

local function caught(ok, ...)
  if not ok then
    local raised = ...
    local text = text_of(raised)
    return false, text or raised
  end
  return ok, ...
end

local inside = {}
for _, name in ipairs({
  'xpcall', 'tostring', 'getfenv', 'setmetatable', 'next', 'assert', 'tonumber', 'rawequal',
  'collectgarbage', 'getmetatable', 'rawset', 'coroutine', 'type', 'select', 'unpack', 'gcinfo',
  'pairs', 'rawget', 'loadstring', 'ipairs', '_VERSION', 'setfenv', 'load', 'error', 'newproxy',
  'string', 'table', 'math', 'pcall',
}) do
  inside[name] = _G[name]
end
inside.redis = redis
inside.pcall = function(...)
  return caught(rawpcall(...))
end
inside.math.random, inside.math.randomseed = random.random, random.randomseed

local function unknown(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end
setmetatable(inside, { __index = unknown })
local outside = {}
inside._G = outside
setmetatable(outside, {
  __index = inside,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

local line = nil
local function handler(raised)
  if code == '' and type(raised) == 'table' then
    -- The handler of Redis 6.2 fails itself.
    line = nil
    return "err_handler_def:9: attempt to concatenate local 'err' (a table value)"
  end
  line = where()
  return text_of(raised) or code .. tostring(raised)
end

local function run(script, keys, argv)
  rawset(inside, 'KEYS', keys)
  rawset(inside, 'ARGV', argv)
  local ok, value = xpcall(script, handler)
  return ok, value, line
end

local function protect(script)
  return setfenv(script, outside)
end

return run, protect
