-- The clocks of keys. While a key is evaluated, now is the time by its clock; reading is that by the
-- server's.
local reading = now
local steps, widest = 0, 0 -- how many keys found that the server's clock had stepped back, and how far at most

-- soundof prepares the limit of a state, and checks the state.
local function soundof(v)
  if v.P then
    return
  end
  local P = prepare(v.def)
  if P.K.sound and not P.K.sound(P, v.S) then
    error('WEIRSTATE the key holds a state that cannot be', 0)
  end
  v.P = P
end

-- reachedby is a time that a key's clock had reached at its latest charge, as far as the states show
-- it.
local function reachedby(e)
  local t = e.P.K.reached(e.P, e.S)
  if e.other then
    t = max(t, e.used, e.other.used, e.other.P.K.reached(e.other.P, e.other.S))
  end
  return min(t, last)
end

-- settime sets now to the time by a key's clock. That is the server's clock, also where it steps
-- forward. But where the server's clock steps back, to before what the key's clock had reached, the
-- key's clock goes on: it is ahead by what the server's clock is behind, until that has reached the
-- same time again. So a step back neither gives anything away nor has anyone wait for as long as it.
--
-- Two such steps are remembered, for clocks that swing. The smallest that is enough counts, and then
-- larger ones are forgotten: so a key's clock is never ahead of the times that a swinging clock shows.
-- See weirtest.Versions, which is the model of this.
local function settime(e)
  local found = nil
  local reached = e.seen == nil and reading or e.seen or reachedby(e)
  if reading >= reached then
    found = reading
  end
  local kept = {}
  for _, behind in ipairs(found and {} or e.behind) do
    kept[#kept + 1] = behind
    if reading + behind >= reached then
      found = min(reading + behind, last)
      break
    end
  end
  if not found then
    found = reached
    kept = {kept[#kept] or reached - reading, #kept > 0 and reached - reading or nil}
    steps, widest = steps + 1, max(widest, reached - reading)
    e.moved = true
  end
  e.moved = e.moved or #kept ~= #e.behind
  e.now, e.behind = found, kept
end
