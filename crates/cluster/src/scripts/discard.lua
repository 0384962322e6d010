#!lua flags=allow-oom
-- Removes a value that nobody can open, unless another is in its place by now.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 hashed id  2 the value  3 bytes of an entry beside its value
-- Returns whether it was there.
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[3], 'bytes', -#ARGV[2] - ARGV[3])
end
return 1
