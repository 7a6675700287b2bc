-- spare is how much longer a key is kept than its state is in use, to know how far the server's clock
-- is behind: until that has reached the same time again, or for a day.
local function spare()
  return min(now - reading, 86400000000)
end

-- write stores a state until it is idle, and removes an idle one.
local function write(key, e)
  local other = e.other
  now = e.now
  if e.dirty and other and (other.ends <= now or not e.S) then
    if not e.S then
      e.S, e.def, e.P = other.S, other.def, other.P
    end
    other = nil
  end
  if not e.S then
    redis.call('DEL', key)
    return
  end
  soundof(e)
  local value = {e.def, e.S}
  if other then
    value = {twoversions, {e.def, e.S, e.used, e.ends, other.def, other.S, other.used, other.ends}}
  end
  e.other = other
  value[3] = reachedby(e) > now and now -- what the state shows is a debt or a promise
  value[4], value[5] = e.behind[1], e.behind[2]
  value = cmsgpack.pack(unpack(value))
  if not e.dirty then -- only its clock has changed
    redis.call('SET', key, value, 'KEEPTTL')
    return
  end
  local reset, _
  if other then
    reset = max(versions.endof(e.P, e.S), other.ends) - now
  else
    _, reset = e.P.K.look(e.P, e.S, now)
  end
  local ttl = math.ceil((reset + spare()) / 1000) + grace
  if e.P.keeps or other and other.P.keeps then
    ttl = ttl + 86400000 -- it never becomes idle: it is reset after a day without calls
  elseif ttl == 0 then
    redis.call('DEL', key)
    return
  end
  redis.call('SET', key, value, 'PX', string.format('%.0f', ttl))
end

local function run()
  local i, count = 1, #charges / 8
  local at = first + count
  for k = 1, count do
    if charges[k * 8] > 0 then
      at = at + 1
      marks[k] = KEYS[at]
    end
  end
  while i <= count do
    local group, j = charges[(i - 1) * 8 + 4], i
    if group > 0 then
      while j < count and charges[j * 8 + 4] == group do
        j = j + 1
      end
    end
    if j > i then
      together(i, j)
    else
      attempt(i, KEYS[first + i])
    end
    i = j + 1
  end
end

local ok, problem = pcall(run)
if not ok then
  if problem == wrong then
    return redis.error_reply('WEIRFULL ' .. which .. ' the key holds a state of another version of this limit')
  end
  return redis.error_reply('WEIRSCRIPT ' .. tostring(problem))
end
if #beyond > 0 then
  for i, t in ipairs(beyond) do
    beyond[i] = string.format('%.0f', t)
  end
  for _, name in ipairs(unknown) do
    beyond[#beyond + 1] = name
  end
  return redis.error_reply('WEIRCALENDAR ' .. string.format('%.0f', now) .. ' ' .. table.concat(beyond, ' '))
end
for key, e in pairs(entries) do
  if e.dirty or e.moved then
    write(key, e)
  end
end
for key, ms in pairs(marked) do
  redis.call('SET', key, '', 'PX', string.format('%.0f', ms), 'NX')
end
now = reading
if steps + toomany > 0 then
  also(steps)
  also(widest)
  also(toomany)
end
local answer = cmsgpack.pack(said)
if first == 1 and made then
  redis.call('SET', KEYS[1], answer, 'PX', string.format('%.0f', math.ceil((expiry - now) / 1000) + 1))
end
return answer
