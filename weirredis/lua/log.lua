-- SlidingLog: each charge at its time. Expired charges are removed at the next charge. A charge
-- that will have expired at a promised time does not count at that time, but stays: the promise may
-- be given back.

-- timeat is the time that counts at t: the latest promised time if it is in the future, or the time
-- of the newest charge for an earlier reading; and how long until then.
local function timeat(S, t)
  if not S then
    return t, 0
  end
  local at = max(t, S[1])
  if S[7] ~= '' and S[2] > at then
    at = S[2]
  end
  return at, max(S[1] - t, 0)
end

-- live is how many charges have expired at a time, and the sum of the others.
local function live(P, S, at)
  if not S then
    return 0, 0
  end
  local gone = leading(S, 1, at - P.window)
  local _, sum = nth(S, gone)
  return gone, S[3] - sum
end

-- join merges n charges with those after them, after the first from. It returns the last two
-- merged.
local function join(S, from, n)
  local _, before = nth(S, from)
  local time, sum = nth(S, from + n)
  local later, through = nth(S, from + n + 1)
  local text = piece(S, 1, from) .. piece(S, from + n + 1, length(S))
  return {S[1], S[2], S[3], S[4], S[5], S[6], text, S[8]}, {time, sum - before, later, through - sum}
end

-- bounded makes room for more charges by merging the oldest. The first gone charges do not count at
-- the promised time; the others are bounded, and all together may be twice as many. See
-- slidingLogRule.bounded in the Go package.
local function bounded(P, S, gone, more)
  local over, joined = length(S) - gone + more - P.most, nil
  if over <= 0 then
    gone, over = 0, length(S) + more - 2 * P.most
  end
  if over > 0 then
    S, joined = join(S, gone, over)
  end
  over = length(S) + more - 2 * P.most
  if over > 0 then -- after a change of the bound
    S = join(S, 0, over)
  end
  return S, joined
end

-- unjoin undoes the merge of two charges.
local function unjoin(S, earlier, cost, time, rest)
  for i = leading(S, 1, time - 1) + 1, length(S) do
    local at, sum = nth(S, i)
    if at > time then
      return S
    end
    local previous, before = nth(S, i - 1)
    if sum - before == cost + rest then
      if i > 1 and previous > earlier then
        return S -- another charge with the same time and cost
      end
      return inserted(S, i, earlier, cost, 0)
    end
  end
  return S
end

kinds[6] = {
  books = true,

  -- P is version, kind, Limit, Window and MaxEntries.
  ready = function(P)
    P.limit, P.window, P.most = P[3], P[4], P[5]
    P.largest, P.keeps, P.name = P.limit, false, 'log'
  end,

  sound = function(_, S)
    return soundlist(S)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local at, wait = timeat(S, t)
    local _, sum = live(P, S, at)
    local room = P.limit - cost
    if sum > room then -- until the first of those has left whose leaving makes room
      local free = nth(S, leading(S, 2, S[3] - room - 1) + 1) + P.window
      if free > last then
        return never, 0
      end
      wait = max(free - t, 0)
    end
    return within(wait), 0
  end,

  -- A ticket is the time, the cost, the latest promise before, the two charges that were merged to
  -- make room for this one, if any were, and the reading at which the charge was made.
  book = function(P, S, t, due, cost)
    S = S or emptied
    due = max(due, S[1])
    local at, after = timeat(S, due), due > t and due or -1
    local T, joined = {at, cost, S[1]}, nil
    S = dropped(S, (live(P, S, t)))
    if S[3] + cost > last then
      return withpromise(lump(at), after), {}
    end
    S, joined = bounded(P, S, live(P, S, at), 1)
    if joined then
      T[4], T[5], T[6], T[7] = unpack(joined)
    end
    T[#T + 1] = t
    return withpromise(inserted(S, length(S) + 1, at, cost, cost), after), T
  end,

  -- refund lowers a charge that is still remembered unmerged. If it was the latest, the merge
  -- that made room for it is undone, and the promise before it is the latest again. Charges
  -- with the same time and cost cannot be told apart: while one of them is left, its time
  -- stays promised.
  refund = function(P, S, t, T, amount)
    local i, n = T[1] and leading(S, 1, T[1]) or 0, length(S)
    while i > 0 do
      local time, sum = nth(S, i)
      local previous, before = nth(S, i - 1)
      if time ~= T[1] then
        return S
      elseif sum - before == T[2] then
        S = altered(S, i, -amount)
        if amount < T[2] or i < n then
          return S
        end
        if #T == 4 or #T == 8 then -- not in receipts of earlier versions
          S[8] = max(S[8] or 0, T[#T]) -- what had expired by then was removed
        end
        if n == 1 then
          return withpromise(S, -1)
        elseif previous < T[1] then -- what was promised before may have been given back too
          S = withpromise(S, min(T[3], previous))
        end
        return #T >= 7 and unjoin(S, T[4], T[5], T[6], T[7]) or S
      end
      i = i - 1
    end
    return S
  end,

  -- reached: the newest charge was made, and what was given back had been made.
  reached = function(_, S)
    return max(S[1], S[7] ~= '' and S[2] or 0, S[8] or 0)
  end,

  look = function(P, S, t)
    local at, wait = timeat(S, t)
    local _, sum = live(P, S, at)
    local reset = wait
    if sum > 0 then
      reset = max(reset, min(S[2] + P.window, last) - t)
    end
    if wait > 0 then
      return 0, reset
    end
    return max(P.limit - sum, 0), reset
  end,

  spent = function(P, S, t)
    local _, sum = live(P, S, (timeat(S, t)))
    return sum
  end,
}
