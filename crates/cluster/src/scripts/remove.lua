#!lua flags=allow-oom
-- Removes a session.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 hashed id  2 bytes of an entry besides its value
-- Returns 1 if it was there, else 0.
local length = redis.call('HSTRLEN', KEYS[2], ARGV[1])
if length == 0 then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HINCRBY', KEYS[3], 'bytes', -length - ARGV[2])
return 1
