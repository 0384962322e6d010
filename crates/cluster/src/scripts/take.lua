#!lua flags=allow-oom
-- Removes a session: nobody gets it twice.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 hashed id  2 bytes of an entry beside its value
-- Returns its value, or nil.
local value = redis.call('HGET', KEYS[2], ARGV[1])
if not value then return false end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[3], 'bytes', -#value - ARGV[2])
return value
