-- The fast path for the most frequent calls: takes and peeks of token and leaky buckets, decided
-- exactly as bucket.lua does. It makes no functions, as that alone would take longer than the rest;
-- the caller has multiplied costs with rates already. What it does not support it leaves to
-- main.lua, before anything was written.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- The argument: version, expiry, grace in ms, limits, and runs. A limit is def, n, p, the size as
-- units and rest, what passes without delay as units and rest, and whether it is leaky. A run is
-- charges of one key that are alike, one after another: their limit, whether to charge, the cost of
-- each as units and rest, by how many ms they expire sooner than the call, and how many they are.
-- The reply has the backlog before each run, from which the caller computes each decision.
local asked = cmsgpack.unpack(ARGV[1])
local expiry, grace, limits, runs = asked[2], asked[3], asked[4], asked[5]
if asked[1] ~= 1 then
  return redis.error_reply('WEIRVERSION these scripts are of another version than who asks')
end
if now > expiry then
  return redis.error_reply('WEIRLATE ' .. string.format('%.0f', now))
end
local before = redis.call('GET', KEYS[1])
if before then
  return before
end

local said, states, owners, dirty, made = {now}, {}, {}, {}, false
local ahead, clocks, steps, widest = {}, {}, 0, 0 -- how far each key's clock is ahead of now; what it remembers; see keyclock.lua
for i = 1, #runs, 6 do
  local which, key = runs[i], KEYS[(i + 11) / 6]
  local late = now > expiry - 1000 * runs[i + 4]
  local L, S = limits[which], states[key]
  if S == nil then
    local raw = redis.pcall('GET', key)
    S = false
    if raw then
      local def, seen, behind, further
      if type(raw) == 'string' then
        def, S, seen, behind, further = cmsgpack.unpack(raw)
      end
      if def ~= L[1] then
        return redis.error_reply('WEIRFULL not for the short way')
      end
      local z, rest = S[1], S[2]
      if not (z >= 0 and z <= 9007199254740991 and rest >= 0 and rest < L[2] and z % 1 + rest % 1 == 0) then
        return redis.error_reply('WEIRFULL this is no state')
      end
      if seen or behind or seen == false and (z - L[4] > now or z - L[4] == now and rest > L[5]) then -- the server's clock stepped back, or the state is in debt
        local reached, found, kept = seen, now, {}
        if not seen then
          reached = z - L[4]
          if rest > L[5] then
            reached = reached + 1
          end
        end
        if now < reached then
          found = nil
          for _, by in ipairs({behind, further}) do
            kept[#kept + 1] = by
            if now + by >= reached then
              found = now + by
              break
            end
          end
          if not found then
            found, steps, widest = reached, steps + 1, math.max(widest, reached - now)
            kept, dirty[key] = {kept[#kept] or reached - now, #kept > 0 and reached - now or nil}, def
          end
        end
        if #kept ~= #{behind, further} then
          dirty[key] = def
        end
        ahead[key], clocks[key] = found - now, kept
      end
      local list = S[3]
      if type(list) == 'table' then -- of outstanding reservations, see bucket.lua
        for j = #list - 5, #list do
          if not (list[j] >= -1 and list[j] <= 9007199254740991 and list[j] % 1 == 0) then
            return redis.error_reply('WEIRFULL this is no state')
          end
        end
      elseif list then
        local returned = list + S[4] + S[5]
        if not (returned <= 9007199254740991 and returned % 1 == 0) then
          return redis.error_reply('WEIRFULL this is no state')
        end
      end
    end
    states[key], owners[key] = S, which
  elseif owners[key] ~= which then
    return redis.error_reply('WEIRFULL not for the short way')
  end

  local n, u, r, t = L[2], 0, 0, now + (ahead[key] or 0)
  if S and S[1] >= t then
    u, r = S[1] - t, S[2]
  end
  local size = #said
  if late then
    said[size + 1] = 'WEIRLATE'
  else
    said[size + 1], said[size + 2] = u, r
  end
  -- How many of the run are admitted. The room and the cost in ticks are below 2^53: the caller has
  -- made sure that the whole size is.
  local cost = runs[i + 2] * n + runs[i + 3]
  local admitted = 0
  if runs[i + 1] == 1 and cost > 0 and not late and u <= L[4] then
    admitted = math.max(0, math.min(runs[i + 5], math.floor(((L[4] - u) * n + L[5] - r) / cost)))
    if L[8] == 1 then -- each has to find a backlog that passes without delay
      local passes = (L[6] - u) * n + L[7] - r
      if passes < 0 then
        admitted = 0
      else
        admitted = math.min(admitted, math.floor(passes / cost) + 1)
      end
    end
  end
  if admitted > 0 then
    local list = S and S[3]
    if list and type(list) == 'table' then -- later refunds have to know what these takes found
      local taken = admitted
      if u + r == 0 then -- a full bucket: nothing can be given back any more
        S[3], S[4], S[5] = nil, nil, nil
        if list[1] + list[2] + list[3] > 0 then
          S[3], S[4], S[5] = list[1], list[2], list[3]
        end
      else
        local ticks, last = taken * cost, #list
        local whole = math.floor(ticks / n)
        if list[last - 5] < 0 then -- one charge with the last one
          local gu, gr = t - list[last - 1], -list[last]
          if gr < 0 then
            gu, gr = gu - 1, gr + n
          end
          if list[last - 3] < gu or list[last - 3] == gu and list[last - 2] < gr then
            list[last - 3], list[last - 2] = gu, gr
          end
          list[last - 1], list[last] = list[last - 1] + whole, list[last] + ticks - whole * n
          if list[last] >= n then
            list[last - 1], list[last] = list[last - 1] + 1, list[last] - n
          end
        else
          list[last + 1], list[last + 2], list[last + 3], list[last + 4], list[last + 5], list[last + 6] = -1, 0, t, 0, whole, ticks - whole * n
        end
      end
    end
    local ticks = u * n + r + admitted * cost
    local whole = math.floor(ticks / n)
    if S then
      S[1], S[2] = t + whole, ticks - whole * n
    else
      states[key] = {t + whole, ticks - whole * n}
    end
    dirty[key], made = L[1], true
  end
end

for key, def in pairs(dirty) do
  local S, before, kept = states[key], ahead[key] or 0, clocks[key] or {}
  local t, L, value = now + before, limits[owners[key]], nil
  if S[1] - t > L[4] or S[1] - t == L[4] and S[2] > L[5] then -- a debt
    value = cmsgpack.pack(def, S, t, unpack(kept))
  else
    value = cmsgpack.pack(def, S, false, unpack(kept))
  end
  local ttl = math.ceil((S[1] - t + 1 + math.min(before, 86400000000)) / 1000) + grace
  redis.call('SET', key, value, 'PX', string.format('%.0f', ttl))
end
if steps > 0 then
  said[#said + 1], said[#said + 2], said[#said + 3] = steps, widest, 0
end
local answer = cmsgpack.pack(said)
if made then
  redis.call('SET', KEYS[1], answer, 'PX', math.ceil((expiry - now) / 1000) + 1)
end
return answer
