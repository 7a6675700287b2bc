-- SlidingWindow: charges whose times are slot numbers, each with the count of its slot, for used
-- slots only. As in the ring of the Go package, a slot stays until it is overwritten by a slot with
-- the same number modulo the number of slots. It counts again if everything later is given back and
-- the clock is set back. If a slot left the window a whole window ago, the state has been idle in
-- between, so the slot is removed; but not in an All, whose other parts may keep the state.

-- slotat is the slot that counts at t, or at the latest promised time, and how long that lies
-- ahead. A reading before the newest slot counts in that slot.
local function slotat(P, S, t)
  if not S then
    return floor(t / P.width), 0
  end
  local slot = floor(max(t, S[1]) / P.width)
  if S[7] ~= '' and S[2] > slot then
    slot = S[2]
  end
  return slot, max(S[1] - t, 0)
end

-- totals is the sum of the counts of the window that ends with a slot, none before the newest; and
-- the count of that slot.
local function totals(P, S, slot)
  if not S then
    return 0, 0
  end
  local _, left = nth(S, leading(S, 1, slot - P.slots))
  local here = 0
  if S[2] == slot and S[7] ~= '' then
    local _, before = nth(S, length(S) - 1)
    here = S[3] - before
  end
  return S[3] - left, here
end

-- displaced is the index of the charge that a slot overwrites in the ring; 0 for none.
local function displaced(P, S, slot)
  local i, n = 1, length(S)
  while i <= n do
    local over = (slot - nth(S, i)) % P.slots
    if over == 0 then
      return i
    end
    i = max(i, leading(S, 1, nth(S, i) + over - 1)) + 1 -- the next one that may be
  end
  return 0
end

kinds[5] = {
  books = true,

  -- P is version, kind, Limit, SlotLimit, Slots, and the width of a slot.
  ready = function(P)
    P.limit, P.perslot, P.slots, P.width = P[3], P[4], P[5], P[6]
    P.largest, P.keeps, P.name = P.perslot, false, 'window'
  end,

  sound = function(_, S)
    return soundlist(S)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local at, wait = slotat(P, S, t)
    local sum, here = totals(P, S, at)
    local room, slot = P.limit - cost, at
    if sum > room then
      slot = nth(S, leading(S, 2, S[3] - room - 1) + 1) + P.slots
    elseif here > P.perslot - cost then
      slot = at + 1
    end
    if slot > at then
      wait = max(slot * P.width - t, 0)
    end
    return within(wait), 0
  end,

  -- A ticket is the slot, the cost, the latest promise before and after, the count of the
  -- slot just after, and the slot that was overwritten, with its count.
  book = function(P, S, t, due, cost)
    S = S or emptied
    due = max(due, S[1])
    local slot, after = slotat(P, S, due), due > t and due or -1
    if not P.joined then
      S = dropped(S, leading(S, 1, floor(t / P.width) - 2 * P.slots))
    end
    if S[3] + cost > last then
      return withpromise(lump(slot), after), {}
    end
    local T, n = {slot, cost, S[1], after, cost}, length(S)
    if n > 0 and S[2] == slot then
      local _, before = nth(S, n - 1)
      T[5] = S[3] - before + cost
      return withpromise(altered(S, n, cost), after), T
    end
    local old = displaced(P, S, slot)
    if old > 0 then
      local time, sum = nth(S, old)
      local _, before = nth(S, old - 1)
      T[6], T[7] = time, sum - before
      S = altered(S, old, before - sum)
    end
    return withpromise(inserted(S, length(S) + 1, slot, cost, cost), after), T
  end,

  -- refund lowers the count of the slot while it is in the ring. If it was the latest charge,
  -- the promise before it is the latest again, and the overwritten slot is restored.
  refund = function(P, S, t, T, amount)
    local i = T[1] and leading(S, 1, T[1]) or 0
    local time, sum = nth(S, i)
    if i == 0 or time ~= T[1] then
      return S
    end
    local _, before = nth(S, i - 1)
    local count = sum - before
    local latest = S[1] == T[4] and count == T[5] and i == length(S)
    S = altered(S, i, -min(amount, count))
    if not latest or amount ~= T[2] then
      return S
    end
    if T[6] and amount == count then
      S = inserted(S, leading(S, 1, T[6]) + 1, T[6], T[7], T[7])
    end
    return withpromise(S, T[3])
  end,

  -- reached: the newest slot has begun, unless it was promised.
  reached = function(P, S)
    return max(S[1], S[7] ~= '' and min(S[2] * P.width, last) or 0)
  end,

  look = function(P, S, t)
    local at, wait = slotat(P, S, t)
    local sum, here = totals(P, S, at)
    local reset = wait
    if S and S[7] ~= '' then
      reset = max(reset, min((S[2] + P.slots) * P.width, last) - t)
    end
    if wait > 0 then
      return 0, reset
    end
    return max(min(P.limit - sum, P.perslot - here), 0), reset
  end,

  spent = function(P, S, t)
    return (totals(P, S, (slotat(P, S, t))))
  end,
}
