#!lua
-- Stores a session. Evicts others until it fits, by paper 000's Algorithm 1, read with "else": the one
-- that is overdue, or else the one that returns last, if the new one returns sooner.
--
-- KEYS  order, values, counts, taken of one shard
-- ARGV  1 hashed id  2 value  3 score  4 the return time before which a client is overdue
--       5 most sessions  6 most bytes  7 bytes of an entry besides its value
--       8 when the caller took it and could not use it, or an empty text
-- Returns the number evicted; -1 if the session was refused, because all others return sooner; -2 if it was taken.
local order, values, counts = KEYS[1], KEYS[2], KEYS[3]
local id, value, score = ARGV[1], ARGV[2], tonumber(ARGV[3])
local overdue_before, most_sessions, most_bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local overhead = tonumber(ARGV[7])
local size = #value + overhead
if (redis.call('ZSCORE', KEYS[4], id) or '') ~= ARGV[8] then return -2 end
if ARGV[8] ~= '' then redis.call('ZREM', KEYS[4], id) end
-- The score from which on clients are not expected back.
local NEVER = 4503599627370496

local sessions = redis.call('ZCARD', order)
local before = redis.call('HMGET', counts, 'bytes', 'stored', 'overdue', 'latest', 'refused')
local bytes = sessions > 0 and tonumber(before[1] or 0) or 0
local overdue, latest = 0, 0

local function remove(gone)
  bytes = bytes - overhead - redis.call('HSTRLEN', values, gone)
  redis.call('HDEL', values, gone)
  sessions = sessions - redis.call('ZREM', order, gone)
  if sessions == 0 then bytes = 0 end
end

local function count(stored, refused)
  redis.call('HSET', counts, 'bytes', bytes, 'stored', (before[2] or 0) + stored,
    'overdue', (before[3] or 0) + overdue, 'latest', (before[4] or 0) + latest,
    'refused', (before[5] or 0) + refused)
end

if redis.call('HEXISTS', values, id) == 1 then remove(id) end
while sessions >= most_sessions or bytes + size > most_bytes do
  local victim = redis.call('ZRANGE', order, 0, 0, 'WITHSCORES')
  if tonumber(victim[2]) < overdue_before then
    overdue = overdue + 1
  else
    victim = redis.call('ZREVRANGE', order, 0, 0, 'WITHSCORES')
    if score >= NEVER or score >= tonumber(victim[2]) then
      count(0, 1)
      return -1
    end
    latest = latest + 1
  end
  remove(victim[1])
end
redis.call('HSET', values, id, value)
-- The score as it was passed, because formatting a number takes time.
redis.call('ZADD', order, ARGV[3], id)
bytes = bytes + size
count(1, 0)
return overdue + latest
