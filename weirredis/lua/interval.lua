-- IntervalBucket. A state is the tokens, the time of the last counted step, the time of the charge
-- that began these steps, and the latest promised time, -1 for none. Tokens below 0 are a debt,
-- which is counted up to 2^53. See intervalBucketRule in the Go package.
--
-- While reservations are outstanding, the fifth element is a list: the latest number of a reservation,
-- and for each outstanding one, oldest first: its number; the time after which it is final; and the
-- fewest tokens that any later charge found lacking, 2^53-1 without a later one. The number is the time
-- of its charge, or the next free one. That the list begins with it makes numbers unique.
-- weirtest.Versions is the model of this.
local mostkept, finalafter = 256, 900000000 -- reservations of a list; how long after their work may go

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

-- lackslist is a list after a charge that found tokens lacking. A charge that goes at once and finds a
-- full bucket ends all reservations; one that goes later may be given back before. Those that are final
-- at t are dropped if keeps is true. It returns how many are left.
local function lackslist(O, lacks, t, later, keeps)
  local N = {O and O[1] or 0}
  for i = 2, O and #O or 0, 3 do
    local most = min(O[i + 2], lacks)
    if (lacks > 0 or later) and not (keeps and O[i + 1] < t) then
      N[#N + 1], N[#N + 2], N[#N + 3] = O[i], O[i + 1], most
    end
  end
  return N, (#N - 1) / 3
end

-- kept is a list that is left in a state: without reservations, it stays while numbers are ahead of
-- the clock.
local function kept(N, t)
  if N and (#N > 1 or N[1] >= t) then
    return N
  end
end

-- without is a list without a reservation, of which an amount at most is given back where so much
-- lacks. It returns what is given back, too; nil if the reservation is not in the list.
local function without(O, id, amount, lacks)
  local at, given = nil, 0
  for i = 2, #O, 3 do
    if O[i] == id then
      at, given = i, max(0, min(amount, O[i + 2], lacks))
    end
  end
  if not at then
    return nil, 0
  end
  local N, most = {O[1]}, O[at + 2]
  for i = 2, #O, 3 do
    local m = O[i + 2]
    if i < at and amount > 0 and most < last then
      m = min(m, max(0, most - given))
    elseif i > at and m < last then
      m = max(0, m - given)
    end
    if i ~= at then
      N[#N + 1], N[#N + 2], N[#N + 3] = O[i], O[i + 1], m
    end
  end
  return N, given
end

kinds[2] = {
  books = true,

  -- P is version, kind, size, refill, every.
  ready = function(P)
    P.size, P.refill, P.every = P[3], P[4], P[5]
    P.largest, P.keeps, P.name = P.size, false, 'interval'
  end,

  sound = function(P, S)
    local O = S[5]
    if O and (type(O) ~= 'table' or #O < 1 or #O > 1 + 3 * mostkept or #O % 3 ~= 1 or not numbers(O, 0)) then
      return false
    end
    return #S == (O and 5 or 4) and numbers({unpack(S, 1, 4)}, -last) and S[1] >= P.size - last and S[2] >= 0 and S[4] >= -1
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

  -- A ticket is the state after the charge, the cost, and the state before. That of a reservation in
  -- the list also has when its work goes, and its number.
  book = function(P, S, t, due, cost, keeps)
    local before = S or {P.size, t, t, -1}
    due = max(due, before[4])
    local tokens, anchor = stepped(P, before[1], before[2], due)
    local grid = before[3]
    if tokens == P.size then
      grid = anchor
    end
    local next = {max(tokens - cost, P.size - last), anchor, grid, due > t and due or -1}
    local ticket = {next[1], next[2], next[3], next[4], cost, before[1], before[2], before[3], before[4]}
    if before[5] or keeps then
      local N, open = lackslist(before[5], P.size - tokens, t, due > t, keeps)
      local goes = max(due, t)
      if keeps and open < mostkept then
        N[1] = max(t, N[1] + 1)
        N[#N + 1], N[#N + 2], N[#N + 3] = N[1], min(goes + (keeps == 'until' and 0 or finalafter), last), last
        ticket[10], ticket[11] = goes, N[1]
      elseif keeps then
        toomany = toomany + 1
      end
      next[5] = kept(N, t)
    end
    return next, ticket
  end,

  -- settled ends a reservation that gives nothing back.
  settled = function(_, S, T)
    local N = T[11] and S[5] and without(S[5], T[11], 0, 0)
    return N and {S[1], S[2], S[3], S[4], kept(N, now)} or S
  end,

  -- refund gives back exactly what a reservation of the list still takes: at most what every later
  -- charge found lacking. Another charge gives back what the steps since have not made up for, and
  -- nothing if the bucket was full since. If nothing was charged since, the state is as it was before.
  refund = function(P, S, t, T, amount)
    local tokens, anchor = stepsat(P, S, t)
    local N, given = S[5], 0
    if T[11] then
      local final = T[10] + finalafter < t
      expired = expired or final and tokens < P.size
      N, given = without(N or {0}, T[11], final and 0 or amount, P.size - tokens)
      if not N then
        return S
      elseif final then
        return {S[1], S[2], S[3], S[4], kept(N, t)}
      end
    end
    if amount == T[5] and S[1] == T[1] and S[2] == T[2] and S[4] == T[4] and (T[11] or S[3] == T[3]) then
      N = T[11] and without(S[5], T[11], 0, 0) or N
      return {T[6], T[7], T[8], T[9], N}
    elseif not T[11] then
      if S[3] ~= T[3] or tokens == P.size then
        return S
      end
      if anchor > T[2] then
        amount = max(0, amount - muldiv(anchor - T[2], 1, P.every) * P.refill)
      end
      given = min(amount, P.size - tokens)
      if N then -- each later charge found at most that much less
        N = {N[1]}
        for i = 2, #S[5], 3 do
          local most = S[5][i + 2]
          N[i], N[i + 1], N[i + 2] = S[5][i], S[5][i + 1], most < last and max(0, most - given) or most
        end
      end
    elseif given == 0 then
      return {S[1], S[2], S[3], S[4], kept(N, t)}
    end
    return {tokens + given, anchor, S[3], S[4], kept(N, t)}
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
    local same = P.every == Q.every and P.refill == Q.refill -- otherwise what is lacking may have come at the other rate
    return {Q.size - (P.size - tokens), anchor, min(S[3], anchor), S[4], same and S[5] or nil}
  end,
}
