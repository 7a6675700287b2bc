-- All. P.parts are the limits, and a state is the list of theirs; false stands for an unused state.
kinds[8] = {
  books = false,

  ready = function(P)
    P.parts, P.largest, P.keeps, P.name = {}, last, false, 'all'
    for i = 3, #P do
      local part = prepare(P[i])
      part.joined = true
      P.parts[i - 2] = part
      P.largest, P.keeps = min(P.largest, part.largest), P.keeps or part.keeps
    end
  end,

  sound = function(P, S)
    for i, part in ipairs(P.parts) do
      local sound = part.K.sound
      if S[i] and (type(S[i]) ~= 'table' or sound and not sound(part, S[i])) then
        return false
      end
    end
    return #S == #P.parts
  end,

  contact = function(P)
    local S, some = {}, false
    for i, part in ipairs(P.parts) do
      S[i] = part.K.contact(part) or false
      some = some or S[i]
    end
    return some and S or nil
  end,

  plan = function(P, S, t, cost)
    local wait, room = 0, 0
    for i, part in ipairs(P.parts) do
      local w, r = part.K.plan(part, S and S[i] or nil, t, cost)
      wait, room = (wait == never or w == never) and never or max(wait, w), (room == never or r == never) and never or max(room, r)
    end
    return wait, room
  end,

  book = function(P, S, t, due, cost, keeps)
    local next, tickets = {}, {}
    for i, part in ipairs(P.parts) do
      next[i], tickets[i] = part.K.book(part, S and S[i] or nil, t, t, cost, keeps)
    end
    return next, tickets
  end,

  settled = function(P, S, T)
    local next, some = {}, false
    for i, part in ipairs(P.parts) do
      next[i] = S[i] and T[i] and part.K.settled and part.K.settled(part, S[i], T[i]) or S[i]
      some = some or next[i] ~= S[i]
    end
    return some and next or S
  end,

  refund = function(P, S, t, T, amount)
    local next = {}
    for i, part in ipairs(P.parts) do
      next[i] = S[i] and T[i] and part.K.refund(part, S[i], t, T[i], amount) or S[i]
    end
    return next
  end,

  reached = function(P, S)
    local t = 0
    for i, part in ipairs(P.parts) do
      t = max(t, S[i] and part.K.reached(part, S[i]) or 0)
    end
    return t
  end,

  look = function(P, S, t)
    local remaining, reset = last, 0
    for i, part in ipairs(P.parts) do
      local left, back = part.K.look(part, S and S[i] or nil, t)
      remaining, reset = min(remaining, left), max(reset, back)
    end
    return remaining, reset
  end,

  -- sign says which part decided: the one that refused, or that of which the least is left.
  sign = function(P, S, t, cost, admitted)
    local which, least, wait = 0, last + 1, 0
    for i, part in ipairs(P.parts) do
      if admitted then
        local left = part.K.look(part, S and S[i] or nil, t)
        if left < least then
          which, least = i - 1, left
        end
      elseif cost < 0 or cost > part.largest then
        return i - 1
      end
    end
    if admitted then
      return which
    end
    for i, part in ipairs(P.parts) do
      local w, room = part.K.plan(part, S and S[i] or nil, t, cost)
      if w == never or room == never then
        return i - 1
      elseif max(w, room) > wait then
        which, wait = i - 1, max(w, room)
      end
    end
    return which
  end,

  spent = function(P, S, t)
    local most = 0
    for i, part in ipairs(P.parts) do
      most = max(most, S[i] and part.K.spent(part, S[i], t) or 0)
    end
    return most
  end,

  load = function(P, t, spent)
    local S = {}
    for i, part in ipairs(P.parts) do
      S[i] = part.K.load(part, t, spent)
    end
    return S
  end,
}
