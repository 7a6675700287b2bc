-- FixedWindow. A state is the latest window with a count, that count, and the latest promised time,
-- -1 for none; with a calendar, also the end of the window as known at the charge. A window is
-- identified by the time at which it begins, or in a calendar by its first day, as days since
-- 1970-01-01: a date and not a moment, so that other time zone data do not change the identity. See
-- fixedWindowRule in the Go package.
--
-- The caller provides calendars: it sends the windows that it expects to be needed, as day,
-- beginning and end. If others are needed, the reply has a time in each.

-- missing ends the charge: the caller did not send the window of a time.
local function missing(t)
  beyond[#beyond + 1] = t
  error(beyond)
end

-- covers reports whether the i-th window of a list contains t. One that ends after the end of the
-- clock contains that end too.
local function covers(w, i, t)
  return w[i + 1] <= t and (t < w[i + 2] or w[i + 2] == last)
end

-- frame returns the window that contains t, and its end.
local function frame(P, t)
  if P.hits then
    return t, min(t + P.length, last)
  elseif P.length then
    local _, into = muldiv(t, 1, P.length)
    return t - into, min(t - into + P.length, last)
  end
  local w = P.windows
  if w then
    for i = 1, #w, 3 do
      if covers(w, i, t) then
        return w[i], w[i + 2]
      end
    end
  end
  missing(t)
end

-- frameends is the end of the window of a state.
local function frameends(P, S)
  if P.length then
    return min(S[1] + P.length, last)
  end
  local w, t, sent = P.windows, max(0, S[4] - 1), false
  for i = 1, #w, 3 do
    if w[i] == S[1] then
      return w[i + 2]
    end
    sent = sent or covers(w, i, t)
  end
  if sent then
    error('WEIRSTATE the key holds a window that is not there', 0)
  end
  missing(t)
end

-- frameat returns the window that counts at t, or at the latest promised time, its count, how long
-- until then, and its end. A time before the window counts in it too.
local function frameat(P, S, t)
  local when, wait = max(t, S[3]), max(0, S[3] - t)
  local id, ends = frame(P, when)
  if id < S[1] or P.hits and S[2] > 0 and when < S[1] + P.length then
    return S[1], S[2], wait, frameends(P, S)
  elseif id == S[1] then
    return id, S[2], wait, ends
  end
  return id, 0, wait, ends
end

-- framecount returns the count, and how long until its window. For a limit that no caller uses any
-- more, the caller does not send the calendar: then the stored end counts.
local function framecount(P, S, t)
  if P.length or P.windows and #P.windows > 0 then
    local _, count, wait = frameat(P, S, t)
    return count, wait
  end
  local count = S[2]
  if max(t, S[3]) >= S[4] then
    count = 0
  end
  return count, max(0, S[3] - t)
end

kinds[3] = {
  calendars = true, -- its windows may be those of a calendar
  books = true,

  -- P is version, kind, type (0 epoch, 1 first, 2 calendar), limit, and the length of windows
  -- or the name of the calendar.
  ready = function(P)
    P.limit, P.hits = P[4], P[3] == 1
    if P[3] == 2 then
      P.windows = calendars[P[5]]
    else
      P.length = P[5]
    end
    P.largest, P.keeps, P.name = P.limit, false, 'fixed'
  end,

  -- Bounds for promised times, and for the end of a calendar's window: no caller can have
  -- promised more.
  sound = function(P, S)
    local n = P.length and 3 or 4
    return #S == n and numbers(S, -last) and S[2] >= 0 and S[3] >= -1 and S[3] - now <= 2 * horizon and (n == 3 or S[4] - now <= 3 * horizon)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    if not S then
      return 0, 0
    end
    local _, count, wait, ends = frameat(P, S, t)
    if count > P.limit - cost then
      if ends >= last then
        return never, never
      end
      wait = ends - t
    end
    if wait > horizon then
      return never, never
    end
    return wait, 0
  end,

  -- A ticket is the state after the charge, the cost, and the state before, with the end of
  -- its window.
  book = function(P, S, t, due, cost)
    local before = S
    if not S then
      local id, ends = frame(P, t)
      before = {id, 0, -1, ends}
    end
    due = max(due, before[3])
    local id, count, _, ends = frameat(P, before, due)
    local next = {id, min(count + cost, last), due > t and due or -1}
    local ticket = {id, next[2], next[3], cost, before[1], before[2], before[3]}
    if not P.length then
      next[4], ticket[8] = ends, before[4]
    end
    return next, ticket
  end,

  -- refund lowers the count of the charge's window while it is open. If nothing was charged
  -- since, the state is as it was before.
  refund = function(_, S, _, T, amount)
    if S[1] ~= T[1] then
      return S
    elseif amount == T[4] and S[2] == T[2] and S[3] == T[3] then
      return {T[5], T[6], T[7], T[8]}
    end
    return {S[1], max(0, S[2] - amount), S[3], S[4]}
  end,

  -- giveback lowers the count of the current window, or of the one of promised work.
  giveback = function(P, S, t, amount)
    local id, count = frameat(P, S, t)
    if id ~= S[1] then
      return S
    end
    return {S[1], max(0, count - amount), S[3], S[4]}
  end,

  -- reached: the latest window has begun, unless it was promised. With a calendar, the state does not
  -- show it: a window may begin later by other time zone data.
  reached = function(P, S)
    return P.length and max(S[1], S[3]) or last
  end,

  look = function(P, S, t)
    if not S then
      return P.limit, 0
    end
    local _, count, wait, ends = frameat(P, S, t)
    local reset = wait
    if count > 0 then
      reset = max(wait, ends - t)
    end
    if wait > 0 then
      return 0, reset
    end
    return max(0, P.limit - count), reset
  end,

  spent = function(P, S, t)
    return (framecount(P, S, t))
  end,

  load = function(P, t, spent)
    return (kinds[3].book(P, nil, t, t, min(spent, P.limit)))
  end,

  -- convert keeps the count. With other windows, it counts in the window of now, or of the
  -- latest promised time.
  convert = function(P, S, Q)
    if P.hits ~= Q.hits then
      return nil
    elseif P[3] == Q[3] and P[5] == Q[5] then
      return S
    end
    local count, wait = framecount(P, S, now)
    local id, ends = frame(Q, now + wait)
    return {id, count, S[3], not Q.length and ends or nil}
  end,
}
