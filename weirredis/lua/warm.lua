-- WarmUp. Stored permits are kept as the time that they took to come, in ticks of which a clock
-- unit brings d: see warmUpRule in the Go package. With T = p/n and the cold factor k/one all of it
-- is whole, and waits are whole parts of a clock unit. A state is the time at which the next charge
-- may go, in clock units; the number of elements of the parts by which it is later, and those
-- elements; and what is stored. Both are a number, or limbs if they are larger.
--
-- While reservations are outstanding, the last element is a list: the latest number of a reservation;
-- the state before the charges of the list; and the charges since the oldest outstanding reservation,
-- five elements each:
--   the number of an outstanding reservation, or 0; the time after which it is final; when its work
--   goes, in clock units and parts; the cost
-- A charge costs more the colder it finds the limit, so giving a reservation back repeats the others,
-- each at the time at which its work goes. The number is the time of the charge, or the next free one.
-- A charge that finds the limit completely cold ends all reservations. weirtest.Versions is the model
-- of this.
local mostagain, mostagainwide, finalagain = 64, 16, 900000000 -- charges of a list; of one whose limit needs limbs; how long after their work may go

-- slice is some elements of a list as a number (0 if there are none), or as limbs.
local function slice(S, from, to)
  if to <= from then
    return S[to >= from and from or 0] or 0
  end
  return {unpack(S, from, to)}
end

