-- Live nodes: a sorted set of ids by the time until which they count. KEYS[1] is the set, ARGV[1]
-- the id, ARGV[2] for how many microseconds it counts; 0 removes it.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local ttl = tonumber(ARGV[2])
if ttl > 0 then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(math.ceil(ttl / 1000), redis.call('PTTL', KEYS[1]))))
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return tostring(redis.call('ZCARD', KEYS[1]))
