-- What the scripts of a simulated server find, and how they are run.
--
-- Arguments  the functions that the server gives; whether it is a Redis 6.2; its version
-- Returns    run      calls a script with its keys and arguments: true and what it returns, or
--                     false, its error, and the line of it
--            protect  gives a script its surroundings, in which it can leave nothing behind
--
-- A script sees an empty table. What it looks for there is found in `inside`, which it cannot
-- change.

local server, is_old, version = ...
local where = server.where
local error, type, tostring, select = error, type, tostring, select
local xpcall, rawpcall, rawset, setmetatable, setfenv = xpcall, pcall, rawset, setmetatable, setfenv
local tonumber, floor = tonumber, math.floor
local code = is_old and '' or 'ERR '

local function fail(text)
  return { err = code .. text }
end

local redis = {
  call = server.call,
  pcall = server.pcall,
  sha1hex = function(...)
    if select('#', ...) ~= 1 then
      error(fail('wrong number of arguments'))
    end
    return server.sha1hex(tostring((...)))
  end,
  status_reply = function(...)
    if select('#', ...) ~= 1 or type((...)) ~= 'string' then
      return fail('wrong number or type of arguments')
    end
    return { ok = (...) }
  end,
  error_reply = function(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then
      return fail('wrong number or type of arguments')
    end
    if is_old then
      return { err = text }
    end
    if string.sub(text, 1, 1) == '-' then
      text = string.sub(text, 2)
    end
    if not string.find(text, ' ', 1, true) then
      text = 'ERR ' .. text
    end
    return { err = text }
  end,
  log = function(level, ...)
    if select('#', ...) < 1 then
      error(fail('redis.log() requires two arguments or more.'))
    elseif not tonumber(level) then
      error(fail('First argument must be a number (log level).'))
    elseif tonumber(level) < 0 or tonumber(level) > 3 then
      error(fail(is_old and 'Invalid debug level.' or 'Invalid debug level.'))
    end
  end,
  setresp = function(...)
    if select('#', ...) ~= 1 then
      error(fail('redis.setresp() requires one argument.'))
    end
    local number = tonumber((...))
    if number ~= 2 and number ~= 3 then
      error(fail('RESP version must be 2 or 3.'))
    end
    server.setresp(number)
  end,
  set_repl = function() end,
  replicate_commands = function() return true end,
  breakpoint = function() return false end,
  debug = function() end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
}
if not is_old then
  redis.REDIS_VERSION = version
end

-- What was raised, as a script may see it.
local function text_of(raised)
  if type(raised) == 'userdata' then
    return server.text(raised)
  elseif type(raised) == 'table' and type(raised.err) == 'string' then
    return raised.err
  end
  return nil
end

local function caught(ok, ...)
  if not ok then
    local raised = ...
    return false, text_of(raised) or raised
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
inside.math.random = function(...)
  local many = select('#', ...)
  local r = (server.random() % 2147483647) / 2147483647
  if many == 0 then
    return r
  end
  local low, high = 1, (...)
  if many == 2 then
    low, high = ...
  elseif many > 2 then
    error('wrong number of arguments')
  end
  if low > high then
    error("bad argument #" .. many .. " to 'random' (interval is empty)")
  end
  return floor(r * (high - low + 1)) + low
end
inside.math.randomseed = function(seed)
  server.seed(seed)
end

local function unknown(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end
setmetatable(inside, { __index = unknown })
local outside = {}
inside._G = outside
setmetatable(outside, {
  __index = inside,
  __newindex = function(_, name)
    if is_old then
      error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
    end
    error('Attempt to modify a readonly table', 2)
  end,
})

local line = nil
local function handler(raised)
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
