#!lua flags=allow-oom
-- What the ring of ticket keys is, for a server that knows one of them; and the lease to make the next
-- key, if the server wants it, has the ring that is there, and nobody else holds it.
--
-- KEYS: ring (a hash: version, page), lease
-- ARGV: the version known, or 0; the first 12 bytes of its page;
--       a random token, or nothing if no key is to be made; how long the lease is, in ms
-- Returns the version, or 0 if there is none; its page, if it is another; 1 if the lease is held.
local there = redis.call('HMGET', KEYS[1], 'version', 'page')
local version, page = there[1] or '0', there[2] or ''
if version ~= ARGV[1] or string.sub(page, 1, 12) ~= ARGV[2] then
  return {version, page, 0}
end
if ARGV[3] ~= '' and redis.call('SET', KEYS[2], ARGV[3], 'NX', 'PX', ARGV[4]) then
  return {version, false, 1}
end
return {version, false, 0}
