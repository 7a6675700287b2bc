-- IntervalBucket. A state is the tokens, the time of the last counted step, the time of the charge
-- that began these steps, and the latest promised time, -1 for none. Tokens below 0 are a debt,
-- which is counted up to 2^53. See intervalBucketRule in the Go package.

-- stepsfor is how many steps bring n tokens.
local function stepsfor(P, tokens)
  local q, r = muldiv(tokens, 1, P.refill)
  if r > 0 then
    return q + 1
  end
  return q
end

-- stepped adds the tokens of the steps up to t. A full bucket counts from t.
local function stepped(P, tokens, anchor, t)
  if tokens >= P.size then
    return P.size, max(anchor, t)
  elseif t <= anchor then
    return tokens, anchor
  end
  local steps = muldiv(t - anchor, 1, P.every)
  if steps >= stepsfor(P, P.size - tokens) then
    return P.size, t
  end
  return tokens + steps * P.refill, anchor + steps * P.every
end

-- stepsat returns the bucket at t, or at the latest promised time: its tokens, the step from which
-- they are counted, and how long until then.
local function stepsat(P, S, t)
  if not S then
    return P.size, t, 0
  end
  local tokens, anchor = stepped(P, S[1], S[2], max(t, S[4]))
  return tokens, anchor, max(0, S[4] - t)
end

-- stepdue is how long after t the missing tokens have come.
local function stepdue(P, lacks, anchor, t)
  local span = stepsfor(P, lacks) * P.every
  if span > last then
    return last
  end
  return min(span + (anchor - t), last)
end

kinds[2] = {
  books = true,

  -- P is version, kind, size, refill, every.
  ready = function(P)
    P.size, P.refill, P.every = P[3], P[4], P[5]
    P.largest, P.keeps, P.name = P.size, false, 'interval'
  end,

  sound = function(P, S)
    return #S == 4 and numbers(S, -last) and S[1] >= P.size - last and S[2] >= 0 and S[4] >= -1
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local tokens, anchor, wait = stepsat(P, S, t)
    if cost > tokens then
      wait = stepdue(P, cost - tokens, anchor, t)
    end
    if wait > last - t then
      return never, 0
    end
    return within(wait), 0
  end,

  -- A ticket is the state after the charge, the cost, and the state before.
  book = function(P, S, t, due, cost)
    local before = S or {P.size, t, t, -1}
    due = max(due, before[4])
    local tokens, anchor = stepped(P, before[1], before[2], due)
    local grid = before[3]
    if tokens == P.size then
      grid = anchor
    end
    local next = {max(tokens - cost, P.size - last), anchor, grid, due > t and due or -1}
    return next, {next[1], next[2], next[3], next[4], cost, before[1], before[2], before[3], before[4]}
  end,

  -- refund gives back what the steps since have not made up for. If nothing was charged
  -- since, the state is as it was before. A charge from before the bucket was last full has
  -- nothing left to give back.
  refund = function(P, S, t, T, amount)
    if amount == T[5] and S[1] == T[1] and S[2] == T[2] and S[3] == T[3] and S[4] == T[4] then
      return {T[6], T[7], T[8], T[9]}
    elseif S[3] ~= T[3] then
      return S
    end
    local tokens, anchor = stepsat(P, S, t)
    if tokens == P.size then
      return S
    end
    if anchor > T[2] then
      amount = max(0, amount - muldiv(anchor - T[2], 1, P.every) * P.refill)
    end
    return {tokens + min(amount, P.size - tokens), anchor, S[3], S[4]}
  end,

  -- reached: steps are counted up to the clock, or to a promised time.
  reached = function(_, S)
    return max(S[2], S[4])
  end,

  look = function(P, S, t)
    local tokens, anchor, wait = stepsat(P, S, t)
    local reset = wait
    if tokens < P.size then
      reset = max(wait, stepdue(P, P.size - tokens, anchor, t))
    end
    if wait > 0 then
      return 0, reset
    end
    return max(0, tokens), reset
  end,

  spent = function(P, S, t)
    return P.size - stepsat(P, S, t)
  end,

  load = function(P, t, spent)
    return (kinds[2].book(P, nil, t, t, spent))
  end,

  -- convert keeps the tokens used, and the last step. Steps of the new length that would have
  -- come before the change do not count.
  convert = function(P, S, Q)
    local tokens, anchor = stepsat(P, S, now)
    local t = max(now, S[4])
    if anchor < t then
      local _, since = muldiv(t - anchor, 1, Q.every)
      anchor = t - since
    end
    return {Q.size - (P.size - tokens), anchor, min(S[3], anchor), S[4]}
  end,
}
