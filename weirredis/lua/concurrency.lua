-- Concurrency: holders and waiters. A state is a hash with values in MessagePack:
--   m          version, used, fence, head, tail, waiting, wanted, graves, next, latest (see open), and
--              the key's clock: seen, behind, further (see settime)
--   h<id>      expiry, cost, fence   of a hold
--   w<ticket>  expiry, cost, id      of a waiter; tickets are numbered in the order of arrival
--   t<id>      ticket                of a waiter
--   x<id>      expiry                of an id that has left; a delayed call to enter may still arrive
-- The server's clock is read once, here, in microseconds.
local clock = redis.call('TIME')
local reading = clock[1] * 1000000 + clock[2]
local now = reading -- while a key is evaluated, the time by its clock

local never, last = -1, 9007199254740991
local refused, held, waits, late, gone = 0, 1, 2, 3, 4
local min, max, unpack1 = math.min, math.max, cmsgpack.unpack

-- The argument: version, grace in ms, how long a waiter that does not call keeps its place, and
-- requests of 7 values each: operation, id, cost, limit, queue, MaxHold, expiry. Times are in
-- microseconds. KEYS has one key per request.
local asked = unpack1(ARGV[1])
if asked[1] ~= 1 then
  return redis.error_reply('WEIRVERSION these scripts are of another version than who asks')
end
local grace, patience, questions = asked[2], asked[3], asked[4]

