-- WarmUp. What is stored is kept as the time that it took to come, in ticks of which a clock unit brings d: see warm in the Go package.
-- With T = p/n and the cold factor k/one all of it is whole. A state is the time at which the next charge may go, and what is stored: a
-- number, or limbs where it is larger.

-- storedin is what is stored in a state.
local function storedin(S)
  if #S == 2 then
    return S[2]
  end
  return {unpack(S, 2)}
end

local function warmstate(next, stored)
  if type(stored) == 'number' then
    return {next, stored}
  end
  return {next, unpack(stored)}
end

-- warmat is what is stored at t, and when the next charge may go. While that lies ahead, nothing more is stored.
local function warmat(P, S, t)
  if not S then
    return P.full, t
  elseif S[1] >= t or P.free then
    return storedin(S), max(S[1], t)
  end
  return wideleast(wideadd(storedin(S), widemul(t - S[1], P.d)), P.full), t
end

-- warmtake takes as many permits as there are of a cost out of what is stored. It returns what is left, and how long the next charge waits
-- for all of the cost, rounded up once.
local function warmtake(P, stored, cost)
  if P.free then
    return stored, 0
  end
  local left = wideless(stored, widemul(P.permit, cost))
  local wait, rest = muldiv(cost, P.p, P.n)
  local x, y = wideless(stored, P.threshold), wideless(left, P.threshold)
  if x == 0 or P.climb == 0 then
    if rest > 0 then
      wait = wait + 1
    end
    return left, min(wait, last)
  end
  -- x^2-y^2 is (x+y)*(x-y)
  local dear = widemul(widemul(wideadd(x, y), wideless(x, y)), P.climb)
  local more = wideup(wideadd(dear, widemul(P.fractions, rest)), widemul(P.fractions, P.n))
  return left, plus(min(wait, last), narrow(more))
end

kinds[7] = {
  books = true,

  -- P is version, kind, n (0 for a rate without end), p, the period, and the cold factor as k and one.
  ready = function(P)
    local n, p, period, k, one = P[3], P[4], P[5], P[6], P[7]
    P.free, P.keeps, P.name = n == 0, n == 0, 'warm' -- what was used at a rate without end is warm
    P.full, P.largest = 0, last
    if P.free then
      return
    end
    P.n, P.p, P.climb = n, p, k - one
    P.d, P.permit = widemul(n, 5 * one + k), widemul(p, 2 * (one + k))
    P.full, P.threshold = widemul(P.d, period), widemul(widemul(n, period), one + k)
    P.fractions = widemul(widemul(widemul(16 * one * one, one + k), n), period) -- n times that many are a clock unit
    P.largest = max(min(muldiv(horizon, n, p), last), 1)
  end,

  sound = function(_, S)
    local n = #S
    for i = 3, n do
      if type(S[i]) ~= 'number' or S[i] >= limb then
        return false
      end
    end
    return n >= 2 and n <= 16 and numbers(S, 0) and (n == 2 or S[2] < limb and S[n] > 0)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local stored, next = warmat(P, S, t)
    local wait = next - t
    if wait > horizon then
      return never, 0
    end
    if last - next <= 2 * horizon then -- otherwise the largest cost is waited for before the end of the clock
      local _, own = warmtake(P, stored, cost)
      if own > last - next then
        return never, 0
      end
    end
    return wait, 0
  end,

  -- A ticket is the state just after, the one before, the cost, and when it was charged.
  book = function(P, S, t, due, cost)
    local stored, next = warmat(P, S, t)
    local left, wait = warmtake(P, stored, cost)
    local after = warmstate(plus(next, wait), left)
    return after, {after, S or warmstate(t, P.full), cost, t}
  end,

  -- refund makes the state what it would be had the actual cost been charged at first, where nothing was charged since. Otherwise it gives
  -- nothing back: what was charged later was charged by how cold it then was.
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

  look = function(P, S, t)
    local stored, next = warmat(P, S, t)
    local wait, remaining = next - t, 0
    if P.free then
      return wait == 0 and last or 0, wait
    elseif wait == 0 then
      remaining = min(narrow(wideover(stored, P.permit)), P.largest)
    end
    return remaining, plus(wait, narrow(wideup(wideless(P.full, stored), P.d)))
  end,

  spent = function(P, S, t)
    if P.free then
      return 0
    end
    local stored, next = warmat(P, S, t)
    local owed, rest = muldiv(next - t, P.n, P.p)
    if rest > 0 then
      owed = owed + 1
    end
    local all, left = wideover(P.full, P.permit), wideover(stored, P.permit)
    return plus(min(owed, last), narrow(wideless(all, left)))
  end,
}
