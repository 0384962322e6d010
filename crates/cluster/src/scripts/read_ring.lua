#!lua flags=allow-oom
-- Reads the ring of ticket keys. Grants the lease for creating the next key, if the server requests it, knows
-- the current ring, and no other server holds the lease, and if its clock is not too far from this one.
--
-- KEYS: ring (a hash: version, page), lease
-- ARGV: the version that the server knows, or 0; the first 12 bytes of its page;
--       a random token, or nothing if no lease is requested; the lease's duration in ms;
--       the server's time in s; the most that it may differ from this one
--       the most bytes of a page that are returned: none is as long as that
--       the time in ms for which no key may be added after a ring was put back
-- Returns the version, or 0 if there is no ring; the page, if it is a different one; 1 if the lease was granted; the time
-- in s.
local there = redis.call('HMGET', KEYS[1], 'version', 'page')
local version, page = there[1] or '0', there[2] or ''
local now = redis.call('TIME')[1]
-- It began by a clock that was set back since, and would last until that shows the same time again.
local lease = redis.pcall('GET', KEYS[2])
local rests_since = type(lease) == 'string' and string.match(lease, '^rest (%d+)$')
if rests_since and tonumber(rests_since) > tonumber(now) then
  redis.call('SET', KEYS[2], 'rest ' .. now, 'PX', ARGV[8])
end
if version ~= ARGV[1] or string.sub(page, 1, 12) ~= ARGV[2] then
  -- No version has more than 20 digits.
  if #version > 20 then version = '' end
  return {version, string.sub(page, 1, tonumber(ARGV[7])), 0, now}
end
if ARGV[3] ~= '' and math.abs(now - ARGV[5]) <= tonumber(ARGV[6])
  and redis.call('SET', KEYS[2], ARGV[3], 'NX', 'PX', ARGV[4]) then
  return {version, false, 1, now}
end
return {version, false, 0, now}
