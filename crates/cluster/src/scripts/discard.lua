#!lua flags=allow-oom
-- Removes a value that no machine can open, unless another value has replaced it.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 hashed id  2 the value  3 bytes of an entry beside its value
-- Returns 1 if it was there, else 0.
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[3], 'bytes', -#ARGV[2] - ARGV[3])
end
return 1
