-- The argument is one value: version, expiry of the call (0 for none), grace in ms, whether KEYS[1]
-- is a nonce, limits, and charges one after another: operation, limit, cost, group, within (-1: any
-- delay), receipt or '', and by how many ms it expires sooner than the call. If limits have
-- calendars, these come last: the name and the windows (day, beginning, end) of each.
local asked = cmsgpack.unpack(ARGV[1])
if asked[1] ~= 1 then
  return redis.error_reply('WEIRVERSION these scripts are of another version than who asks')
end
local expiry, grace, first = asked[2], asked[3], asked[4]
if expiry > 0 and now > expiry then
  return redis.error_reply('WEIRLATE ' .. string.format('%.0f', now))
end
if first == 1 then
  local said = redis.call('GET', KEYS[1])
  if said then
    return said
  end
end

local limits, charges = asked[5], asked[6]
if asked[7] then
  for i = 1, #asked[7], 2 do
    calendars[asked[7][i]] = asked[7][i + 1]
  end
end
local prepared, entries = {}, {}
local which = 0 -- the limit of the charge
local wrong = {} -- an algorithm that this script lacks: the caller repeats the call with all algorithms

-- whole reports whether all numbers of a value are whole and below 2^53, as these scripts write
-- them. A state that another program wrote may have other numbers, and computing with them might
-- not end.
local function whole(v)
  for _, x in pairs(v) do
    if type(x) == 'table' then
      if not whole(x) then
        return false
      end
    elseif type(x) == 'number' and not (x >= -last and x <= last and x % 1 == 0) then
      return false
    end
  end
  return true
end

-- prepare reads a limit.
prepare = function(def)
  local P = prepared[def]
  if P then
    return P
  end
  P = cmsgpack.unpack(def)
  if type(P) ~= 'table' or P[1] ~= 1 or not whole(P) then
    error('WEIRSTATE the key holds a state of another version, or none', 0)
  end
  local K = kinds[P[2]]
  if not K then
    error(change and 'WEIRSTATE the key holds a state of a limit that is not known' or wrong, 0)
  end
  P.K, P.def = K, def
  K.ready(P)
  prepared[def] = P
  return P
end

-- twoversions marks a value with the states of two versions of a limit: the list after it has the
-- limit, the state, used and ends of each (see versions.lua). It reads as a limit of a later format,
-- so that scripts that do not know it leave the key alone.
local twoversions = '\146\002\000'

-- entry is what is known of a key: the state, the limit under which it was stored, and its clock:
-- behind is how far the server's clock is behind it, and seen the time of the latest charge if the
-- state does not show it, being in debt or promised ahead; false if it does, and nil in a state of
-- an earlier format, in which debt and steps of the clock look alike.
local function entry(key)
  local e = entries[key]
  if e then
    return e
  end
  e = {}
  entries[key] = e
  local raw = redis.pcall('GET', key)
  if type(raw) == 'table' then
    e.err = raw.err
  elseif raw then
    local ok, def, S, seen, behind, further = pcall(cmsgpack.unpack, raw)
    if ok and type(def) == 'string' and type(S) == 'table' and whole({S, seen, behind, further}) and numbers({seen or 0, behind, further}, 0) then
      e.seen, e.behind = seen, {behind, further}
      if def ~= twoversions then
        e.def, e.S = def, S
      elseif #S == 8 and type(S[2]) == 'table' and type(S[6]) == 'table' and numbers({S[3], S[4], S[7], S[8]}, 0) then
        e.def, e.S, e.used, e.ends = S[1], S[2], S[3], S[4]
        e.other = {def = S[5], S = S[6], used = S[7], ends = S[8]}
      end
    end
    if not e.S then
      e.err = 'WEIRSTATE the key holds something that is no state of a limit'
    end
  end
  return e
end