-- againlist is the list of a state; nil if it has none.
local function againlist(S)
  local J = S and S[#S]
  return type(J) == 'table' and J or nil
end

-- warmread is when the next charge may go, in clock units and parts, and what is stored.
local function warmread(S)
  local parts, n = S[2], #S
  if type(S[n]) == 'table' then
    n = n - 1
  end
  return S[1], slice(S, 3, 2 + parts), slice(S, 3 + parts, n)
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

-- warmat is what is stored at t and parts of a clock unit (default: none), and when the next charge
-- may go. While that lies ahead, nothing more is stored. Idle time that begins or ends within a clock
-- unit is rounded up to a tick.
local function warmat(P, S, t, parts)
  parts = parts or 0
  if not S then
    return P.full, t, parts
  end
  local next, rest, stored = warmread(S)
  if next > t or next == t and wideless(parts, rest) == 0 then
    return stored, next, rest
  elseif P.free then
    return stored, t, parts
  end
  local more = widemul(t - next, P.d)
  if parts ~= 0 then
    local idle = wideless(wideadd(widemul(t - next, P.unit), parts), rest)
    more = wideup(widemul(idle, P.d), P.unit)
  elseif rest ~= 0 then
    more = wideless(more, (widedivide(widemul(rest, P.d), P.unit)))
  end
  return wideleast(wideadd(stored, more), P.full), t, parts
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

-- iscold reports whether all that can be stored is stored, and the next charge may go at t.
local function iscold(P, S, t)
  local stored, next, rest = warmat(P, S, t)
  return next == t and rest == 0 and wideless(P.full, stored) == 0
end

-- charged is a state after some charges of a list, each made at the time at which its work goes.
local function charged(P, S, J, from, to)
  for i = from, to, 5 do
    local stored, next, rest = warmat(P, S, J[i + 2], J[i + 3])
    stored, next, rest = warmtake(P, stored, J[i + 4], next, rest)
    next, rest = warmended(next, rest)
    S = warmstate(next, rest, stored)
  end
  return S
end

-- trimmed is a list without the charges before its oldest outstanding reservation.
local function trimmed(P, J)
  local first = 3
  while J[first] == 0 do
    first = first + 5
  end
  if first > #J then
    return {J[1]}
  elseif first == 3 then
    return J
  end
  local N = {J[1], charged(P, J[2], J, 3, first - 1)}
  for i = first, #J do
    N[#N + 1] = J[i]
  end
  return N
end

-- withlist is a state with another list. Without reservations, a list stays while numbers are ahead of
-- the clock.
local function withlist(S, J)
  local next, n = {}, #S
  if type(S[n]) == 'table' then
    n = n - 1
  end
  for i = 1, n do
    next[i] = S[i]
  end
  if J and (#J > 1 or J[1] >= now) then
    next[n + 1] = J
  end
  return next
end

-- mostcharges is how many charges a list has at most: repeating them must not keep the server from
-- other clients for long.
local function mostcharges(P)
  local x = P.free and 0 or wideless(P.full, P.threshold)
  if P.free or type(widemul(widemul(x, x), P.climb)) == 'number' then
    return mostagain
  end
  return mostagainwide
end

-- listedcharge is a list with a charge that is about to be made, and the number of a reservation. The
-- reservations that are final are dropped where another one is added. A charge for which the list has
-- no room pushes out the oldest reservation.
local function listedcharge(P, S, t, goes, parts, cost, keeps)
  local N, number = {0}, 0
  for i, v in ipairs(againlist(S) or N) do
    N[i] = v
  end
  if S and iscold(P, S, t) then
    N = {N[1]}
  end
  if keeps then
    for i = 3, #N, 5 do
      if N[i + 1] < t then
        N[i] = 0
      end
    end
    N = trimmed(P, N)
  end
  if #N > 2 and #N >= 2 + 5 * mostcharges(P) then
    toomany = toomany + 1
    N[3] = 0
    N = trimmed(P, N)
  end
  if #N < 3 and not keeps then
    return N, 0
  elseif #N < 3 then
    N[2] = S and withlist(S) or warmstate(t, 0, P.full)
  end
  if keeps then
    number = max(t, N[1] + 1)
    N[1] = number
  end
  local n = #N
  N[n + 1], N[n + 2] = number, min(goes + (keeps == 'until' and 0 or finalagain), last)
  N[n + 3], N[n + 4], N[n + 5] = goes, parts, cost
  return N, number
end

-- ended is a state after the reservation of a list's i-th element has ended: without an amount of its
-- cost, or with all of it if that is 0.
local function ended(P, S, i, amount)
  local J, N = againlist(S), {}
  local left = J[i + 4] - amount
  for k, v in ipairs(J) do
    if left > 0 or k < i or k > i + 4 then
      N[#N + 1] = v
    end
  end
  if left > 0 then
    N[i], N[i + 4] = 0, left
  end
  if amount > 0 then
    S = charged(P, N[2], N, 3, #N)
  end
  return withlist(S, trimmed(P, N))
end

-- positionof is where a list has a reservation; nil if it is not outstanding.
local function positionof(S, number)
  local J = againlist(S) or {}
  for i = 3, #J, 5 do
    if J[i] == number then
      return i
    end
  end
end

-- soundlimbs reports whether elements are limbs: without zeros at the top.
local function soundlimbs(S, from, to)
  for i = from, to do
    if S[i] >= limb then
      return false
    end
  end
  return S[to] > 0
end

-- soundwarm reports whether a state without a list is valid.
local function soundwarm(S)
  local n, parts = #S, S[2]
  if n < 3 or n > 24 or not numbers(S, 0) or parts > n - 3 or parts ~= floor(parts) then
    return false
  end
  return (parts <= 1 or soundlimbs(S, 3, 2 + parts)) and (n == 3 + parts or soundlimbs(S, 3 + parts, n))
end

-- soundagain reports whether a list is valid.
local function soundagain(J)
  local n = #J
  if n == 0 or n > 2 + 5 * mostagain or n > 1 and (n % 5 ~= 2 or n == 2 or type(J[2]) ~= 'table' or not soundwarm(J[2])) then
    return false
  end
  for i = 3, n, 5 do
    local parts = J[i + 3]
    local limbs = type(parts) == 'table' and #parts > 0 and #parts < 24 and numbers(parts, 0) and soundlimbs(parts, 1, #parts)
    if not (limbs or numbers({parts}, 0)) or not numbers({J[i], J[i + 1], J[i + 2], J[i + 4]}, 0) then
      return false
    end
  end
  return numbers({J[1]}, 0)
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
    local J = againlist(S)
    if J then
      return #S <= 25 and soundagain(J) and soundwarm({unpack(S, 1, #S - 1)})
    end
    return soundwarm(S)
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

  -- A ticket of a reservation in the list is its number, and when its work goes. That of another
  -- charge is the states just after and before the charge, the cost, and when it was charged.
  book = function(P, S, t, due, cost, keeps)
    local stored, next, rest = warmat(P, S, t)
    local goes, parts = t, 0
    if due > t then
      goes, parts = next, rest
    end
    local left
    left, next, rest = warmtake(P, stored, cost, next, rest)
    next, rest = warmended(next, rest)
    local after, J, number = warmstate(next, rest, left), nil, 0
    if keeps or againlist(S) then
      J, number = listedcharge(P, S, t, goes, parts, cost, keeps)
    end
    if number > 0 then
      return withlist(after, J), {number, goes}
    end
    return J and withlist(after, J) or after, {after, S and withlist(S) or warmstate(t, 0, P.full), cost, t}
  end,

  -- settled ends a reservation that gives nothing back.
  settled = function(P, S, T)
    local i = type(T[1]) == 'number' and positionof(S, T[1])
    return i and ended(P, S, i, 0) or S
  end,

  -- refund makes the state what it would be had the actual cost been charged at first. It knows
  -- that of a reservation in the list, and otherwise only if nothing was charged since: later
  -- charges were priced by how cold it then was. It gives nothing back once the limit is cold again.
  refund = function(P, S, t, T, amount)
    local J = againlist(S)
    if type(T[1]) == 'number' then
      local cold, final = iscold(P, S, t), T[2] + finalagain < t
      expired = expired or final and not cold
      local i = not cold and positionof(S, T[1])
      return i and ended(P, S, i, final and 0 or amount) or S
    end
    for i = 1, max(#S - (J and 1 or 0), #T[1]) do
      if S[i] ~= T[1][i] then
        return S
      end
    end
    if J and #J > 1 then -- it is the last charge of the list
      local i = #J - 4
      if J[i] ~= 0 or J[i + 2] ~= T[4] or J[i + 3] ~= 0 or J[i + 4] ~= T[3] then
        return S
      end
      return ended(P, S, i, amount)
    elseif amount < T[3] then
      return withlist(kinds[7].book(P, T[2], T[4], T[4], T[3] - amount), J)
    end
    return withlist(T[2], J)
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