-- open returns the state of a key: the sum of all holds, and the last fence; the tickets of the
-- first and of the next waiter; how many wait, and the sum of their costs; the number of x fields;
-- a time before which nothing expires, and one at which everything has expired.
local states = {}
local function open(key)
  local S = states[key]
  if S then
    return S
  end
  S = {key = key, used = 0, fence = 0, head = 1, tail = 1, waiting = 0, wanted = 0, graves = 0, next = last, latest = 0, seen = 0, behind = 0, further = 0}
  states[key] = S
  local raw = redis.pcall('HGET', key, 'm')
  local ok, M = pcall(unpack1, raw)
  if type(raw) == 'table' then
    S.err = raw.err
  elseif raw and ok and type(M) == 'table' and M[1] == 1 and (#M == 10 or #M == 13) then
    S.used, S.fence, S.head, S.tail, S.waiting, S.wanted, S.graves, S.next, S.latest = M[2], M[3], M[4], M[5], M[6], M[7], M[8], M[9], M[10]
    S.seen, S.behind, S.further = M[11] or 0, M[12] or 0, M[13] or 0 -- 10 in an earlier format
  elseif raw or redis.call('EXISTS', key) == 1 then
    S.err = 'WEIRSTATE the key holds something that is no state of a Concurrency'
  end
  return S
end

-- settime sets now to the time by a key's clock, which goes on where the server's clock steps back to
-- before the latest change: see keyclock.lua.
local function settime(S)
  local before, beyond = S.behind, S.further
  if S.now then
    now = S.now
    return
  elseif reading >= S.seen then
    now, S.behind, S.further = reading, 0, 0
  elseif S.behind > 0 and reading + S.behind >= S.seen then
    now, S.further = reading + S.behind, 0
  elseif S.further > 0 and reading + S.further >= S.seen then
    now = reading + S.further
  else
    now = S.seen
    if S.further > 0 then
      S.behind, S.further = S.further, now - reading
    elseif S.behind > 0 then
      S.further = now - reading
    else
      S.behind = now - reading
    end
  end
  S.now, S.dirty = now, S.dirty or S.behind ~= before or S.further ~= beyond
end

-- get is a field's values, or nil.
local function get(S, field)
  local raw = redis.call('HGET', S.key, field)
  if raw then
    return unpack1(raw)
  end
end

local function keep(S, field, expiry, ...)
  redis.call('HSET', S.key, field, cmsgpack.pack(expiry, ...))
  S.next, S.latest, S.dirty, S.seen = min(S.next, expiry), max(S.latest, expiry), true, now
end

-- purge removes what has expired. It scans everything, but not before the first possible expiry.
local function purge(S)
  if now < S.next then
    return
  end
  local all = redis.call('HGETALL', S.key)
  S.used, S.waiting, S.wanted, S.graves, S.next, S.latest, S.dirty = 0, 0, 0, 0, last, 0, true
  for i = 1, #all, 2 do
    local kind = string.sub(all[i], 1, 1)
    if kind == 'h' or kind == 'w' or kind == 'x' then
      local expiry, cost, id = unpack1(all[i + 1])
      if expiry <= now then
        redis.call('HDEL', S.key, all[i])
        if kind == 'w' then
          redis.call('HDEL', S.key, 't' .. id)
        end
      else
        S.next, S.latest = min(S.next, expiry), max(S.latest, expiry)
        if kind == 'h' then
          S.used = S.used + cost
        elseif kind == 'w' then
          S.waiting, S.wanted = S.waiting + 1, S.wanted + cost
        else
          S.graves = S.graves + 1
        end
      end
    end
  end
end

-- returns is how long it takes at most until a cost fits, if no call enters or extends: until
-- enough holds and waiters have expired. With very many, it is the time until all have expired.
local function returns(S, cost, limit)
  if cost < 0 or cost > limit then
    return never
  end
  local need, entries = S.used + S.wanted + cost - limit, {}
  if redis.call('HLEN', S.key) > 256 then
    return S.latest - now
  end
  local all = redis.call('HGETALL', S.key)
  for i = 1, #all, 2 do
    local kind = string.sub(all[i], 1, 1)
    if kind == 'h' or kind == 'w' then
      entries[#entries + 1] = {unpack1(all[i + 1])}
    end
  end
  table.sort(entries, function(a, b) return a[1] < b[1] end)
  for _, e in ipairs(entries) do
    need = need - e[2]
    if need <= 0 then
      return e[1] - now
    end
  end
  return S.latest - now
end

local function hold(S, id, cost, span)
  S.used, S.fence = S.used + cost, max(S.fence + 1, now)
  keep(S, 'h' .. id, now + span, cost, S.fence)
  return held, S.fence
end

-- unqueue removes a waiter from the queue. The next waiter is found when it calls.
local function unqueue(S, id, ticket, cost)
  redis.call('HDEL', S.key, 'w' .. ticket, 't' .. id)
  S.waiting, S.wanted, S.dirty, S.seen = S.waiting - 1, S.wanted - cost, true, now
end

-- turn reports whether there is room for all waiters before a ticket, and for left besides. So a
-- waiter may enter after others behind it, but they never take its place: that is kept.
local function turn(S, ticket, room)
  while S.head < ticket and redis.call('HEXISTS', S.key, 'w' .. S.head) == 0 do
    S.head, S.dirty = S.head + 1, true
  end
  local i = S.head
  while i < ticket and room >= 0 do
    local _, cost = get(S, 'w' .. i)
    room, i = room - (cost or 0), i + 1
  end
  return room >= 0
end

-- enter is called repeatedly by a waiter, and by a caller whose reply was lost. A hold lasts from
-- the latest of these calls.
local function enter(S, id, cost, limit, queue, span, expiry)
  if reading > expiry then
    return late
  end
  local till, charged, fence = get(S, 'h' .. id)
  if till then
    keep(S, 'h' .. id, max(till, now + span), charged, fence)
    return held, fence
  elseif S.graves > 0 and redis.call('HEXISTS', S.key, 'x' .. id) == 1 then
    return gone
  end
  local ticket = S.waiting > 0 and get(S, 't' .. id)
  if not ticket then
    if S.used + S.wanted + cost <= limit then
      return hold(S, id, cost, span)
    elseif cost > limit or S.waiting >= queue or S.wanted + cost > last / 2 then
      return refused, 0, 0, returns(S, cost, limit)
    end
    ticket, S.tail, S.waiting, S.wanted = S.tail, S.tail + 1, S.waiting + 1, S.wanted + cost
    redis.call('HSET', S.key, 't' .. id, cmsgpack.pack(ticket))
    if S.waiting == 1 then
      S.head = ticket
    end
  elseif cost > limit then
    unqueue(S, id, ticket, cost)
    return refused, 0, 0, never
  elseif turn(S, ticket, limit - S.used - cost) then
    unqueue(S, id, ticket, cost)
    return hold(S, id, cost, span)
  end
  keep(S, 'w' .. ticket, now + patience, cost, id)
  return waits, 0, min(ticket - S.head + 1, S.waiting)
end

-- leave ends a hold or a wait. If an expiry is given, a call to enter may still be in flight until
-- then: it will find that it came too late.
local function leave(S, id, expiry)
  local found, charged = get(S, 'h' .. id)
  if found then
    redis.call('HDEL', S.key, 'h' .. id)
    S.used, S.dirty, S.seen = S.used - charged, true, now
  else
    found = S.waiting > 0 and get(S, 't' .. id)
    if found then
      local _, cost = get(S, 'w' .. found)
      unqueue(S, id, found, cost)
    end
  end
  if expiry >= reading then
    S.graves = S.graves + 1 - redis.call('HEXISTS', S.key, 'x' .. id)
    keep(S, 'x' .. id, expiry + 1 + now - reading)
  end
  return found and held or gone
end

local function extend(S, id, span)
  local till, cost, fence = get(S, 'h' .. id)
  if not till then
    return gone
  end
  keep(S, 'h' .. id, max(till, now + span), cost, fence)
  return held, fence
end

-- look decides as an enter that does not wait, and returns how much is held and how many wait.
local function look(S, cost, limit)
  if cost == 0 or cost > 0 and S.used + S.wanted + cost <= limit then
    return held, S.used, S.waiting
  end
  return refused, S.used, S.waiting, returns(S, cost, limit)
end

local function answer(S, op, id, cost, limit, queue, span, expiry)
  if op == 0 then
    return enter(S, id, cost, limit, queue, span, expiry)
  elseif op == 1 then
    return leave(S, id, expiry)
  elseif op == 2 then
    return extend(S, id, span)
  end
  return look(S, cost, limit)
end

-- write stores a state for as long as something in it lasts. It keeps the state a while longer, so
-- that a step back of the clock does not repeat fences.
local function write(S)
  now = S.now
  if S.used == 0 and S.waiting == 0 and S.graves == 0 then
    S.next, S.latest = last, now
  end
  redis.call('HSET', S.key, 'm', cmsgpack.pack({1, S.used, S.fence, S.head, S.tail, S.waiting, S.wanted, S.graves, S.next, S.latest, S.seen, S.behind, S.further}))
  redis.call('PEXPIRE', S.key, string.format('%.0f', math.ceil(max(S.latest - now, 0) / 1000) + max(grace, 1000)))
end

-- The reply: now, and for each request its result, the fence (for a look, what is held), the place
-- in the queue (for a look, how many wait), the wait or -1, what remains, and how long until all is
-- free; or what is wrong with the key.
local said, n = {now}, 1
for i = 1, #KEYS do
  local S, q = open(KEYS[i]), (i - 1) * 7
  if S.err then
    n = n + 1
    said[n] = S.err
  else
    settime(S)
    purge(S)
    local limit = questions[q + 4]
    local code, fence, place, wait = answer(S, questions[q + 1], questions[q + 2], questions[q + 3], limit, questions[q + 5], questions[q + 6], questions[q + 7])
    said[n + 1], said[n + 2], said[n + 3], said[n + 4] = code, fence or 0, place or 0, wait or 0
    said[n + 5] = max(limit - S.used - S.wanted, 0)
    said[n + 6] = S.used + S.waiting > 0 and max(S.latest - now, 0) or 0
    n = n + 6
  end
end
for _, S in pairs(states) do
  if S.dirty then
    write(S)
  end
end
return cmsgpack.pack(said)
