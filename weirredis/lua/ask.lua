-- ask carries out one charge, and returns whether it was admitted.
local function ask(op, P, e, cost, wait, paper, mark)
  local K, S, late = P.K, current(e, P), false
  if op == 6 then -- reset
    if e.S then
      e.S, e.other, e.both, e.dirty = nil, nil, nil, true
      e.now, e.behind, now = reading, {}, reading
      made = true
    end
    op, cost = 1, 0
    S = nil
  elseif op == 3 then
    local ok, def, charged, since, ticket, def2, amounts, tickets = true, P.def, 0, now, nil, nil, nil, nil
    if paper ~= '' then -- without a receipt, nothing was reserved: the whole cost is charged
      ok, def, charged, since, ticket, def2, amounts, tickets = pcall(cmsgpack.unpack, paper)
      if not ok or type(ticket) ~= 'table' then
        error('WEIRRECEIPT this is no receipt', 0)
      end
    end
    local settled = S and ticket and def == P.def and K.settled
    expired = false
    if cost < 0 or mark and (marked[mark] or redis.call('EXISTS', mark) == 1) then
      -- nothing to do, or it was done before
    elseif cost == charged then
      local without = settled and not e.begun and not e.both and settled(P, S, ticket) or S
      if without ~= S then
        S = without
        put(e, P, S)
        made = true
      end
    elseif e.begun ~= nil then
      made = versions.settle(e, P, cost, def, charged, ticket, def2, amounts, tickets) or made
      S = e.S
    elseif cost > charged then -- also of a version that is gone
      S = settled and settled(P, S, ticket) or S
      S = K.book(P, S or K.contact(P), now, now, cost - charged)
      put(e, P, S)
      made = true
    elseif S and (def == P.def or def2 == P.def) then
      local given
      if def == P.def then
        given = K.refund(P, S, now, ticket, charged - cost)
      elseif versions then -- charged for what a version admitted that is gone
        given = versions.given(P, S, amounts, tickets, cost)
      else
        error(wrong)
      end
      if given ~= S then
        S = given
        put(e, P, S)
        made = true
      end
    end
    op, cost, late = 1, 0, expired
    if mark and not late then
      settling = mark
    end
  elseif op == 7 then
    if not K.giveback then
      error('WEIRLIMIT only the count of a FixedWindow can be given back without a receipt', 0)
    end
    if cost > 0 and e.begun ~= nil then
      versions.giveback(e, P, cost)
      S, made = e.S, true
    elseif cost > 0 and S then
      S = K.giveback(P, S, now, cost)
      put(e, P, S)
      made = true
    end
    op, cost = 1, 0
  elseif op == 5 then
    if e.begun and S then
      put(e, P, S)
    end
    op, cost = 1, 0
  end
  local Q = P -- what decides
  if e.both then
    Q, S = versions.joint(e.both), {e.both[1].S, e.both[2].S}
    K = Q.K
  end
  if op == 0 or op == 2 or op == 4 then
    if not S and cost > 0 and (cost <= Q.largest or op == 4) then
      S = K.contact(Q)
      if S then -- the limit does not start full: without a stored state, each retry would start again
        put(e, Q, S)
      end
    end
  end
  local seen = S or K.contact(Q)
  local admitted, retry, delay, ticket, taken = true, 0, 0, nil, 0
  local def2, amounts, tickets
  if op == 4 and cost > 0 then -- take some
    cost = min(cost, (K.look(Q, seen, now)), Q.largest)
    admitted = cost > 0
    if not admitted then
      cost = 1
    end
  end
  if e.stored and op ~= 1 and S and cost > 0 and cost <= P.largest then -- a version begins, as at a first call
    put(e, P, S)
  end
  if cost < 0 or cost > Q.largest then
    admitted, retry = false, never
  elseif cost > 0 then
    local w, room = K.plan(Q, seen, now, cost)
    if op == 2 then
      if not K.books then
        wait = 0
      end
      admitted = w ~= never and room == 0 and (wait < 0 or w <= wait)
      if w == never or room == never then
        retry = never
      elseif wait < 0 then
        retry = room
      else
        retry = max(room, w - wait)
      end
      delay = w
    else
      admitted = w == 0 and room == 0
      if w == never or room == never then
        retry = never
      else
        retry = max(w, room)
      end
    end
    if admitted and op ~= 1 then
      local keeps = op == 2 and (paper == 'settled' or 'until') or op == 0 and wait == 2
      S, ticket = K.book(Q, S, now, min(now + delay, last), cost, keeps)
      seen, taken, made = S, cost, true
      if e.both then
        versions.putboth(e, S)
        ticket, def2, amounts, tickets = ticket[1], e.other.def, cost, ticket[2]
      else
        put(e, P, S)
        if e.other then
          def2, amounts, tickets = versions.charge(e, P, S, cost, keeps)
        end
      end
    end
  end
  if admitted then
    retry = 0
  elseif e.both and retry == never and cost > 0 and cost <= P.largest then
    retry = versions.retry(e.both)
  end
  local remaining, reset = K.look(Q, seen, now)
  if late then
    also('WEIREXPIRED')
    return true
  end
  say(retry, remaining, reset)
  if P.K.sign then
    also(e.both and 0 or K.sign(P, seen, now, cost, admitted))
  end
  if op == 2 then
    also(admitted and delay or 0)
    also(admitted and receipt(Q, cost, ticket, def2, amounts, tickets) or '')
  elseif op == 4 then
    also(taken)
    also(ticket and receipt(Q, cost, ticket, def2, amounts, tickets) or '')
  elseif op == 0 and wait >= 1 then -- a receipt is wanted
    also(ticket and receipt(Q, cost, ticket, def2, amounts, tickets) or '')
  elseif op == 1 and wait == 3 then -- how much is used, also beyond the limit
    also(seen and (K.usedbeyond or K.spent)(Q, seen, now) or 0)
  end
  return admitted
