-- batch: several acquires and releases in one call, each judged on its own.
--
-- Behind   acquire, release
--
-- KEYS[k]    the keys of the first request, then those of the second, and so on
-- ARGV[a]    for each request, in the same order: `acquire` (one key, three arguments),
--            `fenced` (with two keys, four arguments) or `release` (one key, three arguments),
-- ARGV[a+i]  and then its arguments, as that script has them
--
-- Replies  an array in the order of the requests
--          answer    the reply of that script, or its error
--
-- An error of one request is caught, and is the answer to that request alone: what
-- a script has written before its error stays written, as it would on its own.
-- When memory is full, Redis refuses each request on its own, up to the first that
-- may write. After that one Redis lets all of them write, so none is half done.
-- Why atomic: each request has to be, for the reason that its script gives. They
-- need not be atomic as a whole: they are about locks that have nothing to do with
-- each other, and are as many as take no longer than a slow command.

local answers, keys, args = {}, {}, {}
local k, a = 1, 1
while ARGV[a] do
  local run, many = acquire, 3
  keys[1], keys[2] = KEYS[k], nil
  if ARGV[a] == 'release' then
    run = release
  elseif ARGV[a] == 'fenced' then
    k, many = k + 1, 4
    keys[2] = KEYS[k]
  end
  for i = 1, many do
    args[i] = ARGV[a + i]
  end
  k, a = k + 1, a + 1 + many
  local done, answer = pcall(run, keys, args)
  if answer == nil then
    answer = false -- An array ends at its first nil; this is the same on the wire.
  elseif not done and type(answer) == 'string' then
    answer = { err = answer } -- What an error is caught as depends on the version.
  end
  answers[#answers + 1] = answer
end
return answers