-- open reads a key's states for a call under a limit, and sets now to the time by the key's clock.
local function open(e, P)
  if e.S then
    soundof(e)
    if e.other or e.def ~= P.def then
      if not versions then
        error(wrong)
      end
      versions.known(e)
    end
    if not e.now then
      settime(e)
    end
  elseif not e.now then
    e.now, e.behind = reading, {}
  end
  now = e.now
end

-- current is a key's state under the limit of the call; nil if nothing is known of the key.
local function current(e, P)
  if e.other or e.S and e.def ~= P.def then
    if not versions then
      error(wrong)
    end
    versions.own(e, P)
  end
  return e.S
end

-- stateof is the state of a key under a limit, and the time by the key's clock.
stateof = function(key, P)
  local e = entry(key)
  open(e, P)
  local S, time = current(e, P), now
  now = reading
  return S, time
end

local function put(e, P, S)
  e.S, e.def, e.P, e.dirty = S, P.def, P, true
end

local said, n = {now}, 1 -- the answer: for each charge the wait (0 for yes, -1 for never), what remains, the reset, and more as asked
local made = false

local function say(wait, remaining, reset)
  if not whole({wait, remaining, reset}) then
    error('WEIRSTATE no decision follows from the state of the key', 0)
  end
  said[n + 1], said[n + 2], said[n + 3] = wait, remaining, reset
  n = n + 3
end

local function also(v)
  n = n + 1
  said[n] = v
end

-- receipt identifies a charge: the limit and its ticket, and those of another version.
local function receipt(P, cost, ticket, def, amounts, tickets)
  if def then
    return cmsgpack.pack(P.def, cost, now, ticket or {}, def, amounts, tickets or false)
  end
  return cmsgpack.pack(P.def, cost, now, ticket or {})
end

-- ask carries out one charge, and returns whether it was admitted.
local function ask(op, P, e, cost, wait, paper)
  local K, S = P.K, current(e, P)
  if op == 6 then -- reset
    if e.S then
      e.S, e.other, e.both, e.dirty = nil, nil, nil, true
      e.now, e.behind, now = reading, {}, reading
      made = true
    end
    op, cost = 1, 0
    S = nil
  elseif op == 3 then
    local ok, def, charged, since, ticket, def2, amounts, tickets = pcall(cmsgpack.unpack, paper)
    if not ok or type(ticket) ~= 'table' then
      error('WEIRRECEIPT this is no receipt', 0)
    end
    if cost < 0 or cost == charged then
      -- nothing to do
    elseif e.begun ~= nil then
      made = versions.settle(e, P, cost, def, charged, ticket, def2, amounts, tickets) or made
      S = e.S
    elseif def == P.def then
      if cost > charged then
        S = K.book(P, S or K.contact(P), now, now, cost - charged)
        put(e, P, S)
        made = true
      elseif S then
        local given = K.refund(P, S, now, ticket, charged - cost)
        if given ~= S then
          S = given
          put(e, P, S)
          made = true
        end
      end
    end
    op, cost = 1, 0
  elseif op == 5 then
    if e.begun and S then
      put(e, P, S)
    end
    op, cost = 1, 0
  end
  local Q = P -- what decides
  if e.both then
    Q, S = versions.joint(e.both), {e.both[1].S, e.both[2].S}
    K = Q.K
  end
  if op == 0 or op == 2 then
    if not S and cost > 0 and cost <= Q.largest then
      S = K.contact(Q)
      if S then -- the limit does not start full: without a stored state, each retry would start again
        put(e, Q, S)
      end
    end
  end
  local seen = S or K.contact(Q)
  local admitted, retry, delay, ticket, taken = true, 0, 0, nil, 0
  local def2, amounts, tickets
  if op == 4 then -- take some
    cost = min(cost, (K.look(Q, seen, now)), Q.largest)
    admitted = cost > 0
    if not admitted then
      cost = 1
    end
  end
  if e.stored and op ~= 1 and S and cost > 0 and cost <= P.largest then -- a version begins, as at a first call
    put(e, P, S)
  end
  if cost < 0 or cost > Q.largest then
    admitted, retry = false, never
  elseif cost > 0 then
    local w, room = K.plan(Q, seen, now, cost)
    if op == 2 then
      if not K.books then
        wait = 0
      end
      admitted = w ~= never and room == 0 and (wait < 0 or w <= wait)
      if w == never or room == never then
        retry = never
      elseif wait < 0 then
        retry = room
      else
        retry = max(room, w - wait)
      end
      delay = w
    else
      admitted = w == 0 and room == 0
      if w == never or room == never then
        retry = never
      else
        retry = max(w, room)
      end
    end
    if admitted and op ~= 1 then
      S, ticket = K.book(Q, S, now, min(now + delay, last), cost)
      seen, taken, made = S, cost, true
      if e.both then
        versions.putboth(e, S)
        ticket, def2, amounts, tickets = ticket[1], e.other.def, cost, ticket[2]
      else
        put(e, P, S)
        if e.other then
          def2, amounts, tickets = versions.charge(e, P, S, cost)
        end
      end
    end
  end
  if admitted then
    retry = 0
  elseif e.both and retry == never and cost > 0 and cost <= P.largest then
    retry = versions.retry(e.both)
  end
  local remaining, reset = K.look(Q, seen, now)
  say(retry, remaining, reset)
  if P.K.sign then
    also(e.both and 0 or K.sign(P, seen, now, cost, admitted))
  end
  if op == 2 then
    also(admitted and delay or 0)
    also(admitted and receipt(Q, cost, ticket, def2, amounts, tickets) or '')
  elseif op == 4 then
    also(taken)
    also(ticket and receipt(Q, cost, ticket, def2, amounts, tickets) or '')
  elseif op == 0 and wait == 1 then -- a receipt is wanted
    also(ticket and receipt(Q, cost, ticket, def2, amounts, tickets) or '')
  end
  return admitted
