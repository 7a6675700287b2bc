-- SlidingCounter. A state is the number of the current window, its count, and the count of the
-- window before. With e the time into the window of W, a cost is admitted while previous*(W-e) +
-- (current+cost)*W <= limit*W. See slidingCounterRule in the Go package.

-- counts returns the number of the window and both counts at t, how far t is into the window, and
-- for an earlier time how long before it: that counts as the window's beginning.
local function counts(P, S, t)
  local here, into = muldiv(t, 1, P.window)
  if S then
    if here < S[1] then
      return S[1], S[2], S[3], 0, S[1] * P.window - t
    elseif here == S[1] then
      return here, S[2], S[3], into, 0
    elseif here - 1 == S[1] then
      return here, 0, S[2], into, 0
    end
  end
  return here, 0, 0, into, 0
end

-- covered is the part of the previous count that a sliding window still covers, rounded up.
local function covered(P, previous, into)
  local q, r = muldiv(previous, P.window - into, P.window)
  if r > 0 then
    return q + 1
  end
  return q
end

-- enough is how far into a window the weighted count of the window before is down to room.
local function enough(P, previous, room)
  if previous == 0 then
    return 0
  end
  return max(0, P.window - muldiv(room, P.window, previous))
end

kinds[4] = {
  books = false,

  -- P is version, kind, limit, window.
  ready = function(P)
    P.limit, P.window = P[3], P[4]
    P.largest, P.keeps, P.name = P.limit, false, 'counter'
  end,

  sound = function(_, S)
    return #S == 3 and numbers(S, 0)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local _, current, previous, into, before = counts(P, S, t)
    local room, wait = P.limit - cost, 0
    if current > room then
      wait = before + P.window - into + enough(P, current, room)
    elseif covered(P, previous, into) > room - current then
      wait = before + enough(P, previous, room - current) - into
    end
    if wait > horizon or wait > last - t then
      return never, never
    end
    return wait, 0
  end,

  -- A ticket is the window of the charge.
  book = function(P, S, t, _, cost)
    local number, current, previous = counts(P, S, t)
    return {number, plus(current, cost), previous}, {number}
  end,

  -- refund lowers the count of the charge's window, while it is the current window or the one
  -- before.
  refund = function(P, S, t, T, amount)
    local number, current, previous = counts(P, S, t)
    if number <= T[1] then
      return {number, max(0, current - amount), previous}
    elseif number == T[1] + 1 then
      return {number, current, max(0, previous - amount)}
    end
    return S
  end,

  -- reached: the window has begun.
  reached = function(P, S)
    return min(S[1] * P.window, last)
  end,

  look = function(P, S, t)
    local _, current, previous, into, before = counts(P, S, t)
    local reset = 0
    if current > 0 then
      reset = plus(before, 2 * P.window - into)
    elseif previous > 0 then
      reset = plus(before, P.window - into)
    end
    return max(0, P.limit - current - covered(P, previous, into)), reset
  end,

  spent = function(P, S, t)
    return P.limit - kinds[4].look(P, S, t)
  end,

  -- usedbeyond is what is used, also beyond the limit.
  usedbeyond = function(P, S, t)
    local _, current, previous, into = counts(P, S, t)
    return plus(current, covered(P, previous, into))
  end,

  load = function(P, t, spent)
    return (kinds[4].book(P, nil, t, t, min(spent, P.limit)))
  end,

  -- convert keeps both counts; with another window, they count in the window of now and the
  -- one before.
  convert = function(P, S, Q)
    if P.window == Q.window then
      return S
    end
    local _, current, previous = counts(P, S, now)
    return {floor(now / Q.window), current, previous}
  end,
}
