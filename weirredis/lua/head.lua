-- The server's clock is read once, here, in microseconds. Nothing else in these scripts tells the time.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- All numbers are whole and below 2^53, where doubles are exact. What could be larger is counted as clock units and a rest, or in limbs.
local never, horizon, last = -1, 3155760000000000, 9007199254740991 -- a time that cannot be named; 100 years; the end of the clock
local floor, min, max = math.floor, math.min, math.max
local kinds = {}
local prepare, change -- come later; the second one only in the script that knows all limits

-- muldiv is floor(a*b/m) and what is left over, for m up to 2^51. What is 2^53 or more is not exact, and never less than that.
local function muldiv(a, b, m)
  local x = a * b
  if x <= last then
    local q = floor(x / m)
    local r = x - q * m
    if r < 0 then
      return q - 1, r + m
    end
    return q, r
  end
  -- b's digits, from the top, of as many bits as leave room for the rest of what came before.
  local whole, base, room = floor(a / m), 2, last / m / 2
  a = a - whole * m
  while base * 2 <= room do
    base = base * 2
  end
  local digits, n = {}, 0
  local left = b
  while left > 0 do
    n = n + 1
    digits[n] = left % base
    left = floor(left / base)
  end
  local q, r = 0, 0
  for i = n, 1, -1 do
    local y = r * base + a * digits[i]
    local over = floor(y / m)
    r = y - over * m
    if r < 0 then
      r, over = r + m, over - 1
    end
    q = q * base + over
  end
  return q + whole * b, r
end

-- plus is a+b, or the largest number.
local function plus(a, b)
  return min(a + b, last)
end

-- within is a wait, or never where it is beyond the horizon.
local function within(wait)
  if wait > horizon then
    return never
  end
  return wait
end
