-- The argument is one value: version, expiry of the call (0 for none), grace in ms, whether KEYS[1]
-- is a nonce, limits, and charges one after another, with eight fields each: operation, limit, cost,
-- group, within (-1: any delay; of a take, 1: a receipt is wanted, 2: its cost will be settled; of a
-- peek, 3: how much is used is wanted),
-- receipt or '', by how many ms it expires sooner than the call, and for how many ms the key stays
-- that marks a settle as carried out (0: it has none). Those keys come after the keys of all charges,
-- in their order. If limits have calendars, these come last: the name and the windows (day,
-- beginning, end) of each.
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
local marks = {}   -- by the number of a charge: the key that marks its settle as carried out
local marked = {}  -- by such a key: for how many ms it stays; of settles that are carried out now
local settling     -- the key of the settle that is being carried out

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