end

-- attempt is ask with errors caught: an error of one charge is reported in its place, and does not
-- affect the others.
local function attempt(i, key)
  local c = (i - 1) * 7
  if expiry > 0 and now > expiry - 1000 * charges[c + 7] then
    also('WEIRLATE')
    return false
  end
  which = charges[c + 2]
  local e = entry(key)
  local from, P = n, prepare(limits[charges[c + 2]])
  if e.err then
    also(e.err)
    return false
  end
  local S, def, old, other, used, ends, dirty, had = e.S, e.def, e.P, e.other, e.used, e.ends, e.dirty, made
  e.dirty = nil
  local ok, result = pcall(open, e, P)
  if ok then
    ok, result = pcall(ask, charges[c + 1], P, e, charges[c + 3], charges[c + 5], charges[c + 6])
  end
  now = reading
  if ok then
    if e.begun ~= nil then
      if not e.dirty then -- a refusal leaves no trace, not even a converted state
        e.S, e.def, e.P, e.other, e.used, e.ends = S, def, old, other, used, ends
      end
      e.both, e.begun, e.stored = nil, nil, nil
    end
    e.dirty = e.dirty or dirty
    return result
  end
  if result == wrong then
    error(wrong)
  end
  e.S, e.def, e.P, e.other, e.used, e.ends, e.dirty = S, def, old, other, used, ends, dirty
  e.both, e.begun, e.stored, e.moved = nil, nil, nil, nil
  made = had
  for j = from + 1, n do
    said[j] = nil
  end
  n = from
  also(type(result) == 'table' and result.err or tostring(result))
  return false
end

