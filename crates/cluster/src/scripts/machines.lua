-- Returns the time in ms, and the machines that have reported, the most silent ones first: the id of each, and the time of
-- its report in ms.
--
-- KEYS: reported (a sorted set: id -> time of the report in ms)
-- ARGV: the most machines
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
return {string.format('%.0f', now_ms), redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')}
