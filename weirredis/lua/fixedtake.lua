-- The fast path for takes and peeks of fixed windows that begin by the clock or with their first charge,
-- decided exactly as fixed.lua does. Like take.lua it makes no functions, and leaves what it does not
-- support to main.lua, before anything was written: states of another version, and promised windows.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- The argument: version, expiry, grace in ms, limits, and runs. A limit is def, the limit, the length
-- of a window, and whether it begins with its first charge. A run is charges of one key that are alike, one
-- after another: their limit, whether to charge, the cost of each, by how many ms they expire sooner than
-- the call, and how many they are. The reply has what was counted before each run, and when the window ends.
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

if now > 5000000000000000 then -- a window could end beyond what is exact
  return redis.error_reply('WEIRFULL not for the short way')
end

local said, n, states, owners, dirty, made = {now}, 1, {}, {}, {}, false
local ahead, clocks, steps, widest = {}, {}, 0, 0 -- how far each key's clock is ahead of now; what it remembers; see keyclock.lua
for i = 1, #runs, 5 do
  local which, cost, key = runs[i], runs[i + 2], KEYS[(i + 9) / 5]
  local L, S = limits[which], states[key]
  if S == nil then
    local raw = redis.pcall('GET', key)
    S = false
    if raw then
      local def, seen, behind, further
      if type(raw) == 'string' then
        def, S, seen, behind, further = cmsgpack.unpack(raw)
      end
      if def ~= L[1] or seen ~= false then
        return redis.error_reply('WEIRFULL not for the short way')
      end
      local reached, count, due = S[1], S[2], S[3]
      if not (#S == 3 and reached >= 0 and reached <= 5000000000000000 and count >= 0 and count <= 9007199254740991 and due >= -1 and due <= reached and reached % 1 + count % 1 + due % 1 == 0) then
        return redis.error_reply('WEIRFULL not for the short way')
      end
      if behind or now < reached then -- the server's clock stepped back
        local found, kept = now, {}
        for _, by in ipairs({behind, further}) do
          if not (by >= 0 and by <= 5000000000000000 and by % 1 == 0) then
            return redis.error_reply('WEIRFULL not for the short way')
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
            kept, dirty[key] = {kept[#kept] or reached - now, #kept > 0 and reached - now or nil}, 'clock'
          end
        end
        if #kept ~= #{behind, further} then
          dirty[key] = 'clock'
        end
        ahead[key], clocks[key] = found - now, kept
      end
    end
    states[key], owners[key] = S, which
  elseif owners[key] ~= which then
    return redis.error_reply('WEIRFULL not for the short way')
  end

  -- The window of now, and its count.
  local t, count, length = now + (ahead[key] or 0), 0, L[3]
  local id = t
  if L[4] == 0 then
    local into = t % length
    if into < 0 then -- the quotient was rounded up
      into = into + length
    end
    id = t - into
  end
  if S and (id <= S[1] or L[4] == 1 and S[2] > 0 and t < S[1] + length) then
    id, count = S[1], S[2]
  end
  if now > expiry - 1000 * runs[i + 3] then
    n = n + 1
    said[n] = 'WEIRLATE'
  else
    said[n + 1], said[n + 2] = count, id + length - t
    n = n + 2
    if cost > 0 and runs[i + 1] == 1 then
      local admitted = math.min(runs[i + 4], math.floor((L[2] - count) / cost))
      if admitted > 0 then
        count = count + admitted * cost
        if S then
          S[1], S[2], S[3] = id, count, -1
        else
          states[key] = {id, count, -1}
        end
        dirty[key], made = 'state', true
      end
    end
  end
end

for key, what in pairs(dirty) do
  local L, S, before = limits[owners[key]], states[key], ahead[key] or 0
  local value = cmsgpack.pack(L[1], S, false, unpack(clocks[key] or {}))
  if what == 'clock' then
    redis.call('SET', key, value, 'KEEPTTL')
  else
    local ttl = math.ceil((S[1] + L[3] - now - before + math.min(before, 86400000000)) / 1000) + grace
    redis.call('SET', key, value, 'PX', string.format('%.0f', ttl))
  end
end
if steps > 0 then
  said[n + 1], said[n + 2], said[n + 3] = steps, widest, 0
end
local answer = cmsgpack.pack(said)
if made then
  redis.call('SET', KEYS[1], answer, 'PX', math.ceil((expiry - now) / 1000) + 1)
end
return answer
