#!lua flags=allow-oom
-- Stores what a machine reports of itself in place of its last report. Forgets machines that were silent for too long, a
-- few at a time.
--
-- KEYS: machines (a hash: id -> report), reported (a sorted set: id -> time of the report in ms)
-- ARGV: the machine's id; its report; the time in ms after which a silent machine is forgotten; the most machines;
--       the most bytes that are returned: no report is as long as that
-- Returns the report that was there, or an empty text; nil if there are too many machines.
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
local forgotten = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now_ms - ARGV[3]), 'LIMIT', 0, 16)
for _, id in ipairs(forgotten) do
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[1], id)
end
local machines = redis.call('ZCARD', KEYS[2])
-- If one of the two was lost, nothing is left of the other one.
if machines == 0 then redis.call('DEL', KEYS[1]) end
local is_known = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not is_known and machines >= tonumber(ARGV[4]) then return false end
local before = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', now_ms), ARGV[1])
return string.sub(before or '', 1, tonumber(ARGV[5]))