-- together makes all charges from i to j, or none. If one is refused, the decisions about the
-- others are what they would have been without a charge.
local function together(i, j)
  local saved, from, all, had, refused = {}, n, true, made, {}
  for k = i, j do
    local e = entry(KEYS[first + k])
    if not saved[e] then
      saved[e] = {e.S or false, e.def, e.P, e.other, e.used, e.ends, e.dirty}
    end
  end
  for k = i, j do
    local before = n
    if not attempt(k, KEYS[first + k]) then
      all = false
      refused[k] = {unpack(said, before + 1, n)}
    end
  end
  if all then
    return
  end
  for e, was in pairs(saved) do
    e.S, e.def, e.P, e.other, e.used, e.ends, e.dirty = was[1] or nil, was[2], was[3], was[4], was[5], was[6], was[7]
  end
  made = had
  for k = from + 1, n do
    said[k] = nil
  end
  n = from
  for k = i, j do
    if refused[k] then
      for _, v in ipairs(refused[k]) do
        also(v)
      end
    else
      local c = (k - 1) * 7
      charges[c + 1] = 1
      attempt(k, KEYS[first + k])
      if charges[c + 5] == 1 then
        also('')
      end
    end
  end
end

-- spare is how much longer a key is kept than its state is in use, to know how far the server's clock
-- is behind: until that has reached the same time again, or for a day.
local function spare()
  return min(now - reading, 86400000000)
end

-- write stores a state until it is idle, and removes an idle one.
local function write(key, e)
  local other = e.other
  now = e.now
  if e.dirty and other and (other.ends <= now or not e.S) then
    if not e.S then
      e.S, e.def, e.P = other.S, other.def, other.P
    end
    other = nil
  end
  if not e.S then
    redis.call('DEL', key)
    return
  end
  soundof(e)
  local value = {e.def, e.S}
  if other then
    value = {twoversions, {e.def, e.S, e.used, e.ends, other.def, other.S, other.used, other.ends}}
  end
  e.other = other
  value[3] = reachedby(e) > now and now -- what the state shows is a debt or a promise
  value[4], value[5] = e.behind[1], e.behind[2]
  value = cmsgpack.pack(unpack(value))
  if not e.dirty then -- only its clock has changed
    redis.call('SET', key, value, 'KEEPTTL')
    return
  end
  local reset, _
  if other then
    reset = max(versions.endof(e.P, e.S), other.ends) - now
  else
    _, reset = e.P.K.look(e.P, e.S, now)
  end
  local ttl = math.ceil((reset + spare()) / 1000) + grace
  if e.P.keeps or other and other.P.keeps then
    ttl = ttl + 86400000 -- it never becomes idle: it is reset after a day without calls
  elseif ttl == 0 then
    redis.call('DEL', key)
    return
  end
  redis.call('SET', key, value, 'PX', string.format('%.0f', ttl))
end

local function run()
  local i, count = 1, #charges / 7
  while i <= count do
    local group, j = charges[(i - 1) * 7 + 4], i
    if group > 0 then
      while j < count and charges[j * 7 + 4] == group do
        j = j + 1
      end
    end
    if j > i then
      together(i, j)
    else
      attempt(i, KEYS[first + i])
    end
    i = j + 1
  end
end

local ok, problem = pcall(run)
if not ok then
  if problem == wrong then
    return redis.error_reply('WEIRFULL ' .. which .. ' the key holds a state of another version of this limit')
  end
  return redis.error_reply('WEIRSCRIPT ' .. tostring(problem))
end
if #beyond > 0 then
  for i, t in ipairs(beyond) do
    beyond[i] = string.format('%.0f', t)
  end
  for _, name in ipairs(unknown) do
    beyond[#beyond + 1] = name
  end
  return redis.error_reply('WEIRCALENDAR ' .. string.format('%.0f', now) .. ' ' .. table.concat(beyond, ' '))
end
for key, e in pairs(entries) do
  if e.dirty or e.moved then
    write(key, e)
  end
end
now = reading
if steps > 0 then
  also(steps)
  also(widest)
end
local answer = cmsgpack.pack(said)
if first == 1 and made then
  redis.call('SET', KEYS[1], answer, 'PX', string.format('%.0f', math.ceil((expiry - now) / 1000) + 1))
end
return answer
