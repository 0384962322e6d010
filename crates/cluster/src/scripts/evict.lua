#!lua flags=allow-oom
-- Removes the sessions of clients that are overdue, and those that are expired.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 whoever was expected before this is overdue  2 from this score on they are expired
--       3 at most so many  4 bytes of an entry beside its value
-- Returns how many.
local order, values, counts = KEYS[1], KEYS[2], KEYS[3]
local overdue = redis.call('ZRANGEBYSCORE', order, '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[3])
local expired = redis.call('ZREVRANGEBYSCORE', order, '+inf', ARGV[2], 'LIMIT', 0, ARGV[3] - #overdue)

local bytes = 0
for _, gone in ipairs({overdue, expired}) do
  for _, id in ipairs(gone) do
    bytes = bytes + ARGV[4] + redis.call('HSTRLEN', values, id)
    redis.call('HDEL', values, id)
    redis.call('ZREM', order, id)
  end
end
if bytes > 0 then
  redis.call('HINCRBY', counts, 'bytes', -bytes)
  redis.call('HINCRBY', counts, 'overdue', #overdue)
  redis.call('HINCRBY', counts, 'expired', #expired)
end
return #overdue + #expired
