#!lua flags=no-writes
-- Tells how far the replicas have followed this primary.
--
-- KEYS: ring, for the node that has it
-- ARGV: what they must have reached, as this script returned it before; or 0: all that was written until now
-- Returns what they must have reached; the number of replicas; of those that have. Or nil if the caller may not ask.
local info = redis.pcall('INFO', 'replication')
if type(info) ~= 'string' then return false end
local goal = tonumber(ARGV[1])
if goal == 0 then goal = tonumber(string.match(info, '\nmaster_repl_offset:(%d+)') or 0) end
local connected, reached = 0, 0
-- slave0:ip=10.0.0.6,port=6379,state=online,offset=1234,lag=0
for offset in string.gmatch(info, '\n%a+%d+:[^\r\n]*,offset=(%d+)') do
  connected = connected + 1
  if tonumber(offset) >= goal then reached = reached + 1 end
end
return {string.format('%.0f', goal), connected, reached}
