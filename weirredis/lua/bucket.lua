-- TokenBucket, LeakyBucket and SmoothBursty: the generic cell rate algorithm (GCRA). A state is Z,
-- the time at which the bucket is full again, as clock units and a rest of ticks below n. Once
-- something was given back, the state also has the total of that: high units (of 2^52), units and
-- rest. One clock unit brings n ticks, one token costs p. Spans are pairs of units and a rest, too.
--
-- While reservations are outstanding, the third element is a list: that total, Z before the charges
-- of the list, and the charges since the oldest outstanding reservation, six numbers each:
--   the identity of an outstanding reservation (units and rest, with n added to the rest if the
--   reservation is final once its work may go), or -1 and 0; the time at which its
--   work goes; the cost
-- Each charge sets Z to max(Z, that time) + cost. Giving a reservation back repeats the others.
-- Neighbours that are not outstanding are joined, so the list has at most twice as many charges as
-- reservations. take.lua adds to the list, too. weirtest.Versions is the model of this.
local span52 = 4503599627370496
local mostopen, keptfor = 256, 900000000 -- reservations of a list; how long after their work may go

local function pairsum(P, u, r, v, s)
  u, r = u + v, r + s
  if r >= P.n then
    return u + 1, r - P.n
  end
  return u, r
end

-- pairless is u,r less v,s, or 0.
local function pairless(P, u, r, v, s)
  u, r = u - v, r - s
  if r < 0 then
    u, r = u - 1, r + P.n
  end
  if u < 0 then
    return 0, 0
  end
  return u, r
end

local function pairbelow(u, r, v, s)
  return u < v or u == v and r < s
end

local function pairmin(u, r, v, s)
  if pairbelow(u, r, v, s) then
    return u, r
  end
  return v, s
end

-- ahead is how far a time lies ahead.
local function ahead(u, r, t)
  if u < t then
    return 0, 0
  end
  return u - t, r
end

local function used(S, t)
  if not S then
    return 0, 0
  end
  return ahead(S[1], S[2], t)
end

local function ceiled(u, r)
  if r > 0 then
    return u + 1
  end
  return u
end

-- advance moves Z forward, at most to the end of the clock.
local function advance(P, u, r, v, s)
  u, r = pairsum(P, u, r, v, s)
  if u >= last then
    u, r = last, 0
  end
  return {u, r}
end

-- listof is the list of a state with outstanding reservations; nil if it has none.
local function listof(S)
  return S and type(S[3]) == 'table' and S[3] or nil
end

-- returned is all that was given back.
local function returned(S)
  local X = S and S[3]
  if type(X) == 'table' then
    return X[1], X[2], X[3]
  elseif X then
    return X, S[4], S[5]
  end
  return 0, 0, 0
end

-- bucketstate is a state of its parts. A list without charges is left out, and a total of 0.
local function bucketstate(u, r, xh, xu, xr, N)
  if N and #N > 5 then
    N[1], N[2], N[3] = xh, xu, xr
    return {u, r, N}
  elseif xh + xu + xr > 0 then
    return {u, r, xh, xu, xr}
  end
  return {u, r}
end

-- identity is what no other charge of a state has: Z after it with all that was given back, modulo
-- 2^52. That grows with each charge, and giving back does not change it.
local function identity(P, u, r, xu, xr)
  u, r = pairsum(P, u % span52, r, xu, xr)
  return u % span52, r
end

