#!lua flags=allow-oom
-- Removes a session: nobody gets it twice. One under a key that the asker does not know stays, for others.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 hashed id  2 bytes of an entry beside its value  3.. the names of the keys that the asker knows
-- Returns its value, or nil.
local value = redis.call('HGET', KEYS[2], ARGV[1])
if not value then return false end
-- After a version of 1 and what is known of the client comes the name: see value.rs.
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
