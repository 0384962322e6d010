#!lua flags=allow-oom
-- Replaces the ring of ticket keys, if it is still the one that the server knows.
-- A server that adds a key must hold the lease, or be able to take it. The lease is released.
--
-- KEYS: ring (a hash: version, page), lease
-- ARGV: the version that the server knows, or 0; the first 12 bytes of its page; the new version; the new page;
--       the token of the lease, or nothing if no key is added;
--       the time in ms for which no key may be added from now on, or 0
-- Returns 1 if it was replaced, otherwise 0.
local there = redis.call('HMGET', KEYS[1], 'version', 'page')
if (there[1] or '0') ~= ARGV[1] or string.sub(there[2] or '', 1, 12) ~= ARGV[2] then
  return 0
end
if ARGV[5] ~= '' then
  local holder = redis.call('GET', KEYS[2])
  if holder and holder ~= ARGV[5] then
    return 0
  end
  redis.call('DEL', KEYS[2])
end
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'page', ARGV[4])
if ARGV[6] ~= '0' then
  redis.call('SET', KEYS[2], 'rest ' .. redis.call('TIME')[1], 'PX', ARGV[6])
end
return 1