-- relist adds a charge to a list, where u,r is Z before it. It returns Z after it.
local function relist(P, N, u, r, a, b, gu, gr, cu, cr)
  if not pairbelow(gu, gr, u, r) then -- it found the bucket full: nothing before it matters any more
    for i = #N, 6, -1 do
      N[i] = nil
    end
    N[4], N[5], u, r = gu, gr, gu, gr
  end
  local n = #N
  local zu, zr = pairsum(P, u, r, cu, cr)
  if a < 0 and n == 5 then
    N[4], N[5] = zu, zr
  elseif a < 0 and N[n - 5] < 0 then -- the two have the effect of one
    gu, gr = pairless(P, gu, gr, N[n - 1], N[n])
    if pairbelow(N[n - 3], N[n - 2], gu, gr) then
      N[n - 3], N[n - 2] = gu, gr
    end
    N[n - 1], N[n] = pairsum(P, N[n - 1], N[n], cu, cr)
  else
    N[n + 1], N[n + 2], N[n + 3], N[n + 4], N[n + 5], N[n + 6] = a, b, gu, gr, cu, cr
  end
  return zu, zr
end

-- repeated makes the charges of a list again, from u,r on. It returns the new list, how many
-- reservations are outstanding, and Z. drop is called with each outstanding reservation and returns
-- true to end it, and what is taken off its cost.
local function repeated(P, O, u, r, drop)
  local N, open = {0, 0, 0, u, r}, 0
  for i = 6, #O, 6 do
    local a, b, gu, gr, cu, cr = unpack(O, i, i + 5)
    if a >= 0 then
      local ended, lessu, lessr = drop(a, b, gu)
      if ended then
        a, b = -1, 0
        if lessu then
          cu, cr = pairless(P, cu, cr, lessu, lessr)
        end
      else
        open = open + 1
      end
    end
    if cu + cr > 0 then
      u, r = relist(P, N, u, r, a, b, gu, gr, cu, cr)
      if #N == 5 or #N == 11 and N[6] >= 0 and a >= 0 then
        open = a >= 0 and 1 or 0
      end
    end
  end
  return N, open, u, r
end

local function goeson()
  return false
end

