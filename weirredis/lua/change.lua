-- Conversion of states after a change of the limit.

-- scaled is v*to/from, rounded up, of big numbers.
local function scaled(v, from, to)
  return bigup(bigmul(v, big(to)), big(from))
end

local function tickpair(P, u, r)
  return bigadd(bigmul(big(u), big(P.n)), big(r))
end

local function frompair(P, ticks)
  local q, r = bigdiv(ticks, big(P.n))
  return small(q), small(r)
end

-- Used tokens stay used, at the new rate. For a bucket that allows debt, the time until the next
-- charge may go stays.
kinds[1].convert = function(P, S, Q)
  if P.owing ~= Q.owing then
    return nil
  end
  local u, r = used(S, now)
  if P.owing then
    local owed = bigup(bigmul(tickpair(P, u, r), big(Q.n)), big(P.n))
    owed = bigless(bigadd(owed, bigmul(big(Q.passu), big(Q.n))), bigmul(big(P.passu), big(Q.n)))
    u, r = frompair(Q, owed)
    return advance(Q, now, 0, u, r)
  end
  if P.n == Q.n and P.p == Q.p then
    if S[1] < now then -- full: what came back by now does not go away again where the clock steps back
      return bucketstate(now, 0, returned(S))
    end
    return S
  end
  u, r = frompair(Q, scaled(tickpair(P, u, r), P.p, Q.p))
  local next = advance(Q, now, 0, u, r)
  next[3], next[4], next[5] = returned(S) + 1, 0, 0 -- what was charged before cannot be given back: it may have come back at the other rate
  return next
end

kinds[1].load = function(P, t, spent)
  return (kinds[1].book(P, kinds[1].contact(P), t, t, spent))
end

-- The counts of a window move to the slots of their latest possible times, if the slots have
-- another length or number.
kinds[5].convert = function(P, S, Q)
  if P.width == Q.width and P.slots == Q.slots then
    return S
  end
  local at, here, times, costs, places = slotat(P, S, now), floor(now / P.width), {}, {}, {}
  for i = leading(S, 1, at - P.slots) + 1, length(S) do
    local slot, sum = nth(S, i)
    local _, before = nth(S, i - 1)
    local latest = (slot + 1) * P.width - 1
    if slot == here then
      latest = min(latest, max(now, S[1]))
    end
    local to = floor(latest / Q.width)
    local place = places[to % Q.slots]
    if place and times[place] == to then
      costs[place] = costs[place] + sum - before
    else
      if place then
        costs[place] = 0
      end
      place = #times + 1
      times[place], costs[place], places[to % Q.slots] = to, sum - before, place
    end
  end
  return listed(S[1], times, costs)
end

kinds[5].load = function(P, t, spent)
  return (kinds[5].book(P, nil, t, t, min(spent, P.limit)))
end

-- A log keeps the charges that have not expired: a longer window does not bring expired ones back.
kinds[6].convert = function(P, S, Q)
  S = dropped(S, (live(P, S, now)))
  return (bounded(Q, S, live(Q, S, (timeat(S, now))), 0))
end

kinds[6].load = function(P, t, spent)
  return (kinds[6].book(P, nil, t, t, min(spent, P.limit)))
end

-- Guava's setRate: it keeps the time at which the next charge may go, rounded up to permits of the
-- new rate, and the stored fraction of the capacity, rounded to the colder side. After an unlimited
-- rate, a used limiter is warm. A full one counts as unused where the rate becomes unlimited, as its
-- state may have expired.
kinds[7].convert = function(P, S, Q)
  local stored, next, rest = warmat(P, S, now)
  if Q.free and not P.free and next == now and rest == 0 and wideless(P.full, stored) == 0 then
    return nil
  end
  rest = wideup(widemul(rest, Q.n), P.unit)
  if rest == Q.n then
    next, rest = plus(next, 1), 0
  end
  rest = widemul(rest, Q.fractions)
  if P.free then
    return warmstate(next, rest, 0)
  end
  return warmstate(next, rest, wideup(widemul(stored, Q.full), P.full))
end

kinds[7].load = function(P, t, spent)
  return (kinds[7].book(P, nil, t, t, spent))
end

-- transfer is a change of kind: what was used is charged once to an unused state.
local function transfer(P, S, Q)
  local spent = P.K.spent(P, S, now)
  if spent == 0 then
    return Q.K.contact(Q)
  end
  return Q.K.load(Q, now, spent)
end

local function changed(P, S, Q)
  if P.def == Q.def then
    return S
  end
  if P[2] == Q[2] and P.K.convert then
    local next = P.K.convert(P, S, Q)
    if next then
      return next
    end
  end
  return transfer(P, S, Q)
end

-- match returns, for each new limit, the old limit that is converted to it. It pairs those of the
-- same kind in order, and then the rest in order.
local function match(old, new)
  local from, taken = {}, {}
  local function take(j, fits)
    for i = 1, #old do
      if not taken[i] and fits(i) then
        from[j], taken[i] = i, true
        return
      end
    end
  end
  for j = 1, #new do
    take(j, function(i) return old[i].name == new[j].name end)
  end
  for j = 1, #new do
    if not from[j] then
      take(j, function() return true end)
    end
  end
  return from
end

change = function(P, S, Q)
  if not P.parts and not Q.parts then
    return changed(P, S, Q)
  end
  local old, new = P.parts or {P}, Q.parts or {Q}
  local next, from, touched = {}, match(old, new), false
  for j, part in ipairs(new) do
    local i = from[j]
    if not Q.parts and old[i].name ~= part.name then -- several become one of another kind
      return transfer(P, S, Q)
    end
    local before = nil
    if i then
      before = S
      if P.parts then
        before = S[i] or nil
      end
      before = before and changed(old[i], before, part)
    end
    if not Q.parts then
      return before
    end
    next[j] = before or part.K.contact(part) or false
    touched = touched or next[j] ~= false
  end
  return touched and next or nil -- nothing is left of what was used: the limit is unused
end