end

-- attempt is ask with errors caught: an error of one charge is reported in its place, and does not
-- affect the others.
local function attempt(i, key)
  local c = (i - 1) * 8
  if expiry > 0 and now > expiry - 1000 * charges[c + 7] then
    also('WEIRLATE')
    return false
  end
  which = charges[c + 2]
  local e = entry(key)
  local from, P = n, prepare(limits[charges[c + 2]])
  if e.err then
    also(e.err)
    return false
  end
  local S, def, old, other, used, ends, dirty, had = e.S, e.def, e.P, e.other, e.used, e.ends, e.dirty, made
  e.dirty, settling = nil, nil
  local ok, result = pcall(open, e, P)
  if ok then
    ok, result = pcall(ask, charges[c + 1], P, e, charges[c + 3], charges[c + 5], charges[c + 6], marks[i])
  end
  now = reading
  if ok then
    if e.begun ~= nil then
      if not e.dirty then -- a refusal leaves no trace, not even a converted state
        e.S, e.def, e.P, e.other, e.used, e.ends = S, def, old, other, used, ends
      end
      e.both, e.begun, e.stored = nil, nil, nil
    end
    e.dirty = e.dirty or dirty
    if settling and not marked[settling] then
      marked[settling] = charges[c + 8]
    end
    return result
  end
  if result == wrong then
    error(wrong)
  end
  e.S, e.def, e.P, e.other, e.used, e.ends, e.dirty = S, def, old, other, used, ends, dirty
  e.both, e.begun, e.stored, e.moved = nil, nil, nil, nil
  made = had
  for j = from + 1, n do
    said[j] = nil
  end
  n = from
  also(type(result) == 'table' and result.err or tostring(result))
  return false
end

-- together makes all charges from i to j, or none. If one is refused, the decisions about the
-- others are what they would have been without a charge.
local function together(i, j)
  local saved, from, all, had, refused, before = {}, n, true, made, {}, toomany
  local alone = {} -- by key, how many of the charges are for it
  for k = i, j do
    local e = entry(KEYS[first + k])
    alone[KEYS[first + k]] = (alone[KEYS[first + k]] or 0) + 1
    if not saved[e] then
      saved[e] = {e.S or false, e.def, e.P, e.other, e.used, e.ends, e.dirty}
    end
  end
  for k = i, j do
    local before = n
    if not attempt(k, KEYS[first + k]) then
      all = false
      refused[k] = {unpack(said, before + 1, n)}
    end
  end
  if all then
    return
  end
  for e, was in pairs(saved) do
    e.S, e.def, e.P, e.other, e.used, e.ends, e.dirty = was[1] or nil, was[2], was[3], was[4], was[5], was[6], was[7]
  end
  made, toomany = had, before
  for k = from + 1, n do
    said[k] = nil
  end
  n = from
  for k = i, j do
    if refused[k] and alone[KEYS[first + k]] == 1 then
      attempt(k, KEYS[first + k]) -- refused again: this time, the state of a first call is kept
    elseif refused[k] then
      for _, v in ipairs(refused[k]) do
        also(v)
      end
    else
      local c = (k - 1) * 8
      charges[c + 1] = 1
      attempt(k, KEYS[first + k])
      if charges[c + 5] >= 1 then
        also('')
      end
    end
  end
end