kinds[1] = {
  books = true,

  -- P is version, kind, type (0 token, 1 leaky, 2 owing), n, p, size, and DelayAfter,
  -- MaxBurst, or the tokens that are missing at first.
  ready = function(P)
    local type = P[3]
    P.n, P.p, P.size, P.leaky, P.owing = P[4], P[5], P[6], type == 1, type == 2
    P.largest = P.size
    if P.n < 1 or P.n > span52 / 2 or P.p < 0 or P.p > span52 / 2 or P.size < 0 or P[7] < 0 then
      error('WEIRSTATE the key holds a state of a bucket that cannot be', 0)
    end
    if P.owing then
      P.passu, P.passr = P[7], 0
      P.fullu, P.fullr = P[7], 0
      P.missu, P.missr = P[7], 0
      P.largest = last
      if P.p > 0 then
        P.largest = min(muldiv(horizon, P.n, P.p), last)
      else
        P.missu = 0
      end
    else
      P.fullu, P.fullr = muldiv(P.size, P.p, P.n)
      P.passu, P.passr, P.missu, P.missr = P.fullu, P.fullr, 0, 0
      if P.leaky then
        P.passu, P.passr = muldiv(P[7], P.p, P.n)
      elseif P[7] > 0 then
        P.missu, P.missr = muldiv(P[7], P.p, P.n)
      end
    end
    P.keeps, P.name = P.missu > 0 or P.missr > 0 or P.p == 0, 'bucket' .. type -- what was used at a rate without end has all stored
  end,

  -- sound reports whether a state is valid for this limit. Whole numbers were checked before.
  sound = function(P, S)
    local n, O = #S, listof(S)
    if not O then
      return numbers(S, 0) and (n == 2 or n == 5 and S[4] < span52 and S[5] < P.n) and S[2] < P.n
    elseif n ~= 3 or not numbers({S[1], S[2]}, 0) or S[2] >= P.n or not numbers(O, -1) then
      return false
    end
    n = #O
    if n < 11 or n > 5 + 12 * (mostopen + 1) or n % 6 ~= 5 or not numbers({unpack(O, 1, 5)}, 0) or O[2] >= span52 or max(O[3], O[5]) >= P.n then
      return false
    end
    for i = 6, n, 6 do
      local a, b, gu, gr, cu, cr = unpack(O, i, i + 5)
      if min(b, gu, gr, cu, cr) < 0 or max(gr, cr) >= P.n or b >= 2 * P.n or a >= span52 then
        return false
      end
    end
    return true
  end,

  contact = function(P)
    if P.missu > 0 or P.missr > 0 then
      return advance(P, now, 0, P.missu, P.missr)
    end
  end,

  plan = function(P, S, t, cost)
    local bu, br = used(S, t)
    local cu, cr = muldiv(cost, P.p, P.n)
    local au, ar = pairsum(P, bu, br, cu, cr)
    if t + ceiled(au, ar) > last then
      return never, never
    end
    if P.owing then
      return within(ceiled(pairless(P, bu, br, P.passu, P.passr))), 0
    elseif P.leaky then
      return within(ceiled(pairless(P, bu, br, P.passu, P.passr))), within(ceiled(pairless(P, au, ar, P.fullu, P.fullr)))
    end
    return within(ceiled(pairless(P, au, ar, P.fullu, P.fullr))), 0
  end,

  -- book charges; keeps is whether the charge is a reservation, and 'until' for
  -- one that is not settled after its work may go. The ticket of one that is in the list
  -- has a sixth element: when its work goes, or 1 in an earlier format.
  book = function(P, S, t, due, cost, keeps)
    local u, r = t, 0
    if S and S[1] >= t then
      u, r = S[1], S[2]
    end
    local cu, cr = muldiv(cost, P.p, P.n)
    local next, O = advance(P, u, r, cu, cr), listof(S)
    local xh, xu, xr = returned(S)
    local N, entered
    if (O or keeps) and cu + cr > 0 and next[1] < last then
      local open = 0
      if O then
        N, open = repeated(P, O, O[4], O[5], keeps and function(_, b, goes) return goes + (b < P.n and keptfor or 0) < t end or goeson)
      else
        N = {0, 0, 0, u, r}
      end
      local gu, gr = t, 0 -- when its work goes
      if due > t then
        local ru, rest = P.passu, P.passr
        if not P.leaky and not P.owing then
          ru, rest = pairless(P, P.fullu, P.fullr, cu, cr)
        end
        ru, rest = pairless(P, u - t, r, ru, rest)
        gu, gr = pairsum(P, t, 0, ru, rest)
      end
      local a, b = -1, 0
      if keeps and (open < mostopen or u == t and r == 0) then
        a, b = identity(P, next[1], next[2], xu, xr)
        if keeps == 'until' then
          b = b + P.n
        end
        entered = max(gu, 2)
      elseif keeps then
        toomany = toomany + 1
      end
      relist(P, N, u, r, a, b, gu, gr, cu, cr)
    end
    next = bucketstate(next[1], next[2], xh, xu, xr, N)
    if entered then
      return next, {next[1], next[2], xh, xu, xr, entered}
    elseif listof(next) then
      return next, {next[1], next[2], xh, xu, xr}
    end
    return next, next
  end,

  -- settled ends a reservation that gives nothing back.
  settled = function(P, S, T)
    local O = T[6] and listof(S)
    if not O then
      return S
    end
    local a, b = identity(P, T[1], T[2], T[4], T[5])
    local found = false
    local N = repeated(P, O, O[4], O[5], function(v, w)
      found = found or v == a and w % P.n == b
      return v == a and w % P.n == b
    end)
    return found and bucketstate(S[1], S[2], O[1], O[2], O[3], N) or S
  end,

  -- refund gives back exactly what the state has because of a reservation that is in the list. For
  -- another charge it goes by the state alone, see least.
  refund = function(P, S, t, T, amount)
    local O, N, u, r, _ = listof(S), nil, nil, nil, nil
    if T[6] then
      expired = expired or amount > 0 and T[6] > 1 and T[6] + keptfor < t and t < ceiled(S[1], S[2])
      if not O or amount <= 0 then
        return S
      end
      local a, b = identity(P, T[1], T[2], T[4], T[5])
      local cu, cr = muldiv(amount, P.p, P.n)
      local found = false
      N, _, u, r = repeated(P, O, O[4], O[5], function(v, w, goes)
        if v == a and w % P.n == b then
          found = true
          if goes + keptfor < t then -- it counts as final
            return true
          end
          return true, cu, cr
        end
      end)
      if not found then
        return S
      end
    else
      local gu, gr = kinds[1].least(P, S, t, T, amount)
      if gu + gr == 0 then
        return S
      elseif O then -- the charges after it say how much of that counts
        gu, gr = pairless(P, O[4], O[5], gu, gr)
        N, _, u, r = repeated(P, O, gu, gr, goeson)
      else
        u, r = pairless(P, S[1], S[2], gu, gr)
      end
    end
    if u < t then
      u, r = t, 0
    end
    u, r = pairmin(u, r, S[1], S[2])
    local gu, gr = pairless(P, S[1], S[2], u, r)
    local xh, xu, xr = returned(S)
    xu, xr = pairsum(P, xu, xr, gu, gr)
    if xu >= span52 then
      xh, xu = xh + 1, xu - span52
    end
    return bucketstate(u, r, xh, xu, xr, N)
  end,

  -- least is what is given back by the state alone: what the bucket has not refilled by itself since.
  -- While work promised later still waits, only what exceeds everything charged since.
  least = function(P, S, t, T, amount)
    local uu, ur = used(S, t)
    local tu, tr = ahead(T[1], T[2], t)
    if amount <= 0 or uu + ur == 0 or tu + tr == 0 then
      return 0, 0
    end
    -- What was given back since the charge.
    local xh, xu, xr = returned(S)
    local du = (xh - (T[3] or 0)) * span52 + xu - (T[4] or 0)
    local dr = xr - (T[5] or 0)
    if dr < 0 then
      du, dr = du - 1, dr + P.n
    end
    if du < 0 or du >= span52 then
      return 0, 0
    end
    local su, sr = pairsum(P, uu, ur, du, dr)
    if pairbelow(su, sr, tu, tr) then
      return 0, 0
    end
    local cu, cr = muldiv(amount, P.p, P.n)
    local gu, gr = pairmin(cu, cr, pairless(P, tu, tr, du, dr))
    su, sr = pairless(P, su, sr, tu, tr)
    if su + sr > 0 then
      local pu, pr = P.fullu, P.fullr
      if P.leaky or P.owing then
        local ou, orest = muldiv(1, P.p, P.n)
        pu, pr = pairsum(P, P.passu, P.passr, ou, orest)
      end
      if pairbelow(pu, pr, uu, ur) then
        cu, cr = pairmin(cu, cr, pu, pr)
        gu, gr = pairmin(gu, gr, pairless(P, cu, cr, su, sr))
      end
    end
    return gu, gr
  end,

  -- reached: without debt, no more than the capacity is missing; where each charge leaves a debt, no
  -- more than one permit.
  reached = function(P, S)
    local u, r = pairless(P, S[1], S[2], P.fullu, P.fullr)
    if P.owing then
      u, r = pairless(P, u, r, muldiv(1, P.p, P.n))
    end
    return ceiled(u, r)
  end,

  look = function(P, S, t)
    local bu, br = used(S, t)
    local reset = ceiled(bu, br)
    if pairbelow(P.passu, P.passr, bu, br) then
      return 0, reset
    end
    if P.p == 0 then
      return P.size, reset
    end
    local fu, fr = pairmin(P.fullu, P.fullr, last - t, 0)
    local u, r = pairless(P, fu, fr, bu, br)
    local q, rest = muldiv(u, P.n, P.p)
    return min(q + floor((rest + r) / P.p), P.size), reset
  end,

  spent = function(P, S, t)
    if P.p == 0 then
      return 0
    end
    local u, r = used(S, t)
    local q, rest = muldiv(u, P.n, P.p)
    return min(q - floor(-(rest + r) / P.p), last)
  end,
}
