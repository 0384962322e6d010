-- Takes a session, so that no machine gets it twice. One under a key that the caller does not know stays for others.
-- A mark of it stays for a while: a session that is stored once more, because the first answer was lost, would come back.
--
-- KEYS  order, values, counts, taken of one shard
-- ARGV  1 hashed id  2 bytes of an entry besides its value  3 for how long marks stay, in microseconds
--       4 the most bytes that are returned: no session is as long as that
--       5.. the names of the keys that the caller knows
-- Returns its value, or the beginning of what is there in its place; who took it out, and when; or nil.
local value = redis.call('HGET', KEYS[2], ARGV[1])
if not value then return false end
local now = now_us()
-- The key's name follows a version of 1 and the past visits: see value.rs.
local version = string.byte(value)
local name = (version == 1 or version == 2) and string.sub(value, 14, 29)
for known = 5, #ARGV do
  if ARGV[known] == name then
    redis.call('HDEL', KEYS[2], ARGV[1])
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('HINCRBY', KEYS[3], 'bytes', -#value - ARGV[2])
    redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', string.format('%.0f', now - ARGV[3]))
    redis.call('ZADD', KEYS[4], string.format('%.0f', now), ARGV[1])
    break
  end
end
return {string.sub(value, 1, tonumber(ARGV[4])), master(), string.format('%.0f', now)}
