-- Two versions of a limit that are in use at once, as during a rolling deploy: a key has a state for
-- each. The caller's own version decides, and what it admits is charged to the other one too. See
-- docs/guarantees.md, "Two versions at once", and weirtest.Versions, which is the model of this.
--
-- An entry e then has e.other, the state of the other version: {def, S, used, ends, P}. used is when
-- a version last admitted, or began, and ends is from when on it may be dropped, as what it admitted
-- has come back. Those of the entry's own state are e.used and e.ends.
local versionrest = 60000000 -- while both versions were used within this time, a third one replaces neither

-- capacityof is what a limit holds, at least 1.
local function capacityof(P)
  return max(P.size or P.limit or P.free and last or narrow(wideover(P.full, P.permit)), 1)
end

-- filledto is how far a version is filled by what another one admits: one capacity beyond full.
local function filledto(P)
  return min(2 * capacityof(P), last)
end

-- heldby is what is used of a limit that is no All, also beyond its capacity.
local function heldby(P, S, t)
  if not S then
    return 0
  end
  return (P.K.usedbeyond or P.K.spent)(P, S, t)
end

-- lacks adds the names of calendars that a limit goes by and that the caller has not sent.
local function lacks(P, names)
  for _, part in ipairs(P.parts or {P}) do
    if part.K.calendars and not part.length and not part.windows then
      if type(part[5]) == 'string' and string.find(part[5], '^%a[%w:_/+-]*$') then
        names[#names + 1] = part[5]
      else
        part.windows = {} -- the name of no calendar
      end
    end
  end
end

-- lost reports whether a limit goes by a calendar that the caller cannot know: one of a time zone
-- that it lacks, or of a state that another program wrote.
local function lost(P)
  for _, part in ipairs(P.parts or {P}) do
    if part.K.calendars and part.windows and #part.windows == 0 then
      return true
    end
  end
  return false
end

-- endof is when a state is idle again.
local function endof(P, S)
  if not S then
    return now
  elseif P.parts then
    local latest = now
    for i, part in ipairs(P.parts) do
      latest = max(latest, endof(part, S[i] or nil))
    end
    return latest
  end
  local _, reset = P.K.look(P, S, now)
  return plus(now, reset)
end

-- fill charges a limit for what another version admitted. It returns the state, what was charged, and
-- a ticket; of an All, lists of both.
local function fill(P, S, cost, keeps)
  if P.parts then
    local next, amounts, tickets = {}, {}, {}
    for i, part in ipairs(P.parts) do
      local state, amount, ticket = fill(part, S and S[i] or nil, cost, keeps)
      next[i], amounts[i], tickets[i] = state or false, amount, ticket or false
    end
    return next, amounts, tickets
  end
  local amount = min(cost, filledto(P) - heldby(P, S, now))
  if amount <= 0 then
    return S, 0, nil
  end
  local next, ticket = P.K.book(P, S, now, now, amount, keeps)
  return next, amount, ticket
end

-- giveback gives back what was charged by fill beyond the actual cost.
local function giveback(P, S, amounts, tickets, actual)
  if type(amounts) == 'table' then
    local next = {}
    for i, part in ipairs(P.parts) do
      next[i] = S[i] and tickets[i] and giveback(part, S[i], amounts[i], tickets[i], actual) or S[i]
    end
    return next
  elseif amounts <= actual or type(tickets) ~= 'table' then
    return S
  end
  return P.K.refund(P, S, now, tickets, amounts - actual)
end

-- sharesstate reports whether one state serves two limits: a change from one to the other and back
-- creates nothing, and loses less than 1/32 of what each charge takes.
local function sharesstate(P, Q)
  if P.def == Q.def then
    return true
  elseif P[2] ~= Q[2] or P.name ~= Q.name and P[2] ~= 1 then
    return false
  elseif P.parts then
    if #P.parts ~= #Q.parts then
      return false
    end
    for j, i in ipairs(match(P.parts, Q.parts)) do
      if P.parts[i].name ~= Q.parts[j].name or not sharesstate(P.parts[i], Q.parts[j]) then
        return false
      end
    end
    return true
  elseif P[2] == 1 then
    return not P.owing and not Q.owing and (P.n == Q.n and P.p == Q.p or P.p >= 64 and Q.p >= 64)
  elseif P[2] == 2 then
    return P.every == Q.every
  elseif P[2] == 3 then
    return P[3] == Q[3] and P[5] == Q[5]
  elseif P[2] == 4 then
    return P.window == Q.window
  elseif P[2] == 5 then
    return P.width == Q.width and P.slots == Q.slots
  elseif P[2] == 6 then
    return P.window == Q.window and (P.most == Q.most or P.most >= P.limit and Q.most >= Q.limit)
  end
  return false
end

-- sooner reports whether a state that two limits share comes back faster under the second one. A
-- refused caller is told so, and the state has to do so.
local function sooner(P, Q)
  if P.parts then
    for j, i in ipairs(match(P.parts, Q.parts)) do
      if sooner(P.parts[i], Q.parts[j]) then
        return true
      end
    end
    return false
  elseif P[2] == 1 then
    return bigcompare(bigmul(big(Q.p), big(P.n)), bigmul(big(P.p), big(Q.n))) < 0
  end
  return P[2] == 2 and Q.refill > P.refill
end

-- takeover is what a version begins with that takes over what another one has used: at most one
-- capacity beyond full.
local function takeover(P, S, Q)
  local function lowered(part, state)
    if not state or heldby(part, state, now) <= filledto(part) then
      return state
    end
    return (part.K.book(part, part.K.contact(part), now, now, filledto(part)))
  end
  local next = change(P, S, Q)
  if Q.parts and next then
    local all = {}
    for i, part in ipairs(Q.parts) do
      all[i] = lowered(part, next[i] or nil) or false
    end
    return all
  end
  return lowered(Q, next)
end

local function eldest(list)
  return list[1].used < list[2].used and 1 or 2
end

-- known reads the states of both versions, as far as the calendars are known by which they go.
local function known(e)
  local names = {}
  lacks(e.P, names)
  if e.other then
    if not e.other.P then
      local Q = prepare(e.other.def)
      if Q.K.sound and not Q.K.sound(Q, e.other.S) then
        error('WEIRSTATE the key holds a state that cannot be', 0)
      end
      e.other.P = Q
    end
    lacks(e.other.P, names)
  end
  if #names > 0 then -- another version goes by a calendar that this caller does not know
    for _, name in ipairs(names) do
      unknown[#unknown + 1] = name
    end
    beyond[#beyond + 1] = now
    error(beyond)
  end
end

-- own makes the caller's version the entry's own. It sets e.begun where that has just begun, or was
-- converted; e.stored where that is to be stored even if the call is refused; and e.both, the
-- versions that decide instead, where the caller's has no state.
local function own(e, P)
  local list = {} -- copies: what is noted in them must not stay if the call is refused
  for _, v in ipairs({e.S and e or e.other, e.S and e.other}) do
    list[#list + 1] = {def = v.def, S = v.S, used = v.used, ends = v.ends, P = v.P}
  end
  if #list == 2 then
    local left = {}
    for _, v in ipairs(list) do
      if v.def == P.def or v.ends > now and not lost(v.P) then
        left[#left + 1] = v
      end
    end
    list = #left > 0 and left or {list[3 - eldest(list)]}
  end
  e.begun, e.stored, e.both = false, false, nil
  local function first(i, S)
    local v = list[i]
    e.def, e.S, e.P, e.used, e.ends, e.other = P.def, S, P, v.used, v.ends, list[3 - i]
  end
  for i, v in ipairs(list) do
    if v.def == P.def then
      return first(i, v.S)
    end
  end
  for i, v in ipairs(list) do
    if sharesstate(v.P, P) then -- never lost, as the caller has the same calendar
      e.begun, e.stored = true, sooner(v.P, P)
      return first(i, change(v.P, v.S, P))
    end
  end
  local from, stays = list[1], list[1]
  if #list == 1 then
    from.used, from.ends = now, lost(from.P) and now or endof(from.P, from.S)
    if from.ends <= now then
      stays = nil
    end
  else
    local old = eldest(list)
    from, stays = list[old], list[3 - old]
    if from.used > now - versionrest then
      e.both = list
      return
    end
  end
  -- It takes over from the one that it replaces, also where the other one counted more: versions in
  -- turn would otherwise renew what a long window has counted, and refuse for good.
  e.begun, e.stored = true, true
  e.def, e.S, e.P, e.other = P.def, takeover(from.P, from.S, P), P, stays
  e.used, e.ends = now, endof(P, e.S)
end

-- charge charges the other version for what the caller's own admitted. It returns what a receipt says
-- of that: the limit, what was charged, and a ticket.
local function charge(e, P, S, cost, keeps)
  local other = e.other
  local next, amounts, tickets = fill(other.P, other.S, cost, keeps)
  e.other = {def = other.def, S = next, used = other.used, ends = other.ends, P = other.P}
  e.used, e.ends = now, endof(P, S)
  return other.def, amounts, tickets
end

-- putboth stores the states of two versions that both decided.
local function putboth(e, S)
  local v, w = e.both[1], e.both[2]
  e.def, e.S, e.P, e.used, e.ends, e.dirty = v.def, S[1], v.P, v.used, v.ends, true
  e.other = {def = w.def, S = S[2], used = w.used, ends = w.ends, P = w.P}
  e.both = {{def = v.def, S = S[1], used = v.used, ends = v.ends, P = v.P}, e.other}
end

-- settle replaces the cost of a receipt by the actual one: each version gets back what it was charged
-- too much, or is charged the difference. It reports whether it changed anything.
local function settle(e, P, actual, def, cost, ticket, def2, amounts, tickets)
  if actual > cost then
    if e.both then -- the caller's version has no state: its work counts for those that have one
      local S, T = (fill(e.both[1].P, e.both[1].S, actual - cost)), (fill(e.both[2].P, e.both[2].S, actual - cost))
      putboth(e, {S, T})
      return true
    end
    local S = e.S
    if S and ticket and P.K.settled and def == P.def and not e.begun then
      S = P.K.settled(P, S, ticket)
    end
    e.S, e.def, e.P, e.dirty = (P.K.book(P, S or P.K.contact(P), now, now, actual - cost)), P.def, P, true
    if e.other then
      charge(e, P, e.S, actual - cost)
    end
    return true
  end
  local function given(v)
    if v.S and v.def == def then
      return (v.P.K.refund(v.P, v.S, now, ticket, cost - actual))
    elseif v.S and v.def == def2 then
      return giveback(v.P, v.S, amounts, tickets, actual)
    end
    return v.S
  end
  local first, second = e, e.other
  if e.both then
    first, second = e.both[1], e.both[2]
  end
  local S, T = given(first), second and given(second)
  if cmsgpack.pack(S, T) == cmsgpack.pack(first.S, second and second.S) then
    return false
  end
  if e.both then
    putboth(e, {S, T})
    return true
  end
  e.S, e.def, e.P, e.dirty = S, P.def, P, true
  if second then
    e.other = {def = second.def, S = T, used = second.used, ends = second.ends, P = second.P}
  end
  return true
end

-- lowered gives back from each version's count, whichever charges it is made of.
local function lowered(e, P, amount)
  local function left(v)
    if v.S and v.P.K.giveback then
      return v.P.K.giveback(v.P, v.S, now, amount)
    end
    return v.S
  end
  if e.both then
    putboth(e, {left(e.both[1]), left(e.both[2])})
    return
  end
  local other = e.other
  e.S, e.def, e.P, e.dirty = left(e), P.def, P, true
  if other then
    e.other = {def = other.def, S = left(other), used = other.used, ends = other.ends, P = other.P}
  end
end

versions = {
  giveback = lowered,
  given = giveback,
  known = known,
  own = own,
  charge = charge,
  putboth = putboth,
  settle = settle,
  endof = endof,

  -- retry is how long until a third version may take the place of one of two.
  retry = function(both)
    return max(both[eldest(both)].used + versionrest - now, 1)
  end,

  -- joint is two versions as one limit, for which both decide.
  joint = function(both)
    local P, Q = both[1].P, both[2].P
    return {K = kinds[8], parts = {P, Q}, largest = min(P.largest, Q.largest), def = P.def}
  end,
}
