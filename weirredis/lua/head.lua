-- The server's clock is read once, here, in microseconds. Nothing else in these scripts tells the
-- time.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- All numbers are whole and below 2^53, where doubles are exact. What could be larger is counted as
-- clock units and a rest, or in limbs.
local never, horizon, last = -1, 3155760000000000, 9007199254740991 -- a time that cannot be named; 100 years; the end of the clock
local floor, min, max = math.floor, math.min, math.max
local kinds = {}
local toomany = 0 -- reservations beyond what a state holds, which give back by the state alone
local expired = false -- a settle came so late that its reservation is final
local calendars, beyond, unknown = {}, {}, {} -- the windows that were sent, by the name of the calendar; times in windows that were not, but are needed; names of calendars that were not
local prepare, stateof, change, versions -- come later; the last two only in the script that knows all limits

-- numbers reports whether all elements are numbers that are not below a bound.
local function numbers(S, least)
  for i = 1, #S do
    if type(S[i]) ~= 'number' or S[i] < least then
      return false
    end
  end
  return true
end

-- muldivbits is muldiv bit by bit, with sums that stay below m; a must be below m.
local function muldivbits(a, b, m)
  local bits, n = {}, 0
  while b > 0 do
    n = n + 1
    bits[n] = b % 2
    b = floor(b / 2)
  end
  local q, r = 0, 0
  for i = n, 1, -1 do
    q = q * 2
    if r >= m - r then
      q, r = q + 1, r - (m - r)
    else
      r = r + r
    end
    if bits[i] == 1 then
      if r >= m - a then
        q, r = q + 1, r - (m - a)
      else
        r = r + a
      end
    end
  end
  return q, r
end

-- muldiv is floor(a*b/m) and the remainder. A quotient of 2^53 or more is not exact, but never
-- below that.
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
  if not (m >= 1 and b <= last) then -- a state that another program wrote: the loop would not end
    error('WEIRSTATE no decision follows from the state of the key', 0)
  end
  -- b's digits, from the top, with as many bits as leave room for the remainder so far.
  local whole, base, room = floor(a / m), 2, last / m / 2
  a = a - whole * m
  if room < 2 then
    local q, r = muldivbits(a, b, m)
    return q + whole * b, r
  end
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
