-- TokenBucket, LeakyBucket and SmoothBursty: the generic cell rate algorithm (GCRA). A state is Z,
-- the time at which the bucket is full again, as clock units and a rest of ticks below n. Once
-- something was given back, the state also has the total of that: high units (of 2^52), units and
-- rest. One clock unit brings n ticks, one token costs p. Spans are pairs of units and a rest, too.
local span52 = 4503599627370496

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
local function advance(P, u, r, v, s, S)
  u, r = pairsum(P, u, r, v, s)
  if u >= last then
    u, r = last, 0
  end
  if S and S[3] then
    return {u, r, S[3], S[4], S[5]}
  end
  return {u, r}
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
    local n = #S
    return numbers(S, 0) and (n == 2 or n == 5 and S[4] < span52 and S[5] < P.n) and S[2] < P.n
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

  book = function(P, S, t, due, cost)
    local u, r = t, 0
    if S and S[1] >= t then
      u, r = S[1], S[2]
    end
    local cu, cr = muldiv(cost, P.p, P.n)
    S = advance(P, u, r, cu, cr, S)
    return S, S
  end,

  -- refund gives back what the bucket has not refilled by itself since. While work promised
  -- later still waits, it gives back only what exceeds everything charged since. See
  -- bucket.refund in the Go package.
  refund = function(P, S, t, T, amount)
    local uu, ur = used(S, t)
    local tu, tr = ahead(T[1], T[2], t)
    if amount <= 0 or uu + ur == 0 or tu + tr == 0 then
      return S
    end
    -- What was given back since the charge.
    local du = ((S[3] or 0) - (T[3] or 0)) * span52 + (S[4] or 0) - (T[4] or 0)
    local dr = (S[5] or 0) - (T[5] or 0)
    if dr < 0 then
      du, dr = du - 1, dr + P.n
    end
    if du < 0 or du >= span52 then
      return S
    end
    local su, sr = pairsum(P, uu, ur, du, dr)
    if pairbelow(su, sr, tu, tr) then
      return S
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
    if gu + gr == 0 then
      return S
    end
    local xh = S[3] or 0
    local xu, xr = pairsum(P, S[4] or 0, S[5] or 0, gu, gr)
    if xu >= span52 then
      xh, xu = xh + 1, xu - span52
    end
    uu, ur = pairless(P, uu, ur, gu, gr)
    return {t + uu, ur, xh, xu, xr}
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
