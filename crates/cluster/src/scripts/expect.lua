#!lua flags=allow-oom
-- Updates a session after a visit of its client: its next expected return, and its past visits.
--
-- KEYS  order, values of one shard
-- ARGV  1 hashed id  2 score  3 past, as long as the one in the value
-- Returns 1 if the session is there, else 0.
local value = redis.call('HGET', KEYS[2], ARGV[1])
if not value then return 0 end
local past = string.sub(value, 2, 1 + #ARGV[3])
if past ~= ARGV[3] then
  local after = string.sub(value, 2 + #past)
  redis.call('HSET', KEYS[2], ARGV[1], string.sub(value, 1, 1) .. ARGV[3] .. after)
end
redis.call('ZADD', KEYS[1], 'XX', ARGV[2], ARGV[1])
return 1
