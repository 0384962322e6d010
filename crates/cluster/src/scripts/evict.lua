-- Removes sessions whose clients are overdue, and expired sessions.
--
-- KEYS  order, values, counts of one shard
-- ARGV  1 the return time before which a client is overdue  2 the score from which on sessions have expired
--       3 the most to remove  4 bytes of an entry besides its value
--       5 the caller's time in s  6 the most by which it may differ from this one: else nothing is removed
-- Returns the number removed, and who did it.
local order, values, counts = KEYS[1], KEYS[2], KEYS[3]
if math.abs(redis.call('TIME')[1] - ARGV[5]) > tonumber(ARGV[6]) then return {0, master()} end
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
return {#overdue + #expired, master()}
