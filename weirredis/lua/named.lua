-- Named limits, kept in Redis with their parameters. Arguments and replies are text and whole
-- numbers, for clients in any language. KEYS[1] is the hash with the definition. After it come, in
-- any order, the limit's other keys that may be needed; they begin with KEYS[1]:
--   :state        what was used, of a limit for all clients together; of a limit per client, a sorted
--                 set of the clients with a state, and until when
--   :client:NAME  what that client has used
--   :nonce:ANY    the reply to a call that may be repeated
-- ARGV is the operation and its arguments. After a first word pack, the reply is in MessagePack.
versionrest = 0 -- all callers have the same definition: a new one is in force at once
local packed = ARGV[1] == 'pack'
local args = {}
for i = packed and 2 or 1, #ARGV do
  args[#args + 1] = ARGV[i]
end

local failure
local function fail(text)
  failure = text
  error(text, 0)
end

local function digits(x)
  return string.format('%.0f', x)
end

-- whole parses a number. It accepts only one text for each number.
local function whole(name, text, least, most)
  local n = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not n or n < least or n > most then
    fail('WEIRARG ' .. name .. ' must be a whole number from ' .. digits(least) .. ' to ' .. digits(most))
  end
  return n
end

-- numbers reads the parameters that take needs from a definition.
local function numbers()
  local d = redis.pcall('HMGET', KEYS[1], 'version', 'scope', 'capacity', 'def')
  if d.err then
    fail(d.err)
  elseif not d[1] and redis.call('EXISTS', KEYS[1]) == 0 then
    fail('WEIRNONE there is no limit of this name: it is made by init')
  elseif d[1] ~= '1' or not d[2] or not d[3] or not d[4] then
    fail('WEIRSTATE the key holds something that is no named limit of this version')
  end
  return {scope = d[2], capacity = tonumber(d[3]), def = d[4]}
end

-- key finds one of the limit's keys among those of the call.
local function key(part)
  local prefix = KEYS[1] .. part
  for i = 2, #KEYS do
    local k = KEYS[i]
    if k == prefix and part == ':state' or part ~= ':state' and #k > #prefix and string.sub(k, 1, #prefix) == prefix then
      return k, string.sub(k, #prefix + 1)
    end
  end
end

local function needed(part)
  local k, rest = key(part)
  if not k then
    fail('WEIRKEY one more key is needed: that of the limit with ' .. part .. ' after it')
  elseif rest and #rest > 512 then
    fail('WEIRKEY the name of a client has at most 512 bytes')
  end
  return k, rest
end

-- place returns where a limit's state is, and for a limit per client the set of clients, and the
-- client.
local function place(d)
  local state = needed(':state')
  if d.scope == 'overall' then
    return state
  end
  local noted = redis.pcall('ZCARD', state)
  if type(noted) == 'table' then
    fail(noted.err)
  end
  local k, client = needed(':client:')
  return k, state, client
end

-- ask evaluates the limit: 0 charges, 1 does not. It returns the wait, what remains, and the reset.
local function ask(d, at, op, cost, before)
  local nonce = op == 0 and key(':nonce:')
  if nonce and before == 0 then
    before = now + 60000000
  end
  local charges = {op, 1, cost, 0, 0, '', 0, 0}
  local answer = decide(nonce and {nonce, at} or {at}, {cmsgpack.pack({1, before, 0, nonce and 1 or 0, {d.def}, charges})})
  if type(answer) == 'table' then
    fail(answer.err)
  end
  local said = cmsgpack.unpack(answer)
  if type(said[2]) == 'string' then
    fail(said[2])
  end
  return said[2], said[3], said[4]
end

-- note records until when a client has a state, and removes some of those that have none.
local function note(at, state, client)
  local ttl = redis.call('PTTL', at)
  if ttl > 0 then
    redis.call('ZADD', state, digits(now + ttl * 1000), client)
    redis.call('PEXPIRE', state, digits(max(ttl + 1000, redis.call('PTTL', state))))
  else
    redis.call('ZREM', state, client)
  end
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', state, '-inf', digits(now), 'LIMIT', 0, 4)) do
    redis.call('ZREM', state, gone)
  end
end

-- take [COST [BEFORE]]: whether it was admitted, the capacity, what remains, and the retry (-1 for
-- never) and reset in microseconds. BEFORE is the server's time in microseconds after which the
-- call is not carried out. The reply to a call with a nonce is kept until then, or for a minute.
local function take(op)
  local d = numbers()
  local at, state, client = place(d)
  local cost, before = whole('the cost', args[2] or '1', 0, last + 1), whole('the time', args[3] or '0', 0, last)
  local wait, remaining, reset = ask(d, at, op, cost, before)
  if state and op == 0 then
    note(at, state, client)
  end
  return {wait == 0 and 1 or 0, d.capacity, remaining, wait, reset, packed and now or nil}
end

-- other is the rare operations. Its functions are only made when needed, as making them takes
-- longer than most calls.
local function other(name)
  -- definition is everything that is stored of a limit, by field; nil if there is nothing.
  local function definition()
    local all = redis.pcall('HGETALL', KEYS[1])
    if all.err then
      fail(all.err)
    elseif #all == 0 then
      return nil
    end
    numbers() -- fails if there is no valid definition
    local d = {order = {}}
    for i = 1, #all, 2 do
      d[all[i]], d.order[#d.order + 1] = all[i + 1], all[i]
    end
    return d
  end

  local units = {us = 1, ms = 1000, s = 1000000, m = 60000000, h = 3600000000, d = 86400000000, w = 604800000000}

  -- span parses a duration, such as 100ms, 1m, or d for one day, as microseconds.
  local function span(name, text)
    local n, unit = string.match(text or '', '^(%d*)(%l+)$')
    local v = n and units[unit] and #n <= 16 and (n == '' and 1 or tonumber(n)) * units[unit]
    if not v or v < 1 or v > horizon then
      fail('WEIRARG ' .. name .. ' must be a duration from 1us to 100 years, such as 100ms, 1m or 7d')
    end
    return v
  end

  -- rate parses a rate, such as 100/s, as ticks for each microsecond and ticks that a token
  -- costs.
  local function rate(f)
    local n, per = string.match(f.rate or '', '^(%d+)/(%w+)$')
    if not n then
      fail('WEIRARG rate must be a number for a duration, such as 100/s, 6/m or 20/100ms')
    end
    n, per = whole('the number of rate', n, 1, 2251799813685248), span('the duration of rate', per)
    local a, b = n, per
    while b > 0 do
      a, b = b, math.fmod(a, b)
    end
    return n / a, per / a
  end

  -- fills checks that a bucket fills within 100 years.
  local function fills(name, size, n, p)
    if muldiv(size, p, n) > horizon then
      fail('WEIRARG ' .. name .. ' takes more than 100 years at this rate')
    end
  end

  -- What init parses itself: the fields of each algorithm, optional ones in brackets; and what
  -- makes a definition and a capacity of them.
  local known = {
    token_bucket = {'rate', 'burst', '[initial]', function(f)
      local n, p = rate(f)
      local burst = whole('burst', f.burst, 1, last)
      fills('burst', burst, n, p)
      local initial = burst
      if f.initial == '-1' then
        initial = 0
      elseif f.initial and f.initial ~= '0' then
        initial = whole('initial', f.initial, 1, burst)
      end
      return {1, 1, 0, n, p, burst, burst - initial}, burst
    end},
    leaky_bucket = {'rate', '[queue]', '[delay_after]', function(f)
      local n, p = rate(f)
      local queue = whole('queue', f.queue or '0', 0, last - 1)
      fills('queue', queue + 1, n, p)
      return {1, 1, 1, n, p, queue + 1, whole('delay_after', f.delay_after or '0', 0, queue)}, queue + 1
    end},
    interval_bucket = {'burst', 'refill', 'every', function(f)
      local burst, refill, every = whole('burst', f.burst, 1, last), whole('refill', f.refill, 1, last), span('every', f.every)
      if math.ceil(burst / refill) * every > horizon then
        fail('WEIRARG burst takes more than 100 years to come')
      end
      return {1, 2, burst, refill, every}, burst
    end},
    fixed_window = {'limit', 'window', '[align]', function(f)
      local aligned = ({epoch = 0, first = 1})[f.align or 'epoch']
      if not aligned then
        fail('WEIRARG align must be epoch or first: calendars need a client that knows time zones')
      end
      local limit = whole('limit', f.limit, 1, last)
      return {1, 3, aligned, limit, span('window', f.window)}, limit
    end},
    sliding_counter = {'limit', 'window', function(f)
      local limit = whole('limit', f.limit, 1, last)
      return {1, 4, limit, span('window', f.window)}, limit
    end},
    sliding_window = {'limit', 'window', 'slots', '[slot_limit]', function(f)
      local limit, window, slots = whole('limit', f.limit, 1, last), span('window', f.window), whole('slots', f.slots, 2, 4096)
      if math.fmod(window, slots) > 0 then
        fail('WEIRARG slots must part the window into whole microseconds')
      end
      local each = f.slot_limit and f.slot_limit ~= '0' and whole('slot_limit', f.slot_limit, 1, limit) or limit
      return {1, 5, limit, each, slots, window / slots}, min(limit, each)
    end},
    sliding_log = {'limit', 'window', '[max_entries]', function(f)
      local limit, window = whole('limit', f.limit, 1, last), span('window', f.window)
      return {1, 6, limit, window, f.max_entries and whole('max_entries', f.max_entries, 2, 16384) or max(2, min(limit, 4096))}, limit
    end},
  }

  -- fields parses name=value from an argument on, in order, and by name.
  local function fields(from)
    local order, f = {}, {}
    for i = from, #args do
      local name, value = string.match(args[i], '^([a-z][a-z0-9_]*)=(.+)$')
      if not name or #args[i] > 1024 or f[name] or i > 40 then
        fail('WEIRARG argument ' .. i .. ' must be name=value, each name once, and not more than 35 of them')
      end
      f[name], order[#order + 1] = value, name
    end
    return order, f
  end

  -- sane reports whether a definition has the numbers that its algorithm computes with, as another
  -- program may have written it.
  local sane
  sane = function(P)
    if type(P) ~= 'table' or #P < 3 or #P > 32 or P[1] ~= 1 then
      return false
    end
    local least = P[2] == 1 and {0, 1, 0, 1, 0} or P[2] == 3 and {0, 1, 1} or P[2] == 7 and {0, 1, 0, 1, 1} or {}
    for i = 3, #P do
      local v = P[i]
      if P[2] == 8 then
        local ok, part = pcall(cmsgpack.unpack, v)
        if not ok or type(part) ~= 'table' or part[2] == 8 or not sane(part) then
          return false
        end
      elseif type(v) ~= 'number' or v ~= floor(v) or v < (least[i - 2] or 1) or v > last or P[2] == 1 and i < 6 and v > 2251799813685248 then
        return false
      end
    end
    return true
  end

  -- check validates a definition, and runs it once on no state, before it is stored.
  local function check(def)
    local ok = pcall(function()
      assert(sane(cmsgpack.unpack(def)))
      decide({}, {cmsgpack.pack({1, 0, 0, 0, {}, {}})}) -- makes prepare
      local P = prepare(def)
      local S = P.K.contact(P)
      P.K.plan(P, S, now, 1)
      P.K.look(P, S, now)
    end)
    if not ok then
      fail('WEIRARG this is no definition of a limit that these scripts know')
    end
  end

  -- define stores a definition. What was used stays used: a state is converted when it is
  -- next evaluated.
  local function define(scope, algorithm, capacity, def, order, f)
    if scope ~= 'overall' and scope ~= 'per_client' then
      fail('WEIRARG the scope must be overall or per_client')
    end
    local before = definition()
    if before and before.scope ~= scope then
      fail('WEIRSCOPE the limit is ' .. before.scope .. ': delete it first')
    end
    check(def)
    local all = {'algorithm', algorithm}
    for _, name in ipairs(order) do
      all[#all + 1], all[#all + 2] = name, f[name]
    end
    for _, v in ipairs({'scope', scope, 'capacity', digits(capacity), 'version', '1', 'def', def}) do
      all[#all + 1] = v
    end
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], unpack(all))
    return before and 0 or 1
  end

  -- init SCOPE ALGORITHM name=value...: 1 if the limit is new.
  local function init()
    local algorithm = known[args[3]]
    if not algorithm then
      fail('WEIRARG the algorithm must be token_bucket, leaky_bucket, interval_bucket, fixed_window, sliding_counter, sliding_window or sliding_log')
    end
    local order, f = fields(4)
    local allowed = {}
    for i = 1, #algorithm - 1 do
      allowed[string.match(algorithm[i], '[%l_]+')] = true
    end
    for _, name in ipairs(order) do
      if not allowed[name] then
        fail('WEIRARG the fields of ' .. args[3] .. ' are ' .. table.concat(algorithm, ' ', 1, #algorithm - 1))
      end
    end
    local P, capacity = algorithm[#algorithm](f)
    return define(args[2], args[3], capacity, cmsgpack.pack(P), order, f)
  end

  -- define SCOPE ALGORITHM CAPACITY DEF name=value...: init for clients that can encode a limit of
  -- any algorithm.
  local function redefine()
    local order, f = fields(6)
    for _, name in ipairs({'algorithm', 'scope', 'capacity', 'version', 'def'}) do
      if f[name] then
        fail('WEIRARG ' .. name .. ' is no field of a limit')
      end
    end
    if not string.find(args[3] or '', '^[a-z][a-z_]*$') or #args[3] > 64 then
      fail('WEIRARG the algorithm must be a word')
    end
    return define(args[2], args[3], whole('capacity', args[4], 0, last), args[5] or '', order, f)
  end

  -- charged is how much of a limit is used: what has been charged and has not come back yet.
  local function charged(d, at)
    local P = prepare(d.def)
    local S, time = stateof(at, P)
    S = S or P.K.contact(P)
    return S and P.K.spent(P, S, time) or 0
  end

  -- inspect: names and values; with the key of a client, what that client has used.
  local function inspect()
    local d = definition() or numbers()
    local all = {}
    for _, name in ipairs(d.order) do
      if name ~= 'def' and name ~= 'version' then
        all[#all + 1], all[#all + 2] = name, d[name]
      end
    end
    local function add(name, value)
      all[#all + 1], all[#all + 2] = name, digits(value)
    end
    if d.scope == 'per_client' then
      add('clients', redis.call('ZCOUNT', needed(':state'), '(' .. digits(now), '+inf'))
    end
    if d.scope == 'overall' or key(':client:') then
      local at = place(d)
      local _, remaining, reset = ask(d, at, 1, 0, 0)
      add('used', charged(d, at))
      add('remaining', remaining)
      add('reset_us', reset)
    end
    return all
  end

  -- clients [OFFSET [COUNT]]: the names of the clients that have used something, at most
  -- 1000.
  local function clients()
    local d = numbers()
    if d.scope ~= 'per_client' then
      return {}
    end
    local from, count = whole('the offset', args[2] or '0', 0, last), whole('the count', args[3] or '100', 1, 1000)
    return redis.call('ZRANGEBYSCORE', needed(':state'), '(' .. digits(now), '+inf', 'LIMIT', digits(from), digits(count))
  end

  -- delete: removes the definition and the states, those of 1000 clients at a time. It
  -- returns how many are left; if any are, call it again.
  local function delete()
    definition() -- fails if the key is no limit
    local state = needed(':state')
    local kind = redis.call('TYPE', state).ok
    if kind ~= 'none' and kind ~= 'string' and kind ~= 'zset' then
      fail('WEIRSTATE the key of the state holds something else')
    end
    redis.call('DEL', KEYS[1])
    if kind ~= 'zset' then
      redis.call('DEL', state)
      return 0
    end
    local some = redis.call('ZRANGE', state, 0, 999)
    for _, client in ipairs(some) do
      redis.call('DEL', KEYS[1] .. ':client:' .. client)
      redis.call('ZREM', state, client)
    end
    return redis.call('ZCARD', state)
  end

  -- The names of limits, in a sorted set of their own: register NAME, unregister NAME, list
  -- [AFTER [COUNT]].
  local function limitname()
    local name = args[2] or ''
    if not string.find(name, '^[a-z0-9][a-z0-9._-]*$') or #name > 128 then
      fail('WEIRARG a name has up to 128 lower-case letters, digits, dots, dashes and underscores')
    end
    return name
  end

  return ({
    init = init,
    define = redefine,
    inspect = inspect,
    clients = clients,
    delete = delete,
    register = function() return redis.call('ZADD', KEYS[1], 0, limitname()) end,
    unregister = function() return redis.call('ZREM', KEYS[1], limitname()) end,
    list = function()
      local after = (args[2] or '') == '' and '-' or '(' .. limitname()
      return redis.call('ZRANGEBYLEX', KEYS[1], after, '+', 'LIMIT', 0, digits(whole('the count', args[3] or '100', 1, 1000)))
    end,
  })[name]
end

local operation
if args[1] == 'take' or args[1] == 'peek' then
  operation = function() return take(args[1] == 'take' and 0 or 1) end
else
  operation = other(args[1] or '')
end
if not operation or not KEYS[1] then
  return redis.error_reply('WEIRARG the operations are init, take, peek, inspect, clients, delete, register, unregister, list; the first key is the limit')
end
local ok, answer = pcall(operation)
if not ok then
  local text = failure or type(answer) == 'table' and answer.err or tostring(answer)
  return redis.error_reply(string.find(text, '^%u+ ') and text or 'WEIRSCRIPT ' .. text)
end
if packed then
  return cmsgpack.pack(answer)
end
return answer
