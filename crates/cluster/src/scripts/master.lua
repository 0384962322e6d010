#!lua flags=allow-oom
-- Tells which process of Valkey this is, since when it is a master: both names are new after a restart and a promotion.
-- Returns them, or an empty text if the caller may not ask. Another script follows.
local function master()
  local info = redis.pcall('INFO', 'server', 'replication')
  if type(info) ~= 'string' then return '' end
  local process, since = string.match(info, 'run_id:(%w+)'), string.match(info, 'master_replid:(%w+)')
  return process and since and process .. since or ''
end

-- The time in microseconds.
local function now_us()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

