-- WarmUp. Stored permits are kept as the time that they took to come, in ticks of which a clock
-- unit brings d: see warmUpRule in the Go package. With T = p/n and the cold factor k/one all of it
-- is whole, and waits are whole parts of a clock unit. A state is the time at which the next charge
-- may go, in clock units; the number of elements of the parts by which it is later, and those
-- elements; and what is stored. Both are a number, or limbs if they are larger.

-- slice is some elements of a list as a number (0 if there are none), or as limbs.
local function slice(S, from, to)
  if to <= from then
    return S[to >= from and from or 0] or 0
  end
  return {unpack(S, from, to)}
end

-- warmread is when the next charge may go, in clock units and parts, and what is stored.
local function warmread(S)
  local parts = S[2]
  return S[1], slice(S, 3, 2 + parts), slice(S, 3 + parts, #S)
end

local function warmstate(next, rest, stored)
  local S = {next, 0}
  if type(rest) == 'table' then
    S[2] = #rest
    for i = 1, #rest do
      S[2 + i] = rest[i]
    end
  elseif rest > 0 then
    S[2], S[3] = 1, rest
  end
  if type(stored) == 'number' then
    S[#S + 1] = stored
  else
    for i = 1, #stored do
      S[#S + 1] = stored[i]
    end
  end
  return S
end

-- warmat is what is stored at t, and when the next charge may go. While that lies ahead, nothing
-- more is stored. Idle time that begins within a clock unit is rounded up to a tick.
local function warmat(P, S, t)
  if not S then
    return P.full, t, 0
  end
  local next, rest, stored = warmread(S)
  if next >= t then
    return stored, next, rest
  elseif P.free then
    return stored, t, 0
  end
  local more = widemul(t - next, P.d)
  if rest ~= 0 then
    more = wideless(more, (widedivide(widemul(rest, P.d), P.unit)))
  end
  return wideleast(wideadd(stored, more), P.full), t, 0
end

-- warmup is the first clock reading that is not before a time.
local function warmup(next, rest)
  if rest ~= 0 then
    return plus(next, 1)
  end
  return next
end

-- warmtake takes permits for a cost out of what is stored, as far as there are any. It returns what
-- is left, and when the next charge may go; a time above last is beyond the end of the clock.
local function warmtake(P, stored, cost, next, rest)
  if P.free then
    return stored, next, rest
  end
  local left = wideless(stored, widemul(P.permit, cost))
  local wait, linear = muldiv(cost, P.p, P.n)
  local x, y = wideless(stored, P.threshold), wideless(left, P.threshold)
  if linear > 0 then
    rest = wideadd(rest, widemul(P.fractions, linear))
  end
  if x ~= 0 and P.climb ~= 0 then
    -- x^2-y^2 is (x+y)*(x-y)
    rest = wideadd(rest, widemul(widemul(wideadd(x, y), wideless(x, y)), P.climb))
  end
  local over
  over, rest = widedivide(rest, P.unit)
  return left, next + min(wait, last) + narrow(over), rest
end

-- warmended is the time of a charge as a state keeps it: at most the end of the clock.
local function warmended(next, rest)
  if next > last or next == last and rest ~= 0 then
    return last, 0
  end
  return next, rest
end

kinds[7] = {
  books = true,

  -- P is version, kind, n (0 for a rate without end), p, the period, and the cold factor as k
  -- and one.
  ready = function(P)
    local n, p, period, k, one = P[3], P[4], P[5], P[6], P[7]
    P.free, P.keeps, P.name = n == 0, n == 0, 'warm' -- what was used at a rate without end is warm
    P.full, P.largest = 0, last
    P.n, P.fractions, P.unit = 1, 1, 1
    if P.free then
      return
    end
    P.n, P.p, P.climb, P.k, P.one = n, p, k - one, k, one
    P.d, P.permit = widemul(n, 5 * one + k), widemul(p, 2 * (one + k))
    P.full, P.threshold = widemul(P.d, period), widemul(widemul(n, period), one + k)
    P.fractions = widemul(widemul(widemul(16 * one * one, one + k), n), period) -- n times that many are a clock unit
    P.unit = widemul(P.fractions, n)
    P.largest = max(min(muldiv(horizon, n, p), last), 1)
  end,

  sound = function(_, S)
    local n, parts = #S, S[2]
    if n < 3 or n > 24 or not numbers(S, 0) or parts > n - 3 or parts ~= floor(parts) then
      return false
    end
    -- Limbs have no zeros at the top.
    local function limbed(from, to)
      for i = from, to do
        if S[i] >= limb then
          return false
        end
      end
      return S[to] > 0
    end
    return (parts <= 1 or limbed(3, 2 + parts)) and (n == 3 + parts or limbed(3 + parts, n))
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local stored, next, rest = warmat(P, S, t)
    local wait = warmup(next, rest) - t
    if wait > horizon then
      return never, 0
    end
    if last - next <= 3 * horizon then -- otherwise the largest cost is waited for before the end of the clock
      local _, after, more = warmtake(P, stored, cost, next, rest)
      if after > last or after == last and more ~= 0 then
        return never, 0
      end
    end
    return wait, 0
  end,

  -- A ticket is the states just after and before the charge, the cost, and when it was
  -- charged.
  book = function(P, S, t, due, cost)
    local stored, next, rest = warmat(P, S, t)
    local left
    left, next, rest = warmtake(P, stored, cost, next, rest)
    next, rest = warmended(next, rest)
    local after = warmstate(next, rest, left)
    return after, {after, S or warmstate(t, 0, P.full), cost, t}
  end,

  -- refund makes the state what it would be had the actual cost been charged at first, if
  -- nothing was charged since. Otherwise it gives nothing back: later charges were priced by
  -- how cold it then was.
  refund = function(P, S, t, T, amount)
    for i = 1, max(#S, #T[1]) do
      if S[i] ~= T[1][i] then
        return S
      end
    end
    if amount < T[3] then
      return (kinds[7].book(P, T[2], T[4], T[4], T[3] - amount))
    end
    return T[2]
  end,

  -- reached: a permit takes no longer than the coldest one.
  reached = function(P, S)
    if P.free then
      return S[1]
    end
    return max(S[1] - narrow(wideup(widemul(P.p, P.k), widemul(P.n, P.one))), 0)
  end,

  look = function(P, S, t)
    local stored, next, rest = warmat(P, S, t)
    local wait, remaining = warmup(next, rest) - t, 0
    if P.free then
      return wait == 0 and last or 0, wait
    elseif wait == 0 then
      remaining = min(narrow(wideover(stored, P.permit)), P.largest)
    end
    -- What fills up is stored from then on, and rounded up: the last tick takes only a
    -- part of its time.
    local lacks = wideless(P.full, stored)
    if rest ~= 0 then
      lacks = wideadd(lacks, (widedivide(widemul(rest, P.d), P.unit)))
    end
    return remaining, max(wait, plus(next - t, narrow(wideup(lacks, P.d))))
  end,

  spent = function(P, S, t)
    if P.free then
      return 0
    end
    local stored, next, rest = warmat(P, S, t)
    local owed, more = muldiv(next - t, P.n, P.p) -- in permits, and then in n-ths of a clock unit
    local parts = wideadd(widemul(P.fractions, more), rest)
    owed = plus(min(owed, last), narrow(wideup(parts, widemul(P.fractions, P.p))))
    local all, left = wideover(P.full, P.permit), wideover(stored, P.permit)
    return plus(owed, narrow(wideless(all, left)))
  end,
}
