#!lua flags=allow-oom
-- Takes a session, so that no machine gets it twice. One under a key that the caller does not know stays for others.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 hashed id  2 bytes of an entry besides its value  3.. the names of the keys that the caller knows
-- Returns its value, or nil.
local value = redis.call('HGET', KEYS[2], ARGV[1])
if not value then return false end
-- The key's name follows a version of 1 and the past visits: see value.rs.
local name = string.byte(value) == 1 and string.sub(value, 14, 29)
for known = 3, #ARGV do
  if ARGV[known] == name then
    redis.call('HDEL', KEYS[2], ARGV[1])
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('HINCRBY', KEYS[3], 'bytes', -#value - ARGV[2])
    break
  end
end
return value
