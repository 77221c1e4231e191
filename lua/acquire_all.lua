-- acquire_all: let owners reach hold counts of several locks, of all of them or of none.
--
-- Behind   acquire
--
-- KEYS[i]      the i-th lock: a hash with one field, owner -> hold count
-- ARGV[1]      lease in milliseconds, a whole number, at least 1
-- ARGV[2*i]    the owner that is to have the i-th lock
-- ARGV[2*i+1]  the hold count to reach there: 1 for a first hold, more for a nested one
--
-- Replies  nil         granted; the counts are those
--          an          array of two, nothing was written: the number of the first lock that is
--                      not to be had, and what acquire replies to a request for that one
--          -WRONGTYPE  one of the keys is a hash, but not a lock; nothing was written
--
-- The counts to reach are absolute, so this sent twice counts once.
-- It looks at all locks before the first write. What is refused after that, because the user
-- has no right to a command, say, takes back the locks that were free.
-- Why atomic: a caller that had one lock and waited for the next could wait for one that
-- waits for the first.

local lease, free = ARGV[1], {}
for i, key in ipairs(KEYS) do
  local owner, count = ARGV[2 * i], ARGV[2 * i + 1]
  local holder, failed = holder_of(key)
  if failed then
    return failed
  elseif holder ~= owner and (holder or count ~= '1') then
    return {i, acquire({key}, {owner, lease, count})}
  elseif not holder then
    table.insert(free, key)
  end
end
for i, key in ipairs(KEYS) do
  local done, failed = pcall(acquire, {key}, {ARGV[2 * i], lease, ARGV[2 * i + 1]})
  if failed then
    for _, other in ipairs(free) do
      redis.pcall('DEL', other)
    end
    if type(failed) == 'string' then
      failed = { err = failed } -- What an error is caught as depends on the version.
    end
    return failed
  end
end
return nil
