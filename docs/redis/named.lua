-- The named limits of Weir, put together from the files of weirredis/lua. docs/redis.md says how they are used.
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
-- Whole numbers of any size, at least 0: limbs of 24 bits, the lowest first, without zeros at the
-- top.
local limb = 16777216

local function big(x)
  if not (x <= last) then -- a state that another program wrote: the loop would not end
    error('WEIRSTATE no decision follows from the state of the key', 0)
  end
  local a, n = {}, 0
  while x > 0 do
    local q = floor(x / limb)
    n = n + 1
    a[n] = x - q * limb
    x = q
  end
  return a
end

-- small converts to a plain number; the largest one on overflow.
local function small(a)
  local x = 0
  for i = #a, 1, -1 do
    x = x * limb + a[i]
    if x > last then
      return last
    end
  end
  return x
end

local function trim(a)
  local n = #a
  while n > 0 and a[n] == 0 do
    a[n] = nil
    n = n - 1
  end
  return a
end

local function bigcompare(a, b)
  if #a ~= #b then
    return #a < #b and -1 or 1
  end
  for i = #a, 1, -1 do
    if a[i] ~= b[i] then
      return a[i] < b[i] and -1 or 1
    end
  end
  return 0
end

local function bigadd(a, b)
  local c, carry = {}, 0
  for i = 1, max(#a, #b) do
    local x = (a[i] or 0) + (b[i] or 0) + carry
    carry = x >= limb and 1 or 0
    c[i] = x - carry * limb
  end
  if carry > 0 then
    c[#c + 1] = carry
  end
  return c
end

-- bigless is a less b, or 0.
local function bigless(a, b)
  if bigcompare(a, b) <= 0 then
    return {}
  end
  local c, borrow = {}, 0
  for i = 1, #a do
    local x = a[i] - (b[i] or 0) - borrow
    borrow = x < 0 and 1 or 0
    c[i] = x + borrow * limb
  end
  return trim(c)
end

-- zeros makes room: filling a Lua array from its end is slow.
local function zeros(n)
  local a = {}
  for i = 1, n do
    a[i] = 0
  end
  return a
end

local function bigmul(a, b)
  local c = zeros(#a + #b)
  for i = 1, #a do
    local carry = 0
    for j = 1, #b do
      local x = a[i] * b[j] + c[i + j - 1] + carry
      carry = floor(x / limb)
      c[i + j - 1] = x - carry * limb
    end
    c[i + #b] = carry
  end
  return trim(c)
end

-- bigdiv is the quotient, whole, and the rest (Knuth, The Art of Computer Programming, volume 2,
-- 4.3.1, algorithm D).
local function bigdiv(a, b)
  if bigcompare(a, b) < 0 then
    return {}, a
  end
  local n = #b
  if n == 1 then
    local q, r = zeros(#a), 0
    for i = #a, 1, -1 do
      local x = r * limb + a[i]
      q[i] = floor(x / b[1])
      r = x - q[i] * b[1]
    end
    return trim(q), big(r)
  end
  local shift = {floor(limb / (b[n] + 1))}
  local u, v = bigmul(a, shift), bigmul(b, shift)
  for i = #u + 1, #a + 1 do
    u[i] = 0
  end
  local q = zeros(#u - n)
  for j = #u - n, 1, -1 do
    local top = u[j + n] * limb + u[j + n - 1]
    local guess = floor(top / v[n])
    local rest = top - guess * v[n]
    while guess >= limb or rest < limb and guess * v[n - 1] > rest * limb + u[j + n - 2] do
      guess, rest = guess - 1, rest + v[n]
    end
    local borrow = 0
    for i = 1, n do
      local x = u[j + i - 1] - guess * v[i] - borrow
      borrow = -floor(x / limb)
      u[j + i - 1] = x + borrow * limb
    end
    u[j + n] = u[j + n] - borrow
    if u[j + n] < 0 then -- once in a great many times the guess is one too high
      guess = guess - 1
      local carry = 0
      for i = 1, n do
        local x = u[j + i - 1] + v[i] + carry
        carry = x >= limb and 1 or 0
        u[j + i - 1] = x - carry * limb
      end
      u[j + n] = u[j + n] + carry
    end
    q[j] = guess
  end
  local r = bigdiv(trim(u), shift) -- the quotient of the first two results
  return trim(q), r
end

local function bigup(a, b)
  local q, r = bigdiv(a, b)
  if #r > 0 then
    return bigadd(q, {1})
  end
  return q
end

-- A wide number is a plain number if it is below 2^53, and limbs otherwise: most are small, and
-- fast.
local function limbs(x)
  if type(x) == 'number' then
    return big(x)
  end
  return x
end

local function wide(a)
  if #a < 3 or #a == 3 and a[3] < 32 then
    return small(a)
  end
  return a
end

-- narrow converts to a plain number; the largest one on overflow.
local function narrow(x)
  if type(x) == 'number' then
    return x
  end
  return last
end

local function wideadd(a, b)
  if type(a) == 'number' and type(b) == 'number' and a + b <= last then
    return a + b
  end
  return wide(bigadd(limbs(a), limbs(b)))
end

-- wideless is a less b, or 0.
local function wideless(a, b)
  if type(a) == 'number' then
    return type(b) == 'number' and max(a - b, 0) or 0
  end
  return wide(bigless(a, limbs(b)))
end

local function wideleast(a, b)
  if type(a) == 'number' then
    return type(b) == 'number' and min(a, b) or a
  elseif type(b) == 'number' or bigcompare(a, b) > 0 then
    return b
  end
  return a
end

local function widemul(a, b)
  if type(a) == 'number' and type(b) == 'number' and a * b <= last then
    return a * b
  end
  return wide(bigmul(limbs(a), limbs(b)))
end

-- wideover is a/b, whole.
local function wideover(a, b)
  if type(a) == 'number' then
    return type(b) == 'number' and floor(a / b) or 0
  end
  return wide((bigdiv(a, limbs(b))))
end

-- widedivide is a/b, whole, and the rest.
local function widedivide(a, b)
  if type(a) == 'number' then
    if type(b) == 'number' then
      return muldiv(a, 1, b)
    end
    return 0, a
  end
  local q, r = bigdiv(a, limbs(b))
  return wide(q), wide(r)
end

-- wideup is a/b, rounded up.
local function wideup(a, b)
  if type(a) == 'number' and type(b) == 'number' then
    return -floor(-a / b)
  end
  return wide(bigup(limbs(a), limbs(b)))
end
-- Charges in the order of their times, for SlidingWindow and SlidingLog. They are in one string, as
-- an array would be decoded and encoded number by number, and a decision reads only a few. The cost
-- of a long string is its copies: Lua makes five in a take, and hashes each. A state is
--   the latest promised time in the future, or -1; the time of the newest charge; the sum of all; how
--   much was counted before the first; how many bytes a time takes, and a count; and the string: for
--   each charge its time, and the sum of the counts up to it; and of a SlidingLog, once its newest
--   charge was given back, the reading at which that had been made
-- Times and sums are modulo what their bytes hold: that is unambiguous as long as all times lie
-- within that, and all sums are below it.
local holds = {256, 65536, 16777216, 4294967296, 1099511627776, 281474976710656, last + 1}
local shapes = {}
local emptied = {-1, 0, 0, 0, 1, 1, ''}

local function shape(S)
  local key = S[5] * 8 + S[6]
  local s = shapes[key]
  if not s then
    s = '>I' .. S[5] .. 'I' .. S[6]
    shapes[key] = s
  end
  return s
end

local function length(S)
  return #S[7] / (S[5] + S[6])
end

-- soundlist reports whether a state is such a list, as far as a quick check shows: it does not
-- check the charges between the first and the last.
local function soundlist(S)
  for i = 1, 6 do
    if type(S[i]) ~= 'number' or S[i] < (i == 1 and -1 or 0) then
      return false
    end
  end
  local size = S[5] + S[6]
  return (#S == 7 or #S == 8 and type(S[8]) == 'number' and S[8] >= 0) and type(S[7]) == 'string' and min(S[5], S[6]) >= 1 and max(S[5], S[6]) <= 7 and #S[7] % size == 0 and S[4] < holds[S[6]]
end

-- nth is the time of a charge, and the sum of all up to it.
local function nth(S, i)
  if i == 0 then
    return 0, 0
  end
  local time, counted = struct.unpack(shape(S), S[7], (i - 1) * (S[5] + S[6]) + 1)
  return S[2] - (S[2] - time) % holds[S[5]], (counted - S[4]) % holds[S[6]]
end

-- leading is how many of the first charges have a time (column 1), or a sum (column 2), that is not
-- above a bound. It is fast if they are few.
local function leading(S, column, bound)
  local low, high, step = 0, length(S) + 1, 1
  while high - low > 1 do
    local i = low + step
    if i >= high then
      i = floor((low + high) / 2)
      step = high -- from here on by halves
    end
    if select(column, nth(S, i)) <= bound then
      low, step = i, step * 2
    else
      high, step = i, high
    end
  end
  return low
end

-- around is a+b modulo m, where neither a nor b is m or more; a+b may be above 2^53.
local function around(a, b, m)
  a = a - (m - b)
  if a < 0 then
    return a + m
  end
  return a
end

local function packed(S, time, counted)
  return struct.pack(shape(S), time % holds[S[5]], counted)
end

-- shifted returns the charges from one to another, counted from another base.
local function shifted(S, from, to, by)
  local parts, format, m = {}, shape(S), holds[S[6]]
  by = by % m
  for i = from, to do
    local time, counted = struct.unpack(format, S[7], (i - 1) * (S[5] + S[6]) + 1)
    parts[i - from + 1] = struct.pack(format, time, around(counted, by, m))
  end
  return table.concat(parts)
end

-- piece returns the charges from one to another unchanged.
local function piece(S, from, to)
  local size = S[5] + S[6]
  return string.sub(S[7], (from - 1) * size + 1, to * size)
end

-- fitted returns the state with room for times that far apart, and for sums that large.
local function fitted(S, span, sum)
  local t, c = S[5], S[6]
  if span < holds[t] and sum < holds[c] then
    return S
  end
  while span >= holds[t] do
    t = t + 1
  end
  while sum >= holds[c] do
    c = c + 1
  end
  local next, parts = {S[1], S[2], S[3], 0, t, c, '', S[8]}, {}
  for i = 1, length(S) do
    parts[i] = packed(next, nth(S, i))
  end
  next[7] = table.concat(parts)
  return next
end

-- dropped returns the state without its first n charges.
local function dropped(S, n)
  if n == 0 then
    return S
  end
  local _, sum = nth(S, n)
  return {S[1], S[2], S[3] - sum, around(S[4], sum % holds[S[6]], holds[S[6]]), S[5], S[6], piece(S, n + 1, length(S)), S[8]}
end

-- inserted returns the state with another charge before the i-th. The sum rises by its cost, or by
-- 0 if the i-th charge's cost falls by as much.
local function inserted(S, i, time, cost, more)
  local n = length(S)
  local first, newest = time, time
  if n > 0 then
    first, newest = min(time, (nth(S, 1))), max(time, S[2])
  end
  S = fitted(S, newest - first, S[3] + more)
  local m = holds[S[6]]
  local _, sum = nth(S, i - 1)
  if i > n then -- the newest
    local text = S[7] .. packed(S, time, around(S[4], sum + cost, m))
    return {S[1], newest, S[3] + more, S[4], S[5], S[6], text, S[8]}
  end
  local base = (S[4] - more) % m
  local text = shifted(S, 1, i - 1, -more) .. packed(S, time, around(base, sum + cost, m)) .. piece(S, i, n)
  return {S[1], newest, S[3] + more, base, S[5], S[6], text, S[8]}
end

-- altered changes the cost of the i-th charge. A charge with nothing left is removed.
local function altered(S, i, by)
  S = fitted(S, 0, S[3] + by)
  local n, m, newest, base = length(S), holds[S[6]], S[2], S[4]
  local before, sum = nth(S, i - 1)
  local _, through = nth(S, i)
  local from, text = i, nil -- what stays begins there
  if through - sum + by == 0 then
    from = i + 1
    if i == n then
      newest = before
    end
  end
  if i - 1 < n - i then -- the shorter side is counted anew
    base = (base - by) % m
    text = shifted(S, 1, i - 1, -by) .. piece(S, from, n)
  else
    text = piece(S, 1, i - 1) .. shifted(S, from, n, by)
  end
  return {S[1], newest, S[3] + by, base, S[5], S[6], text, S[8]}
end

-- withpromise returns the state with another latest promise.
local function withpromise(S, time)
  return {time, S[2], S[3], S[4], S[5], S[6], S[7], S[8]}
end

-- lump merges everything into one charge of the largest number, for sums that doubles cannot count.
-- It expires with the newest charge: late, but it admits nothing more.
local function lump(time)
  return inserted(emptied, 1, time, last, last)
end

-- listed makes a list of charges with those times and costs; some costs may be 0.
local function listed(promise, times, costs)
  local sum, n, parts = 0, #times, {}
  for i = 1, n do
    sum = sum + costs[i]
  end
  local S = fitted({promise, times[n] or 0, sum, 0, 1, 1, ''}, n > 0 and times[n] - times[1] or 0, sum)
  local counted = 0
  for i = 1, n do
    counted = counted + costs[i]
    if costs[i] > 0 then
      parts[#parts + 1] = packed(S, times[i], counted)
    end
  end
  S[7] = table.concat(parts)
  return S
end
-- TokenBucket, LeakyBucket and SmoothBursty: the generic cell rate algorithm (GCRA). A state is Z,
-- the time at which the bucket is full again, as clock units and a rest of ticks below n. Once
-- something was given back, the state also has the total of that: high units (of 2^52), units and
-- rest. One clock unit brings n ticks, one token costs p. Spans are pairs of units and a rest, too.
--
-- While reservations are outstanding, the third element is a list: that total, Z before the charges
-- of the list, and the charges since the oldest outstanding reservation, six numbers each:
--   the identity of an outstanding reservation (units and rest, with n added to the rest if the
--   reservation is final once its work may go), or -1 and 0; the time at which its
--   work goes; the cost
-- Each charge sets Z to max(Z, that time) + cost. Giving a reservation back repeats the others.
-- Neighbours that are not outstanding are joined, so the list has at most twice as many charges as
-- reservations. take.lua adds to the list, too. weirtest.Versions is the model of this.
local span52 = 4503599627370496
local mostopen, keptfor = 256, 900000000 -- reservations of a list; how long after their work may go

local function pairsum(P, u, r, v, s)
  u, r = u + v, r + s
  if r >= P.n then
    return u + 1, r - P.n
  end
  return u, r
end

-- pairless is u,r less v,s, or 0.
local function pairless(P, u, r, v, s)
  u, r = u - v, r - s
  if r < 0 then
    u, r = u - 1, r + P.n
  end
  if u < 0 then
    return 0, 0
  end
  return u, r
end

local function pairbelow(u, r, v, s)
  return u < v or u == v and r < s
end

local function pairmin(u, r, v, s)
  if pairbelow(u, r, v, s) then
    return u, r
  end
  return v, s
end

-- ahead is how far a time lies ahead.
local function ahead(u, r, t)
  if u < t then
    return 0, 0
  end
  return u - t, r
end

local function used(S, t)
  if not S then
    return 0, 0
  end
  return ahead(S[1], S[2], t)
end

local function ceiled(u, r)
  if r > 0 then
    return u + 1
  end
  return u
end

-- advance moves Z forward, at most to the end of the clock.
local function advance(P, u, r, v, s)
  u, r = pairsum(P, u, r, v, s)
  if u >= last then
    u, r = last, 0
  end
  return {u, r}
end

-- listof is the list of a state with outstanding reservations; nil if it has none.
local function listof(S)
  return S and type(S[3]) == 'table' and S[3] or nil
end

-- returned is all that was given back.
local function returned(S)
  local X = S and S[3]
  if type(X) == 'table' then
    return X[1], X[2], X[3]
  elseif X then
    return X, S[4], S[5]
  end
  return 0, 0, 0
end

-- bucketstate is a state of its parts. A list without charges is left out, and a total of 0.
local function bucketstate(u, r, xh, xu, xr, N)
  if N and #N > 5 then
    N[1], N[2], N[3] = xh, xu, xr
    return {u, r, N}
  elseif xh + xu + xr > 0 then
    return {u, r, xh, xu, xr}
  end
  return {u, r}
end

-- identity is what no other charge of a state has: Z after it with all that was given back, modulo
-- 2^52. That grows with each charge, and giving back does not change it.
local function identity(P, u, r, xu, xr)
  u, r = pairsum(P, u % span52, r, xu, xr)
  return u % span52, r
end

-- relist adds a charge to a list, where u,r is Z before it. It returns Z after it.
local function relist(P, N, u, r, a, b, gu, gr, cu, cr)
  if not pairbelow(gu, gr, u, r) then -- it found the bucket full: nothing before it matters any more
    for i = #N, 6, -1 do
      N[i] = nil
    end
    N[4], N[5], u, r = gu, gr, gu, gr
  end
  local n = #N
  local zu, zr = pairsum(P, u, r, cu, cr)
  if a < 0 and n == 5 then
    N[4], N[5] = zu, zr
  elseif a < 0 and N[n - 5] < 0 then -- the two have the effect of one
    gu, gr = pairless(P, gu, gr, N[n - 1], N[n])
    if pairbelow(N[n - 3], N[n - 2], gu, gr) then
      N[n - 3], N[n - 2] = gu, gr
    end
    N[n - 1], N[n] = pairsum(P, N[n - 1], N[n], cu, cr)
  else
    N[n + 1], N[n + 2], N[n + 3], N[n + 4], N[n + 5], N[n + 6] = a, b, gu, gr, cu, cr
  end
  return zu, zr
end

-- repeated makes the charges of a list again, from u,r on. It returns the new list, how many
-- reservations are outstanding, and Z. drop is called with each outstanding reservation and returns
-- true to end it, and what is taken off its cost.
local function repeated(P, O, u, r, drop)
  local N, open = {0, 0, 0, u, r}, 0
  for i = 6, #O, 6 do
    local a, b, gu, gr, cu, cr = unpack(O, i, i + 5)
    if a >= 0 then
      local ended, lessu, lessr = drop(a, b, gu)
      if ended then
        a, b = -1, 0
        if lessu then
          cu, cr = pairless(P, cu, cr, lessu, lessr)
        end
      else
        open = open + 1
      end
    end
    if cu + cr > 0 then
      u, r = relist(P, N, u, r, a, b, gu, gr, cu, cr)
      if #N == 5 or #N == 11 and N[6] >= 0 and a >= 0 then
        open = a >= 0 and 1 or 0
      end
    end
  end
  return N, open, u, r
end

local function goeson()
  return false
end

kinds[1] = {
  books = true,

  -- P is version, kind, type (0 token, 1 leaky, 2 owing), n, p, size, and DelayAfter,
  -- MaxBurst, or the tokens that are missing at first.
  ready = function(P)
    local type = P[3]
    P.n, P.p, P.size, P.leaky, P.owing = P[4], P[5], P[6], type == 1, type == 2
    P.largest = P.size
    if P.n < 1 or P.n > span52 / 2 or P.p < 0 or P.p > span52 / 2 or P.size < 0 or P[7] < 0 then
      error('WEIRSTATE the key holds a state of a bucket that cannot be', 0)
    end
    if P.owing then
      P.passu, P.passr = P[7], 0
      P.fullu, P.fullr = P[7], 0
      P.missu, P.missr = P[7], 0
      P.largest = last
      if P.p > 0 then
        P.largest = min(muldiv(horizon, P.n, P.p), last)
      else
        P.missu = 0
      end
    else
      P.fullu, P.fullr = muldiv(P.size, P.p, P.n)
      P.passu, P.passr, P.missu, P.missr = P.fullu, P.fullr, 0, 0
      if P.leaky then
        P.passu, P.passr = muldiv(P[7], P.p, P.n)
      elseif P[7] > 0 then
        P.missu, P.missr = muldiv(P[7], P.p, P.n)
      end
    end
    P.keeps, P.name = P.missu > 0 or P.missr > 0 or P.p == 0, 'bucket' .. type -- what was used at a rate without end has all stored
  end,

  -- sound reports whether a state is valid for this limit. Whole numbers were checked before.
  sound = function(P, S)
    local n, O = #S, listof(S)
    if not O then
      return numbers(S, 0) and (n == 2 or n == 5 and S[4] < span52 and S[5] < P.n) and S[2] < P.n
    elseif n ~= 3 or not numbers({S[1], S[2]}, 0) or S[2] >= P.n or not numbers(O, -1) then
      return false
    end
    n = #O
    if n < 11 or n > 5 + 12 * (mostopen + 1) or n % 6 ~= 5 or not numbers({unpack(O, 1, 5)}, 0) or O[2] >= span52 or max(O[3], O[5]) >= P.n then
      return false
    end
    for i = 6, n, 6 do
      local a, b, gu, gr, cu, cr = unpack(O, i, i + 5)
      if min(b, gu, gr, cu, cr) < 0 or max(gr, cr) >= P.n or b >= 2 * P.n or a >= span52 then
        return false
      end
    end
    return true
  end,

  contact = function(P)
    if P.missu > 0 or P.missr > 0 then
      return advance(P, now, 0, P.missu, P.missr)
    end
  end,

  plan = function(P, S, t, cost)
    local bu, br = used(S, t)
    local cu, cr = muldiv(cost, P.p, P.n)
    local au, ar = pairsum(P, bu, br, cu, cr)
    if t + ceiled(au, ar) > last then
      return never, never
    end
    if P.owing then
      return within(ceiled(pairless(P, bu, br, P.passu, P.passr))), 0
    elseif P.leaky then
      return within(ceiled(pairless(P, bu, br, P.passu, P.passr))), within(ceiled(pairless(P, au, ar, P.fullu, P.fullr)))
    end
    return within(ceiled(pairless(P, au, ar, P.fullu, P.fullr))), 0
  end,

  -- book charges; keeps is whether the charge is a reservation, and 'until' for
  -- one that is not settled after its work may go. The ticket of one that is in the list
  -- has a sixth element: when its work goes, or 1 in an earlier format.
  book = function(P, S, t, due, cost, keeps)
    local u, r = t, 0
    if S and S[1] >= t then
      u, r = S[1], S[2]
    end
    local cu, cr = muldiv(cost, P.p, P.n)
    local next, O = advance(P, u, r, cu, cr), listof(S)
    local xh, xu, xr = returned(S)
    local N, entered
    if (O or keeps) and cu + cr > 0 and next[1] < last then
      local open = 0
      if O then
        N, open = repeated(P, O, O[4], O[5], keeps and function(_, b, goes) return goes + (b < P.n and keptfor or 0) < t end or goeson)
      else
        N = {0, 0, 0, u, r}
      end
      local gu, gr = t, 0 -- when its work goes
      if due > t then
        local ru, rest = P.passu, P.passr
        if not P.leaky and not P.owing then
          ru, rest = pairless(P, P.fullu, P.fullr, cu, cr)
        end
        ru, rest = pairless(P, u - t, r, ru, rest)
        gu, gr = pairsum(P, t, 0, ru, rest)
      end
      local a, b = -1, 0
      if keeps and (open < mostopen or u == t and r == 0) then
        a, b = identity(P, next[1], next[2], xu, xr)
        if keeps == 'until' then
          b = b + P.n
        end
        entered = max(gu, 2)
      elseif keeps then
        toomany = toomany + 1
      end
      relist(P, N, u, r, a, b, gu, gr, cu, cr)
    end
    next = bucketstate(next[1], next[2], xh, xu, xr, N)
    if entered then
      return next, {next[1], next[2], xh, xu, xr, entered}
    elseif listof(next) then
      return next, {next[1], next[2], xh, xu, xr}
    end
    return next, next
  end,

  -- settled ends a reservation that gives nothing back.
  settled = function(P, S, T)
    local O = T[6] and listof(S)
    if not O then
      return S
    end
    local a, b = identity(P, T[1], T[2], T[4], T[5])
    local found = false
    local N = repeated(P, O, O[4], O[5], function(v, w)
      found = found or v == a and w % P.n == b
      return v == a and w % P.n == b
    end)
    return found and bucketstate(S[1], S[2], O[1], O[2], O[3], N) or S
  end,

  -- refund gives back exactly what the state has because of a reservation that is in the list. For
  -- another charge it goes by the state alone, see least.
  refund = function(P, S, t, T, amount)
    local O, N, u, r, _ = listof(S), nil, nil, nil, nil
    if T[6] then
      expired = expired or amount > 0 and T[6] > 1 and T[6] + keptfor < t and t < ceiled(S[1], S[2])
      if not O or amount <= 0 then
        return S
      end
      local a, b = identity(P, T[1], T[2], T[4], T[5])
      local cu, cr = muldiv(amount, P.p, P.n)
      local found = false
      N, _, u, r = repeated(P, O, O[4], O[5], function(v, w, goes)
        if v == a and w % P.n == b then
          found = true
          if goes + keptfor < t then -- it counts as final
            return true
          end
          return true, cu, cr
        end
      end)
      if not found then
        return S
      end
    else
      local gu, gr = kinds[1].least(P, S, t, T, amount)
      if gu + gr == 0 then
        return S
      elseif O then -- the charges after it say how much of that counts
        gu, gr = pairless(P, O[4], O[5], gu, gr)
        N, _, u, r = repeated(P, O, gu, gr, goeson)
      else
        u, r = pairless(P, S[1], S[2], gu, gr)
      end
    end
    if u < t then
      u, r = t, 0
    end
    u, r = pairmin(u, r, S[1], S[2])
    local gu, gr = pairless(P, S[1], S[2], u, r)
    local xh, xu, xr = returned(S)
    xu, xr = pairsum(P, xu, xr, gu, gr)
    if xu >= span52 then
      xh, xu = xh + 1, xu - span52
    end
    return bucketstate(u, r, xh, xu, xr, N)
  end,

  -- least is what is given back by the state alone: what the bucket has not refilled by itself since.
  -- While work promised later still waits, only what exceeds everything charged since.
  least = function(P, S, t, T, amount)
    local uu, ur = used(S, t)
    local tu, tr = ahead(T[1], T[2], t)
    if amount <= 0 or uu + ur == 0 or tu + tr == 0 then
      return 0, 0
    end
    -- What was given back since the charge.
    local xh, xu, xr = returned(S)
    local du = (xh - (T[3] or 0)) * span52 + xu - (T[4] or 0)
    local dr = xr - (T[5] or 0)
    if dr < 0 then
      du, dr = du - 1, dr + P.n
    end
    if du < 0 or du >= span52 then
      return 0, 0
    end
    local su, sr = pairsum(P, uu, ur, du, dr)
    if pairbelow(su, sr, tu, tr) then
      return 0, 0
    end
    local cu, cr = muldiv(amount, P.p, P.n)
    local gu, gr = pairmin(cu, cr, pairless(P, tu, tr, du, dr))
    su, sr = pairless(P, su, sr, tu, tr)
    if su + sr > 0 then
      local pu, pr = P.fullu, P.fullr
      if P.leaky or P.owing then
        local ou, orest = muldiv(1, P.p, P.n)
        pu, pr = pairsum(P, P.passu, P.passr, ou, orest)
      end
      if pairbelow(pu, pr, uu, ur) then
        cu, cr = pairmin(cu, cr, pu, pr)
        gu, gr = pairmin(gu, gr, pairless(P, cu, cr, su, sr))
      end
    end
    return gu, gr
  end,

  -- reached: without debt, no more than the capacity is missing; where each charge leaves a debt, no
  -- more than one permit.
  reached = function(P, S)
    local u, r = pairless(P, S[1], S[2], P.fullu, P.fullr)
    if P.owing then
      u, r = pairless(P, u, r, muldiv(1, P.p, P.n))
    end
    return ceiled(u, r)
  end,

  look = function(P, S, t)
    local bu, br = used(S, t)
    local reset = ceiled(bu, br)
    if pairbelow(P.passu, P.passr, bu, br) then
      return 0, reset
    end
    if P.p == 0 then
      return P.size, reset
    end
    local fu, fr = pairmin(P.fullu, P.fullr, last - t, 0)
    local u, r = pairless(P, fu, fr, bu, br)
    local q, rest = muldiv(u, P.n, P.p)
    return min(q + floor((rest + r) / P.p), P.size), reset
  end,

  spent = function(P, S, t)
    if P.p == 0 then
      return 0
    end
    local u, r = used(S, t)
    local q, rest = muldiv(u, P.n, P.p)
    return min(q - floor(-(rest + r) / P.p), last)
  end,
}
-- IntervalBucket. A state is the tokens, the time of the last counted step, the time of the charge
-- that began these steps, and the latest promised time, -1 for none. Tokens below 0 are a debt,
-- which is counted up to 2^53. See intervalBucketRule in the Go package.
--
-- While reservations are outstanding, the fifth element is a list: the latest number of a reservation,
-- and for each outstanding one, oldest first: its number; the time after which it is final; and the
-- fewest tokens that any later charge found lacking, 2^53-1 without a later one. The number is the time
-- of its charge, or the next free one. That the list begins with it makes numbers unique.
-- weirtest.Versions is the model of this.
local mostkept, finalafter = 256, 900000000 -- reservations of a list; how long after their work may go

-- stepsfor is how many steps bring n tokens.
local function stepsfor(P, tokens)
  local q, r = muldiv(tokens, 1, P.refill)
  if r > 0 then
    return q + 1
  end
  return q
end

-- stepped adds the tokens of the steps up to t. A full bucket counts from t.
local function stepped(P, tokens, anchor, t)
  if tokens >= P.size then
    return P.size, max(anchor, t)
  elseif t <= anchor then
    return tokens, anchor
  end
  local steps = muldiv(t - anchor, 1, P.every)
  if steps >= stepsfor(P, P.size - tokens) then
    return P.size, t
  end
  return tokens + steps * P.refill, anchor + steps * P.every
end

-- stepsat returns the bucket at t, or at the latest promised time: its tokens, the step from which
-- they are counted, and how long until then.
local function stepsat(P, S, t)
  if not S then
    return P.size, t, 0
  end
  local tokens, anchor = stepped(P, S[1], S[2], max(t, S[4]))
  return tokens, anchor, max(0, S[4] - t)
end

-- stepdue is how long after t the missing tokens have come.
local function stepdue(P, lacks, anchor, t)
  local span = stepsfor(P, lacks) * P.every
  if span > last then
    return last
  end
  return min(span + (anchor - t), last)
end

-- lackslist is a list after a charge that found tokens lacking. A charge that goes at once and finds a
-- full bucket ends all reservations; one that goes later may be given back before. Those that are final
-- at t are dropped if keeps is true. It returns how many are left.
local function lackslist(O, lacks, t, later, keeps)
  local N = {O and O[1] or 0}
  for i = 2, O and #O or 0, 3 do
    local most = min(O[i + 2], lacks)
    if (lacks > 0 or later) and not (keeps and O[i + 1] < t) then
      N[#N + 1], N[#N + 2], N[#N + 3] = O[i], O[i + 1], most
    end
  end
  return N, (#N - 1) / 3
end

-- kept is a list that is left in a state: without reservations, it stays while numbers are ahead of
-- the clock.
local function kept(N, t)
  if N and (#N > 1 or N[1] >= t) then
    return N
  end
end

-- without is a list without a reservation, of which an amount at most is given back where so much
-- lacks. It returns what is given back, too; nil if the reservation is not in the list.
local function without(O, id, amount, lacks)
  local at, given = nil, 0
  for i = 2, #O, 3 do
    if O[i] == id then
      at, given = i, max(0, min(amount, O[i + 2], lacks))
    end
  end
  if not at then
    return nil, 0
  end
  local N, most = {O[1]}, O[at + 2]
  for i = 2, #O, 3 do
    local m = O[i + 2]
    if i < at and amount > 0 and most < last then
      m = min(m, max(0, most - given))
    elseif i > at and m < last then
      m = max(0, m - given)
    end
    if i ~= at then
      N[#N + 1], N[#N + 2], N[#N + 3] = O[i], O[i + 1], m
    end
  end
  return N, given
end

kinds[2] = {
  books = true,

  -- P is version, kind, size, refill, every.
  ready = function(P)
    P.size, P.refill, P.every = P[3], P[4], P[5]
    P.largest, P.keeps, P.name = P.size, false, 'interval'
  end,

  sound = function(P, S)
    local O = S[5]
    if O and (type(O) ~= 'table' or #O < 1 or #O > 1 + 3 * mostkept or #O % 3 ~= 1 or not numbers(O, 0)) then
      return false
    end
    return #S == (O and 5 or 4) and numbers({unpack(S, 1, 4)}, -last) and S[1] >= P.size - last and S[2] >= 0 and S[4] >= -1
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local tokens, anchor, wait = stepsat(P, S, t)
    if cost > tokens then
      wait = stepdue(P, cost - tokens, anchor, t)
    end
    if wait > last - t then
      return never, 0
    end
    return within(wait), 0
  end,

  -- A ticket is the state after the charge, the cost, and the state before. That of a reservation in
  -- the list also has when its work goes, and its number.
  book = function(P, S, t, due, cost, keeps)
    local before = S or {P.size, t, t, -1}
    due = max(due, before[4])
    local tokens, anchor = stepped(P, before[1], before[2], due)
    local grid = before[3]
    if tokens == P.size then
      grid = anchor
    end
    local next = {max(tokens - cost, P.size - last), anchor, grid, due > t and due or -1}
    local ticket = {next[1], next[2], next[3], next[4], cost, before[1], before[2], before[3], before[4]}
    if before[5] or keeps then
      local N, open = lackslist(before[5], P.size - tokens, t, due > t, keeps)
      local goes = max(due, t)
      if keeps and open < mostkept then
        N[1] = max(t, N[1] + 1)
        N[#N + 1], N[#N + 2], N[#N + 3] = N[1], min(goes + (keeps == 'until' and 0 or finalafter), last), last
        ticket[10], ticket[11] = goes, N[1]
      elseif keeps then
        toomany = toomany + 1
      end
      next[5] = kept(N, t)
    end
    return next, ticket
  end,

  -- settled ends a reservation that gives nothing back.
  settled = function(_, S, T)
    local N = T[11] and S[5] and without(S[5], T[11], 0, 0)
    return N and {S[1], S[2], S[3], S[4], kept(N, now)} or S
  end,

  -- refund gives back exactly what a reservation of the list still takes: at most what every later
  -- charge found lacking. Another charge gives back what the steps since have not made up for, and
  -- nothing if the bucket was full since. If nothing was charged since, the state is as it was before.
  refund = function(P, S, t, T, amount)
    local tokens, anchor = stepsat(P, S, t)
    local N, given = S[5], 0
    if T[11] then
      local final = T[10] + finalafter < t
      expired = expired or final and tokens < P.size
      N, given = without(N or {0}, T[11], final and 0 or amount, P.size - tokens)
      if not N then
        return S
      elseif final then
        return {S[1], S[2], S[3], S[4], kept(N, t)}
      end
    end
    if amount == T[5] and S[1] == T[1] and S[2] == T[2] and S[4] == T[4] and (T[11] or S[3] == T[3]) then
      N = T[11] and without(S[5], T[11], 0, 0) or N
      return {T[6], T[7], T[8], T[9], N}
    elseif not T[11] then
      if S[3] ~= T[3] or tokens == P.size then
        return S
      end
      if anchor > T[2] then
        amount = max(0, amount - muldiv(anchor - T[2], 1, P.every) * P.refill)
      end
      given = min(amount, P.size - tokens)
      if N then -- each later charge found at most that much less
        N = {N[1]}
        for i = 2, #S[5], 3 do
          local most = S[5][i + 2]
          N[i], N[i + 1], N[i + 2] = S[5][i], S[5][i + 1], most < last and max(0, most - given) or most
        end
      end
    elseif given == 0 then
      return {S[1], S[2], S[3], S[4], kept(N, t)}
    end
    return {tokens + given, anchor, S[3], S[4], kept(N, t)}
  end,

  -- reached: steps are counted up to the clock, or to a promised time.
  reached = function(_, S)
    return max(S[2], S[4])
  end,

  look = function(P, S, t)
    local tokens, anchor, wait = stepsat(P, S, t)
    local reset = wait
    if tokens < P.size then
      reset = max(wait, stepdue(P, P.size - tokens, anchor, t))
    end
    if wait > 0 then
      return 0, reset
    end
    return max(0, tokens), reset
  end,

  spent = function(P, S, t)
    return P.size - stepsat(P, S, t)
  end,

  load = function(P, t, spent)
    return (kinds[2].book(P, nil, t, t, spent))
  end,

  -- convert keeps the tokens used, and the last step. Steps of the new length that would have
  -- come before the change do not count.
  convert = function(P, S, Q)
    local tokens, anchor = stepsat(P, S, now)
    local t = max(now, S[4])
    if anchor < t then
      local _, since = muldiv(t - anchor, 1, Q.every)
      anchor = t - since
    end
    local same = P.every == Q.every and P.refill == Q.refill -- otherwise what is lacking may have come at the other rate
    return {Q.size - (P.size - tokens), anchor, min(S[3], anchor), S[4], same and S[5] or nil}
  end,
}
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
-- SlidingCounter. A state is the number of the current window, its count, and the count of the
-- window before. With e the time into the window of W, a cost is admitted while previous*(W-e) +
-- (current+cost)*W <= limit*W. See slidingCounterRule in the Go package.

-- counts returns the number of the window and both counts at t, how far t is into the window, and
-- for an earlier time how long before it: that counts as the window's beginning.
local function counts(P, S, t)
  local here, into = muldiv(t, 1, P.window)
  if S then
    if here < S[1] then
      return S[1], S[2], S[3], 0, S[1] * P.window - t
    elseif here == S[1] then
      return here, S[2], S[3], into, 0
    elseif here - 1 == S[1] then
      return here, 0, S[2], into, 0
    end
  end
  return here, 0, 0, into, 0
end

-- covered is the part of the previous count that a sliding window still covers, rounded up.
local function covered(P, previous, into)
  local q, r = muldiv(previous, P.window - into, P.window)
  if r > 0 then
    return q + 1
  end
  return q
end

-- enough is how far into a window the weighted count of the window before is down to room.
local function enough(P, previous, room)
  if previous == 0 then
    return 0
  end
  return max(0, P.window - muldiv(room, P.window, previous))
end

kinds[4] = {
  books = false,

  -- P is version, kind, limit, window.
  ready = function(P)
    P.limit, P.window = P[3], P[4]
    P.largest, P.keeps, P.name = P.limit, false, 'counter'
  end,

  sound = function(_, S)
    return #S == 3 and numbers(S, 0)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local _, current, previous, into, before = counts(P, S, t)
    local room, wait = P.limit - cost, 0
    if current > room then
      wait = before + P.window - into + enough(P, current, room)
    elseif covered(P, previous, into) > room - current then
      wait = before + enough(P, previous, room - current) - into
    end
    if wait > horizon or wait > last - t then
      return never, never
    end
    return wait, 0
  end,

  -- A ticket is the window of the charge.
  book = function(P, S, t, _, cost)
    local number, current, previous = counts(P, S, t)
    return {number, plus(current, cost), previous}, {number}
  end,

  -- refund lowers the count of the charge's window, while it is the current window or the one
  -- before.
  refund = function(P, S, t, T, amount)
    local number, current, previous = counts(P, S, t)
    if number <= T[1] then
      return {number, max(0, current - amount), previous}
    elseif number == T[1] + 1 then
      return {number, current, max(0, previous - amount)}
    end
    return S
  end,

  -- reached: the window has begun.
  reached = function(P, S)
    return min(S[1] * P.window, last)
  end,

  look = function(P, S, t)
    local _, current, previous, into, before = counts(P, S, t)
    local reset = 0
    if current > 0 then
      reset = plus(before, 2 * P.window - into)
    elseif previous > 0 then
      reset = plus(before, P.window - into)
    end
    return max(0, P.limit - current - covered(P, previous, into)), reset
  end,

  spent = function(P, S, t)
    return P.limit - kinds[4].look(P, S, t)
  end,

  -- usedbeyond is what is used, also beyond the limit.
  usedbeyond = function(P, S, t)
    local _, current, previous, into = counts(P, S, t)
    return plus(current, covered(P, previous, into))
  end,

  load = function(P, t, spent)
    return (kinds[4].book(P, nil, t, t, min(spent, P.limit)))
  end,

  -- convert keeps both counts; with another window, they count in the window of now and the
  -- one before.
  convert = function(P, S, Q)
    if P.window == Q.window then
      return S
    end
    local _, current, previous = counts(P, S, now)
    return {floor(now / Q.window), current, previous}
  end,
}
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
-- SlidingLog: each charge at its time. Expired charges are removed at the next charge. A charge
-- that will have expired at a promised time does not count at that time, but stays: the promise may
-- be given back.

-- timeat is the time that counts at t: the latest promised time if it is in the future, or the time
-- of the newest charge for an earlier reading; and how long until then.
local function timeat(S, t)
  if not S then
    return t, 0
  end
  local at = max(t, S[1])
  if S[7] ~= '' and S[2] > at then
    at = S[2]
  end
  return at, max(S[1] - t, 0)
end

-- live is how many charges have expired at a time, and the sum of the others.
local function live(P, S, at)
  if not S then
    return 0, 0
  end
  local gone = leading(S, 1, at - P.window)
  local _, sum = nth(S, gone)
  return gone, S[3] - sum
end

-- join merges n charges with those after them, after the first from. It returns the last two
-- merged.
local function join(S, from, n)
  local _, before = nth(S, from)
  local time, sum = nth(S, from + n)
  local later, through = nth(S, from + n + 1)
  local text = piece(S, 1, from) .. piece(S, from + n + 1, length(S))
  return {S[1], S[2], S[3], S[4], S[5], S[6], text, S[8]}, {time, sum - before, later, through - sum}
end

-- bounded makes room for more charges by merging the oldest. The first gone charges do not count at
-- the promised time; the others are bounded, and all together may be twice as many. See
-- slidingLogRule.bounded in the Go package.
local function bounded(P, S, gone, more)
  local over, joined = length(S) - gone + more - P.most, nil
  if over <= 0 then
    gone, over = 0, length(S) + more - 2 * P.most
  end
  if over > 0 then
    S, joined = join(S, gone, over)
  end
  over = length(S) + more - 2 * P.most
  if over > 0 then -- after a change of the bound
    S = join(S, 0, over)
  end
  return S, joined
end

-- unjoin undoes the merge of two charges.
local function unjoin(S, earlier, cost, time, rest)
  for i = leading(S, 1, time - 1) + 1, length(S) do
    local at, sum = nth(S, i)
    if at > time then
      return S
    end
    local previous, before = nth(S, i - 1)
    if sum - before == cost + rest then
      if i > 1 and previous > earlier then
        return S -- another charge with the same time and cost
      end
      return inserted(S, i, earlier, cost, 0)
    end
  end
  return S
end

kinds[6] = {
  books = true,

  -- P is version, kind, Limit, Window and MaxEntries.
  ready = function(P)
    P.limit, P.window, P.most = P[3], P[4], P[5]
    P.largest, P.keeps, P.name = P.limit, false, 'log'
  end,

  sound = function(_, S)
    return soundlist(S)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local at, wait = timeat(S, t)
    local _, sum = live(P, S, at)
    local room = P.limit - cost
    if sum > room then -- until the first of those has left whose leaving makes room
      local free = nth(S, leading(S, 2, S[3] - room - 1) + 1) + P.window
      if free > last then
        return never, 0
      end
      wait = max(free - t, 0)
    end
    return within(wait), 0
  end,

  -- A ticket is the time, the cost, the latest promise before, the two charges that were merged to
  -- make room for this one, if any were, and the reading at which the charge was made.
  book = function(P, S, t, due, cost)
    S = S or emptied
    due = max(due, S[1])
    local at, after = timeat(S, due), due > t and due or -1
    local T, joined = {at, cost, S[1]}, nil
    S = dropped(S, (live(P, S, t)))
    if S[3] + cost > last then
      return withpromise(lump(at), after), {}
    end
    S, joined = bounded(P, S, live(P, S, at), 1)
    if joined then
      T[4], T[5], T[6], T[7] = unpack(joined)
    end
    T[#T + 1] = t
    return withpromise(inserted(S, length(S) + 1, at, cost, cost), after), T
  end,

  -- refund lowers a charge that is still remembered unmerged. If it was the latest, the merge
  -- that made room for it is undone, and the promise before it is the latest again. Charges
  -- with the same time and cost cannot be told apart: while one of them is left, its time
  -- stays promised.
  refund = function(P, S, t, T, amount)
    local i, n = T[1] and leading(S, 1, T[1]) or 0, length(S)
    while i > 0 do
      local time, sum = nth(S, i)
      local previous, before = nth(S, i - 1)
      if time ~= T[1] then
        return S
      elseif sum - before == T[2] then
        S = altered(S, i, -amount)
        if amount < T[2] or i < n then
          return S
        end
        if #T == 4 or #T == 8 then -- not in receipts of earlier versions
          S[8] = max(S[8] or 0, T[#T]) -- what had expired by then was removed
        end
        if n == 1 then
          return withpromise(S, -1)
        elseif previous < T[1] then -- what was promised before may have been given back too
          S = withpromise(S, min(T[3], previous))
        end
        return #T >= 7 and unjoin(S, T[4], T[5], T[6], T[7]) or S
      end
      i = i - 1
    end
    return S
  end,

  -- reached: the newest charge was made, and what was given back had been made.
  reached = function(_, S)
    return max(S[1], S[7] ~= '' and S[2] or 0, S[8] or 0)
  end,

  look = function(P, S, t)
    local at, wait = timeat(S, t)
    local _, sum = live(P, S, at)
    local reset = wait
    if sum > 0 then
      reset = max(reset, min(S[2] + P.window, last) - t)
    end
    if wait > 0 then
      return 0, reset
    end
    return max(P.limit - sum, 0), reset
  end,

  spent = function(P, S, t)
    local _, sum = live(P, S, (timeat(S, t)))
    return sum
  end,
}
-- WarmUp. Stored permits are kept as the time that they took to come, in ticks of which a clock
-- unit brings d: see warmUpRule in the Go package. With T = p/n and the cold factor k/one all of it
-- is whole, and waits are whole parts of a clock unit. A state is the time at which the next charge
-- may go, in clock units; the number of elements of the parts by which it is later, and those
-- elements; and what is stored. Both are a number, or limbs if they are larger.
--
-- While reservations are outstanding, the last element is a list: the latest number of a reservation;
-- the state before the charges of the list; and the charges since the oldest outstanding reservation,
-- five elements each:
--   the number of an outstanding reservation, or 0; the time after which it is final; when its work
--   goes, in clock units and parts; the cost
-- A charge costs more the colder it finds the limit, so giving a reservation back repeats the others,
-- each at the time at which its work goes. The number is the time of the charge, or the next free one.
-- A charge that finds the limit completely cold ends all reservations. weirtest.Versions is the model
-- of this.
local mostagain, mostagainwide, finalagain = 64, 16, 900000000 -- charges of a list; of one whose limit needs limbs; how long after their work may go

-- slice is some elements of a list as a number (0 if there are none), or as limbs.
local function slice(S, from, to)
  if to <= from then
    return S[to >= from and from or 0] or 0
  end
  return {unpack(S, from, to)}
end

-- againlist is the list of a state; nil if it has none.
local function againlist(S)
  local J = S and S[#S]
  return type(J) == 'table' and J or nil
end

-- warmread is when the next charge may go, in clock units and parts, and what is stored.
local function warmread(S)
  local parts, n = S[2], #S
  if type(S[n]) == 'table' then
    n = n - 1
  end
  return S[1], slice(S, 3, 2 + parts), slice(S, 3 + parts, n)
end

local function warmstate(next, rest, stored)
  local S = {next, 0}
  if type(rest) == 'table' then
    S[2] = #rest
    for i = 1, #rest do
      S[2 + i] = rest[i]
    end
  elseif rest > 0 then
    S[2], S[3] = 1, rest
  end
  if type(stored) == 'number' then
    S[#S + 1] = stored
  else
    for i = 1, #stored do
      S[#S + 1] = stored[i]
    end
  end
  return S
end

-- warmat is what is stored at t and parts of a clock unit (default: none), and when the next charge
-- may go. While that lies ahead, nothing more is stored. Idle time that begins or ends within a clock
-- unit is rounded up to a tick.
local function warmat(P, S, t, parts)
  parts = parts or 0
  if not S then
    return P.full, t, parts
  end
  local next, rest, stored = warmread(S)
  if next > t or next == t and wideless(parts, rest) == 0 then
    return stored, next, rest
  elseif P.free then
    return stored, t, parts
  end
  local more = widemul(t - next, P.d)
  if parts ~= 0 then
    local idle = wideless(wideadd(widemul(t - next, P.unit), parts), rest)
    more = wideup(widemul(idle, P.d), P.unit)
  elseif rest ~= 0 then
    more = wideless(more, (widedivide(widemul(rest, P.d), P.unit)))
  end
  return wideleast(wideadd(stored, more), P.full), t, parts
end

-- warmup is the first clock reading that is not before a time.
local function warmup(next, rest)
  if rest ~= 0 then
    return plus(next, 1)
  end
  return next
end

-- warmtake takes permits for a cost out of what is stored, as far as there are any. It returns what
-- is left, and when the next charge may go; a time above last is beyond the end of the clock.
local function warmtake(P, stored, cost, next, rest)
  if P.free then
    return stored, next, rest
  end
  local left = wideless(stored, widemul(P.permit, cost))
  local wait, linear = muldiv(cost, P.p, P.n)
  local x, y = wideless(stored, P.threshold), wideless(left, P.threshold)
  if linear > 0 then
    rest = wideadd(rest, widemul(P.fractions, linear))
  end
  if x ~= 0 and P.climb ~= 0 then
    -- x^2-y^2 is (x+y)*(x-y)
    rest = wideadd(rest, widemul(widemul(wideadd(x, y), wideless(x, y)), P.climb))
  end
  local over
  over, rest = widedivide(rest, P.unit)
  return left, next + min(wait, last) + narrow(over), rest
end

-- warmended is the time of a charge as a state keeps it: at most the end of the clock.
local function warmended(next, rest)
  if next > last or next == last and rest ~= 0 then
    return last, 0
  end
  return next, rest
end

-- iscold reports whether all that can be stored is stored, and the next charge may go at t.
local function iscold(P, S, t)
  local stored, next, rest = warmat(P, S, t)
  return next == t and rest == 0 and wideless(P.full, stored) == 0
end

-- charged is a state after some charges of a list, each made at the time at which its work goes.
local function charged(P, S, J, from, to)
  for i = from, to, 5 do
    local stored, next, rest = warmat(P, S, J[i + 2], J[i + 3])
    stored, next, rest = warmtake(P, stored, J[i + 4], next, rest)
    next, rest = warmended(next, rest)
    S = warmstate(next, rest, stored)
  end
  return S
end

-- trimmed is a list without the charges before its oldest outstanding reservation.
local function trimmed(P, J)
  local first = 3
  while J[first] == 0 do
    first = first + 5
  end
  if first > #J then
    return {J[1]}
  elseif first == 3 then
    return J
  end
  local N = {J[1], charged(P, J[2], J, 3, first - 1)}
  for i = first, #J do
    N[#N + 1] = J[i]
  end
  return N
end

-- withlist is a state with another list. Without reservations, a list stays while numbers are ahead of
-- the clock.
local function withlist(S, J)
  local next, n = {}, #S
  if type(S[n]) == 'table' then
    n = n - 1
  end
  for i = 1, n do
    next[i] = S[i]
  end
  if J and (#J > 1 or J[1] >= now) then
    next[n + 1] = J
  end
  return next
end

-- mostcharges is how many charges a list has at most: repeating them must not keep the server from
-- other clients for long.
local function mostcharges(P)
  local x = P.free and 0 or wideless(P.full, P.threshold)
  if P.free or type(widemul(widemul(x, x), P.climb)) == 'number' then
    return mostagain
  end
  return mostagainwide
end

-- listedcharge is a list with a charge that is about to be made, and the number of a reservation. The
-- reservations that are final are dropped where another one is added. A charge for which the list has
-- no room pushes out the oldest reservation.
local function listedcharge(P, S, t, goes, parts, cost, keeps)
  local N, number = {0}, 0
  for i, v in ipairs(againlist(S) or N) do
    N[i] = v
  end
  if S and iscold(P, S, t) then
    N = {N[1]}
  end
  if keeps then
    for i = 3, #N, 5 do
      if N[i + 1] < t then
        N[i] = 0
      end
    end
    N = trimmed(P, N)
  end
  if #N > 2 and #N >= 2 + 5 * mostcharges(P) then
    toomany = toomany + 1
    N[3] = 0
    N = trimmed(P, N)
  end
  if #N < 3 and not keeps then
    return N, 0
  elseif #N < 3 then
    N[2] = S and withlist(S) or warmstate(t, 0, P.full)
  end
  if keeps then
    number = max(t, N[1] + 1)
    N[1] = number
  end
  local n = #N
  N[n + 1], N[n + 2] = number, min(goes + (keeps == 'until' and 0 or finalagain), last)
  N[n + 3], N[n + 4], N[n + 5] = goes, parts, cost
  return N, number
end

-- ended is a state after the reservation of a list's i-th element has ended: without an amount of its
-- cost, or with all of it if that is 0.
local function ended(P, S, i, amount)
  local J, N = againlist(S), {}
  local left = J[i + 4] - amount
  for k, v in ipairs(J) do
    if left > 0 or k < i or k > i + 4 then
      N[#N + 1] = v
    end
  end
  if left > 0 then
    N[i], N[i + 4] = 0, left
  end
  if amount > 0 then
    S = charged(P, N[2], N, 3, #N)
  end
  return withlist(S, trimmed(P, N))
end

-- positionof is where a list has a reservation; nil if it is not outstanding.
local function positionof(S, number)
  local J = againlist(S) or {}
  for i = 3, #J, 5 do
    if J[i] == number then
      return i
    end
  end
end

-- soundlimbs reports whether elements are limbs: without zeros at the top.
local function soundlimbs(S, from, to)
  for i = from, to do
    if S[i] >= limb then
      return false
    end
  end
  return S[to] > 0
end

-- soundwarm reports whether a state without a list is valid.
local function soundwarm(S)
  local n, parts = #S, S[2]
  if n < 3 or n > 24 or not numbers(S, 0) or parts > n - 3 or parts ~= floor(parts) then
    return false
  end
  return (parts <= 1 or soundlimbs(S, 3, 2 + parts)) and (n == 3 + parts or soundlimbs(S, 3 + parts, n))
end

-- soundagain reports whether a list is valid.
local function soundagain(J)
  local n = #J
  if n == 0 or n > 2 + 5 * mostagain or n > 1 and (n % 5 ~= 2 or n == 2 or type(J[2]) ~= 'table' or not soundwarm(J[2])) then
    return false
  end
  for i = 3, n, 5 do
    local parts = J[i + 3]
    local limbs = type(parts) == 'table' and #parts > 0 and #parts < 24 and numbers(parts, 0) and soundlimbs(parts, 1, #parts)
    if not (limbs or numbers({parts}, 0)) or not numbers({J[i], J[i + 1], J[i + 2], J[i + 4]}, 0) then
      return false
    end
  end
  return numbers({J[1]}, 0)
end

kinds[7] = {
  books = true,

  -- P is version, kind, n (0 for a rate without end), p, the period, and the cold factor as k
  -- and one.
  ready = function(P)
    local n, p, period, k, one = P[3], P[4], P[5], P[6], P[7]
    P.free, P.keeps, P.name = n == 0, n == 0, 'warm' -- what was used at a rate without end is warm
    P.full, P.largest = 0, last
    P.n, P.fractions, P.unit = 1, 1, 1
    if P.free then
      return
    end
    P.n, P.p, P.climb, P.k, P.one = n, p, k - one, k, one
    P.d, P.permit = widemul(n, 5 * one + k), widemul(p, 2 * (one + k))
    P.full, P.threshold = widemul(P.d, period), widemul(widemul(n, period), one + k)
    P.fractions = widemul(widemul(widemul(16 * one * one, one + k), n), period) -- n times that many are a clock unit
    P.unit = widemul(P.fractions, n)
    P.largest = max(min(muldiv(horizon, n, p), last), 1)
  end,

  sound = function(_, S)
    local J = againlist(S)
    if J then
      return #S <= 25 and soundagain(J) and soundwarm({unpack(S, 1, #S - 1)})
    end
    return soundwarm(S)
  end,

  contact = function() end,

  plan = function(P, S, t, cost)
    local stored, next, rest = warmat(P, S, t)
    local wait = warmup(next, rest) - t
    if wait > horizon then
      return never, 0
    end
    if last - next <= 3 * horizon then -- otherwise the largest cost is waited for before the end of the clock
      local _, after, more = warmtake(P, stored, cost, next, rest)
      if after > last or after == last and more ~= 0 then
        return never, 0
      end
    end
    return wait, 0
  end,

  -- A ticket of a reservation in the list is its number, and when its work goes. That of another
  -- charge is the states just after and before the charge, the cost, and when it was charged.
  book = function(P, S, t, due, cost, keeps)
    local stored, next, rest = warmat(P, S, t)
    local goes, parts = t, 0
    if due > t then
      goes, parts = next, rest
    end
    local left
    left, next, rest = warmtake(P, stored, cost, next, rest)
    next, rest = warmended(next, rest)
    local after, J, number = warmstate(next, rest, left), nil, 0
    if keeps or againlist(S) then
      J, number = listedcharge(P, S, t, goes, parts, cost, keeps)
    end
    if number > 0 then
      return withlist(after, J), {number, goes}
    end
    return J and withlist(after, J) or after, {after, S and withlist(S) or warmstate(t, 0, P.full), cost, t}
  end,

  -- settled ends a reservation that gives nothing back.
  settled = function(P, S, T)
    local i = type(T[1]) == 'number' and positionof(S, T[1])
    return i and ended(P, S, i, 0) or S
  end,

  -- refund makes the state what it would be had the actual cost been charged at first. It knows
  -- that of a reservation in the list, and otherwise only if nothing was charged since: later
  -- charges were priced by how cold it then was. It gives nothing back once the limit is cold again.
  refund = function(P, S, t, T, amount)
    local J = againlist(S)
    if type(T[1]) == 'number' then
      local cold, final = iscold(P, S, t), T[2] + finalagain < t
      expired = expired or final and not cold
      local i = not cold and positionof(S, T[1])
      return i and ended(P, S, i, final and 0 or amount) or S
    end
    for i = 1, max(#S - (J and 1 or 0), #T[1]) do
      if S[i] ~= T[1][i] then
        return S
      end
    end
    if J and #J > 1 then -- it is the last charge of the list
      local i = #J - 4
      if J[i] ~= 0 or J[i + 2] ~= T[4] or J[i + 3] ~= 0 or J[i + 4] ~= T[3] then
        return S
      end
      return ended(P, S, i, amount)
    elseif amount < T[3] then
      return withlist(kinds[7].book(P, T[2], T[4], T[4], T[3] - amount), J)
    end
    return withlist(T[2], J)
  end,

  -- reached: a permit takes no longer than the coldest one.
  reached = function(P, S)
    if P.free then
      return S[1]
    end
    return max(S[1] - narrow(wideup(widemul(P.p, P.k), widemul(P.n, P.one))), 0)
  end,

  look = function(P, S, t)
    local stored, next, rest = warmat(P, S, t)
    local wait, remaining = warmup(next, rest) - t, 0
    if P.free then
      return wait == 0 and last or 0, wait
    elseif wait == 0 then
      remaining = min(narrow(wideover(stored, P.permit)), P.largest)
    end
    -- What fills up is stored from then on, and rounded up: the last tick takes only a
    -- part of its time.
    local lacks = wideless(P.full, stored)
    if rest ~= 0 then
      lacks = wideadd(lacks, (widedivide(widemul(rest, P.d), P.unit)))
    end
    return remaining, max(wait, plus(next - t, narrow(wideup(lacks, P.d))))
  end,

  spent = function(P, S, t)
    if P.free then
      return 0
    end
    local stored, next, rest = warmat(P, S, t)
    local owed, more = muldiv(next - t, P.n, P.p) -- in permits, and then in n-ths of a clock unit
    local parts = wideadd(widemul(P.fractions, more), rest)
    owed = plus(min(owed, last), narrow(wideup(parts, widemul(P.fractions, P.p))))
    local all, left = wideover(P.full, P.permit), wideover(stored, P.permit)
    return plus(owed, narrow(wideless(all, left)))
  end,
}
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
-- Conversion of states after a change of the limit.

-- scaled is v*to/from, rounded up, of big numbers.
local function scaled(v, from, to)
  return bigup(bigmul(v, big(to)), big(from))
end

local function tickpair(P, u, r)
  return bigadd(bigmul(big(u), big(P.n)), big(r))
end

local function frompair(P, ticks)
  local q, r = bigdiv(ticks, big(P.n))
  return small(q), small(r)
end

-- Used tokens stay used, at the new rate. For a bucket that allows debt, the time until the next
-- charge may go stays.
kinds[1].convert = function(P, S, Q)
  if P.owing ~= Q.owing then
    return nil
  end
  local u, r = used(S, now)
  if P.owing then
    local owed = bigup(bigmul(tickpair(P, u, r), big(Q.n)), big(P.n))
    owed = bigless(bigadd(owed, bigmul(big(Q.passu), big(Q.n))), bigmul(big(P.passu), big(Q.n)))
    u, r = frompair(Q, owed)
    return advance(Q, now, 0, u, r)
  end
  if P.n == Q.n and P.p == Q.p then
    if S[1] < now then -- full: what came back by now does not go away again where the clock steps back
      return bucketstate(now, 0, returned(S))
    end
    return S
  end
  u, r = frompair(Q, scaled(tickpair(P, u, r), P.p, Q.p))
  local next = advance(Q, now, 0, u, r)
  next[3], next[4], next[5] = returned(S) + 1, 0, 0 -- what was charged before cannot be given back: it may have come back at the other rate
  return next
end

kinds[1].load = function(P, t, spent)
  return (kinds[1].book(P, kinds[1].contact(P), t, t, spent))
end

-- The counts of a window move to the slots of their latest possible times, if the slots have
-- another length or number.
kinds[5].convert = function(P, S, Q)
  if P.width == Q.width and P.slots == Q.slots then
    return S
  end
  local at, here, times, costs, places = slotat(P, S, now), floor(now / P.width), {}, {}, {}
  for i = leading(S, 1, at - P.slots) + 1, length(S) do
    local slot, sum = nth(S, i)
    local _, before = nth(S, i - 1)
    local latest = (slot + 1) * P.width - 1
    if slot == here then
      latest = min(latest, max(now, S[1]))
    end
    local to = floor(latest / Q.width)
    local place = places[to % Q.slots]
    if place and times[place] == to then
      costs[place] = costs[place] + sum - before
    else
      if place then
        costs[place] = 0
      end
      place = #times + 1
      times[place], costs[place], places[to % Q.slots] = to, sum - before, place
    end
  end
  return listed(S[1], times, costs)
end

kinds[5].load = function(P, t, spent)
  return (kinds[5].book(P, nil, t, t, min(spent, P.limit)))
end

-- A log keeps the charges that have not expired: a longer window does not bring expired ones back.
kinds[6].convert = function(P, S, Q)
  S = dropped(S, (live(P, S, now)))
  return (bounded(Q, S, live(Q, S, (timeat(S, now))), 0))
end

kinds[6].load = function(P, t, spent)
  return (kinds[6].book(P, nil, t, t, min(spent, P.limit)))
end

-- Guava's setRate: it keeps the time at which the next charge may go, rounded up to permits of the
-- new rate, and the stored fraction of the capacity, rounded to the colder side. After an unlimited
-- rate, a used limiter is warm. A full one counts as unused where the rate becomes unlimited, as its
-- state may have expired.
kinds[7].convert = function(P, S, Q)
  local stored, next, rest = warmat(P, S, now)
  if Q.free and not P.free and next == now and rest == 0 and wideless(P.full, stored) == 0 then
    return nil
  end
  rest = wideup(widemul(rest, Q.n), P.unit)
  if rest == Q.n then
    next, rest = plus(next, 1), 0
  end
  rest = widemul(rest, Q.fractions)
  if P.free then
    return warmstate(next, rest, 0)
  end
  return warmstate(next, rest, wideup(widemul(stored, Q.full), P.full))
end

kinds[7].load = function(P, t, spent)
  return (kinds[7].book(P, nil, t, t, spent))
end

-- transfer is a change of kind: what was used is charged once to an unused state.
local function transfer(P, S, Q)
  local spent = P.K.spent(P, S, now)
  if spent == 0 then
    return Q.K.contact(Q)
  end
  return Q.K.load(Q, now, spent)
end

local function changed(P, S, Q)
  if P.def == Q.def then
    return S
  end
  if P[2] == Q[2] and P.K.convert then
    local next = P.K.convert(P, S, Q)
    if next then
      return next
    end
  end
  return transfer(P, S, Q)
end

-- match returns, for each new limit, the old limit that is converted to it. It pairs those of the
-- same kind in order, and then the rest in order.
local function match(old, new)
  local from, taken = {}, {}
  local function take(j, fits)
    for i = 1, #old do
      if not taken[i] and fits(i) then
        from[j], taken[i] = i, true
        return
      end
    end
  end
  for j = 1, #new do
    take(j, function(i) return old[i].name == new[j].name end)
  end
  for j = 1, #new do
    if not from[j] then
      take(j, function() return true end)
    end
  end
  return from
end

change = function(P, S, Q)
  if not P.parts and not Q.parts then
    return changed(P, S, Q)
  end
  local old, new = P.parts or {P}, Q.parts or {Q}
  local next, from, touched = {}, match(old, new), false
  for j, part in ipairs(new) do
    local i = from[j]
    if not Q.parts and old[i].name ~= part.name then -- several become one of another kind
      return transfer(P, S, Q)
    end
    local before = nil
    if i then
      before = S
      if P.parts then
        before = S[i] or nil
      end
      before = before and changed(old[i], before, part)
    end
    if not Q.parts then
      return before
    end
    next[j] = before or part.K.contact(part) or false
    touched = touched or next[j] ~= false
  end
  return touched and next or nil -- nothing is left of what was used: the limit is unused
end
-- Two versions of a limit that are in use at once, as during a rolling deploy: a key has a state for
-- each. The caller's own version decides, and what it admits is charged to the other one too. See
-- docs/guarantees.md, "Two versions at once", and weirtest.Versions, which is the model of this.
--
-- An entry e then has e.other, the state of the other version: {def, S, used, ends, P}. used is when
-- a version last admitted, or began, and ends is from when on it may be dropped, as what it admitted
-- has come back. Those of the entry's own state are e.used and e.ends.
local versionrest = 60000000 -- while both versions were used within this time, a third one replaces neither

-- capacityof is what a limit holds, at least 1.
local function capacityof(P)
  return max(P.size or P.limit or P.free and last or narrow(wideover(P.full, P.permit)), 1)
end

-- filledto is how far a version is filled by what another one admits: one capacity beyond full.
local function filledto(P)
  return min(2 * capacityof(P), last)
end

-- heldby is what is used of a limit that is no All, also beyond its capacity.
local function heldby(P, S, t)
  if not S then
    return 0
  end
  return (P.K.usedbeyond or P.K.spent)(P, S, t)
end

-- lacks adds the names of calendars that a limit goes by and that the caller has not sent.
local function lacks(P, names)
  for _, part in ipairs(P.parts or {P}) do
    if part.K.calendars and not part.length and not part.windows then
      if type(part[5]) == 'string' and string.find(part[5], '^%a[%w:_/+-]*$') then
        names[#names + 1] = part[5]
      else
        part.windows = {} -- the name of no calendar
      end
    end
  end
end

-- lost reports whether a limit goes by a calendar that the caller cannot know: one of a time zone
-- that it lacks, or of a state that another program wrote.
local function lost(P)
  for _, part in ipairs(P.parts or {P}) do
    if part.K.calendars and part.windows and #part.windows == 0 then
      return true
    end
  end
  return false
end

-- endof is when a state is idle again.
local function endof(P, S)
  if not S then
    return now
  elseif P.parts then
    local latest = now
    for i, part in ipairs(P.parts) do
      latest = max(latest, endof(part, S[i] or nil))
    end
    return latest
  end
  local _, reset = P.K.look(P, S, now)
  return plus(now, reset)
end

-- fill charges a limit for what another version admitted. It returns the state, what was charged, and
-- a ticket; of an All, lists of both.
local function fill(P, S, cost, keeps)
  if P.parts then
    local next, amounts, tickets = {}, {}, {}
    for i, part in ipairs(P.parts) do
      local state, amount, ticket = fill(part, S and S[i] or nil, cost, keeps)
      next[i], amounts[i], tickets[i] = state or false, amount, ticket or false
    end
    return next, amounts, tickets
  end
  local amount = min(cost, filledto(P) - heldby(P, S, now))
  if amount <= 0 then
    return S, 0, nil
  end
  local next, ticket = P.K.book(P, S, now, now, amount, keeps)
  return next, amount, ticket
end

-- giveback gives back what was charged by fill beyond the actual cost.
local function giveback(P, S, amounts, tickets, actual)
  if type(amounts) == 'table' then
    local next = {}
    for i, part in ipairs(P.parts) do
      next[i] = S[i] and tickets[i] and giveback(part, S[i], amounts[i], tickets[i], actual) or S[i]
    end
    return next
  elseif amounts <= actual or type(tickets) ~= 'table' then
    return S
  end
  return P.K.refund(P, S, now, tickets, amounts - actual)
end

-- sharesstate reports whether one state serves two limits: a change from one to the other and back
-- creates nothing, and loses less than 1/32 of what each charge takes.
local function sharesstate(P, Q)
  if P.def == Q.def then
    return true
  elseif P[2] ~= Q[2] or P.name ~= Q.name and P[2] ~= 1 then
    return false
  elseif P.parts then
    if #P.parts ~= #Q.parts then
      return false
    end
    for j, i in ipairs(match(P.parts, Q.parts)) do
      if P.parts[i].name ~= Q.parts[j].name or not sharesstate(P.parts[i], Q.parts[j]) then
        return false
      end
    end
    return true
  elseif P[2] == 1 then
    return not P.owing and not Q.owing and (P.n == Q.n and P.p == Q.p or P.p >= 64 and Q.p >= 64)
  elseif P[2] == 2 then
    return P.every == Q.every
  elseif P[2] == 3 then
    return P[3] == Q[3] and P[5] == Q[5]
  elseif P[2] == 4 then
    return P.window == Q.window
  elseif P[2] == 5 then
    return P.width == Q.width and P.slots == Q.slots
  elseif P[2] == 6 then
    return P.window == Q.window and (P.most == Q.most or P.most >= P.limit and Q.most >= Q.limit)
  end
  return false
end

-- sooner reports whether a state that two limits share comes back faster under the second one. A
-- refused caller is told so, and the state has to do so.
local function sooner(P, Q)
  if P.parts then
    for j, i in ipairs(match(P.parts, Q.parts)) do
      if sooner(P.parts[i], Q.parts[j]) then
        return true
      end
    end
    return false
  elseif P[2] == 1 then
    return bigcompare(bigmul(big(Q.p), big(P.n)), bigmul(big(P.p), big(Q.n))) < 0
  end
  return P[2] == 2 and Q.refill > P.refill
end

-- takeover is what a version begins with that takes over what another one has used: at most one
-- capacity beyond full.
local function takeover(P, S, Q)
  local function lowered(part, state)
    if not state or heldby(part, state, now) <= filledto(part) then
      return state
    end
    return (part.K.book(part, part.K.contact(part), now, now, filledto(part)))
  end
  local next = change(P, S, Q)
  if Q.parts and next then
    local all = {}
    for i, part in ipairs(Q.parts) do
      all[i] = lowered(part, next[i] or nil) or false
    end
    return all
  end
  return lowered(Q, next)
end

local function eldest(list)
  return list[1].used < list[2].used and 1 or 2
end

-- known reads the states of both versions, as far as the calendars are known by which they go.
local function known(e)
  local names = {}
  lacks(e.P, names)
  if e.other then
    if not e.other.P then
      local Q = prepare(e.other.def)
      if Q.K.sound and not Q.K.sound(Q, e.other.S) then
        error('WEIRSTATE the key holds a state that cannot be', 0)
      end
      e.other.P = Q
    end
    lacks(e.other.P, names)
  end
  if #names > 0 then -- another version goes by a calendar that this caller does not know
    for _, name in ipairs(names) do
      unknown[#unknown + 1] = name
    end
    beyond[#beyond + 1] = now
    error(beyond)
  end
end

-- own makes the caller's version the entry's own. It sets e.begun where that has just begun, or was
-- converted; e.stored where that is to be stored even if the call is refused; and e.both, the
-- versions that decide instead, where the caller's has no state.
local function own(e, P)
  local list = {} -- copies: what is noted in them must not stay if the call is refused
  for _, v in ipairs({e.S and e or e.other, e.S and e.other}) do
    list[#list + 1] = {def = v.def, S = v.S, used = v.used, ends = v.ends, P = v.P}
  end
  if #list == 2 then
    local left = {}
    for _, v in ipairs(list) do
      if v.def == P.def or v.ends > now and not lost(v.P) then
        left[#left + 1] = v
      end
    end
    list = #left > 0 and left or {list[3 - eldest(list)]}
  end
  e.begun, e.stored, e.both = false, false, nil
  local function first(i, S)
    local v = list[i]
    e.def, e.S, e.P, e.used, e.ends, e.other = P.def, S, P, v.used, v.ends, list[3 - i]
  end
  for i, v in ipairs(list) do
    if v.def == P.def then
      return first(i, v.S)
    end
  end
  for i, v in ipairs(list) do
    if sharesstate(v.P, P) then -- never lost, as the caller has the same calendar
      e.begun, e.stored = true, sooner(v.P, P)
      return first(i, change(v.P, v.S, P))
    end
  end
  local from, stays = list[1], list[1]
  if #list == 1 then
    from.used, from.ends = now, lost(from.P) and now or endof(from.P, from.S)
    if from.ends <= now then
      stays = nil
    end
  else
    local old = eldest(list)
    from, stays = list[old], list[3 - old]
    if from.used > now - versionrest then
      e.both = list
      return
    end
  end
  -- It takes over from the one that it replaces, also where the other one counted more: versions in
  -- turn would otherwise renew what a long window has counted, and refuse for good.
  e.begun, e.stored = true, true
  e.def, e.S, e.P, e.other = P.def, takeover(from.P, from.S, P), P, stays
  e.used, e.ends = now, endof(P, e.S)
end

-- charge charges the other version for what the caller's own admitted. It returns what a receipt says
-- of that: the limit, what was charged, and a ticket.
local function charge(e, P, S, cost, keeps)
  local other = e.other
  local next, amounts, tickets = fill(other.P, other.S, cost, keeps)
  e.other = {def = other.def, S = next, used = other.used, ends = other.ends, P = other.P}
  e.used, e.ends = now, endof(P, S)
  return other.def, amounts, tickets
end

-- putboth stores the states of two versions that both decided.
local function putboth(e, S)
  local v, w = e.both[1], e.both[2]
  e.def, e.S, e.P, e.used, e.ends, e.dirty = v.def, S[1], v.P, v.used, v.ends, true
  e.other = {def = w.def, S = S[2], used = w.used, ends = w.ends, P = w.P}
  e.both = {{def = v.def, S = S[1], used = v.used, ends = v.ends, P = v.P}, e.other}
end

-- settle replaces the cost of a receipt by the actual one: each version gets back what it was charged
-- too much, or is charged the difference. It reports whether it changed anything.
local function settle(e, P, actual, def, cost, ticket, def2, amounts, tickets)
  if actual > cost then
    if e.both then -- the caller's version has no state: its work counts for those that have one
      local S, T = (fill(e.both[1].P, e.both[1].S, actual - cost)), (fill(e.both[2].P, e.both[2].S, actual - cost))
      putboth(e, {S, T})
      return true
    end
    local S = e.S
    if S and ticket and P.K.settled and def == P.def and not e.begun then
      S = P.K.settled(P, S, ticket)
    end
    e.S, e.def, e.P, e.dirty = (P.K.book(P, S or P.K.contact(P), now, now, actual - cost)), P.def, P, true
    if e.other then
      charge(e, P, e.S, actual - cost)
    end
    return true
  end
  local function given(v)
    if v.S and v.def == def then
      return (v.P.K.refund(v.P, v.S, now, ticket, cost - actual))
    elseif v.S and v.def == def2 then
      return giveback(v.P, v.S, amounts, tickets, actual)
    end
    return v.S
  end
  local first, second = e, e.other
  if e.both then
    first, second = e.both[1], e.both[2]
  end
  local S, T = given(first), second and given(second)
  if cmsgpack.pack(S, T) == cmsgpack.pack(first.S, second and second.S) then
    return false
  end
  if e.both then
    putboth(e, {S, T})
    return true
  end
  e.S, e.def, e.P, e.dirty = S, P.def, P, true
  if second then
    e.other = {def = second.def, S = T, used = second.used, ends = second.ends, P = second.P}
  end
  return true
end

-- lowered gives back from each version's count, whichever charges it is made of.
local function lowered(e, P, amount)
  local function left(v)
    if v.S and v.P.K.giveback then
      return v.P.K.giveback(v.P, v.S, now, amount)
    end
    return v.S
  end
  if e.both then
    putboth(e, {left(e.both[1]), left(e.both[2])})
    return
  end
  local other = e.other
  e.S, e.def, e.P, e.dirty = left(e), P.def, P, true
  if other then
    e.other = {def = other.def, S = left(other), used = other.used, ends = other.ends, P = other.P}
  end
end

versions = {
  giveback = lowered,
  given = giveback,
  known = known,
  own = own,
  charge = charge,
  putboth = putboth,
  settle = settle,
  endof = endof,

  -- retry is how long until a third version may take the place of one of two.
  retry = function(both)
    return max(both[eldest(both)].used + versionrest - now, 1)
  end,

  -- joint is two versions as one limit, for which both decide.
  joint = function(both)
    local P, Q = both[1].P, both[2].P
    return {K = kinds[8], parts = {P, Q}, largest = min(P.largest, Q.largest), def = P.def}
  end,
}
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
local function decide(KEYS, ARGV)
-- The argument is one value: version, expiry of the call (0 for none), grace in ms, whether KEYS[1]
-- is a nonce, limits, and charges one after another, with eight fields each: operation, limit, cost,
-- group, within (-1: any delay; of a take, 1: a receipt is wanted, 2: its cost will be settled; of a
-- peek, 3: how much is used is wanted),
-- receipt or '', by how many ms it expires sooner than the call, and for how many ms the key stays
-- that marks a settle as carried out (0: it has none). Those keys come after the keys of all charges,
-- in their order. If limits have calendars, these come last: the name and the windows (day,
-- beginning, end) of each.
local asked = cmsgpack.unpack(ARGV[1])
if asked[1] ~= 1 then
  return redis.error_reply('WEIRVERSION these scripts are of another version than who asks')
end
local expiry, grace, first = asked[2], asked[3], asked[4]
if expiry > 0 and now > expiry then
  return redis.error_reply('WEIRLATE ' .. string.format('%.0f', now))
end
if first == 1 then
  local said = redis.call('GET', KEYS[1])
  if said then
    return said
  end
end

local limits, charges = asked[5], asked[6]
if asked[7] then
  for i = 1, #asked[7], 2 do
    calendars[asked[7][i]] = asked[7][i + 1]
  end
end
local prepared, entries = {}, {}
local which = 0 -- the limit of the charge
local wrong = {} -- an algorithm that this script lacks: the caller repeats the call with all algorithms

-- whole reports whether all numbers of a value are whole and below 2^53, as these scripts write
-- them. A state that another program wrote may have other numbers, and computing with them might
-- not end.
local function whole(v)
  for _, x in pairs(v) do
    if type(x) == 'table' then
      if not whole(x) then
        return false
      end
    elseif type(x) == 'number' and not (x >= -last and x <= last and x % 1 == 0) then
      return false
    end
  end
  return true
end

-- prepare reads a limit.
prepare = function(def)
  local P = prepared[def]
  if P then
    return P
  end
  P = cmsgpack.unpack(def)
  if type(P) ~= 'table' or P[1] ~= 1 or not whole(P) then
    error('WEIRSTATE the key holds a state of another version, or none', 0)
  end
  local K = kinds[P[2]]
  if not K then
    error(change and 'WEIRSTATE the key holds a state of a limit that is not known' or wrong, 0)
  end
  P.K, P.def = K, def
  K.ready(P)
  prepared[def] = P
  return P
end

-- twoversions marks a value with the states of two versions of a limit: the list after it has the
-- limit, the state, used and ends of each (see versions.lua). It reads as a limit of a later format,
-- so that scripts that do not know it leave the key alone.
local twoversions = '\146\002\000'

-- entry is what is known of a key: the state, the limit under which it was stored, and its clock:
-- behind is how far the server's clock is behind it, and seen the time of the latest charge if the
-- state does not show it, being in debt or promised ahead; false if it does, and nil in a state of
-- an earlier format, in which debt and steps of the clock look alike.
local function entry(key)
  local e = entries[key]
  if e then
    return e
  end
  e = {}
  entries[key] = e
  local raw = redis.pcall('GET', key)
  if type(raw) == 'table' then
    e.err = raw.err
  elseif raw then
    local ok, def, S, seen, behind, further = pcall(cmsgpack.unpack, raw)
    if ok and type(def) == 'string' and type(S) == 'table' and whole({S, seen, behind, further}) and numbers({seen or 0, behind, further}, 0) then
      e.seen, e.behind = seen, {behind, further}
      if def ~= twoversions then
        e.def, e.S = def, S
      elseif #S == 8 and type(S[2]) == 'table' and type(S[6]) == 'table' and numbers({S[3], S[4], S[7], S[8]}, 0) then
        e.def, e.S, e.used, e.ends = S[1], S[2], S[3], S[4]
        e.other = {def = S[5], S = S[6], used = S[7], ends = S[8]}
      end
    end
    if not e.S then
      e.err = 'WEIRSTATE the key holds something that is no state of a limit'
    end
  end
  return e
end

-- open reads a key's states for a call under a limit, and sets now to the time by the key's clock.
local function open(e, P)
  if e.S then
    soundof(e)
    if e.other or e.def ~= P.def then
      if not versions then
        error(wrong)
      end
      versions.known(e)
    end
    if not e.now then
      settime(e)
    end
  elseif not e.now then
    e.now, e.behind = reading, {}
  end
  now = e.now
end

-- current is a key's state under the limit of the call; nil if nothing is known of the key.
local function current(e, P)
  if e.other or e.S and e.def ~= P.def then
    if not versions then
      error(wrong)
    end
    versions.own(e, P)
  end
  return e.S
end

-- stateof is the state of a key under a limit, and the time by the key's clock.
stateof = function(key, P)
  local e = entry(key)
  open(e, P)
  local S, time = current(e, P), now
  now = reading
  return S, time
end

local function put(e, P, S)
  e.S, e.def, e.P, e.dirty = S, P.def, P, true
end

local said, n = {now}, 1 -- the answer: for each charge the wait (0 for yes, -1 for never), what remains, the reset, and more as asked
local made = false
local marks = {}   -- by the number of a charge: the key that marks its settle as carried out
local marked = {}  -- by such a key: for how many ms it stays; of settles that are carried out now
local settling     -- the key of the settle that is being carried out

local function say(wait, remaining, reset)
  if not whole({wait, remaining, reset}) then
    error('WEIRSTATE no decision follows from the state of the key', 0)
  end
  said[n + 1], said[n + 2], said[n + 3] = wait, remaining, reset
  n = n + 3
end

local function also(v)
  n = n + 1
  said[n] = v
end

-- receipt identifies a charge: the limit and its ticket, and those of another version.
local function receipt(P, cost, ticket, def, amounts, tickets)
  if def then
    return cmsgpack.pack(P.def, cost, now, ticket or {}, def, amounts, tickets or false)
  end
  return cmsgpack.pack(P.def, cost, now, ticket or {})
end
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
end
local function named()
-- Named limits, kept in Redis with their parameters. Arguments and replies are text and whole
-- numbers, for clients in any language. KEYS[1] is the hash with the definition. After it come, in
-- any order, the limit's other keys that may be needed; they begin with KEYS[1]:
--   :state        what was used, of a limit for all clients together; of a limit per client, a sorted
--                 set of the clients with a state, and until when
--   :client:NAME  what that client has used
--   :nonce:ANY    the reply to a call that may be repeated
-- ARGV is the operation and its arguments. After a first word pack, the reply is in MessagePack.
versionrest = 0 -- all callers have the same definition: a new one is in force at once
local packed = ARGV[1] == 'pack'
local args = {}
for i = packed and 2 or 1, #ARGV do
  args[#args + 1] = ARGV[i]
end

local failure
local function fail(text)
  failure = text
  error(text, 0)
end

local function digits(x)
  return string.format('%.0f', x)
end

-- whole parses a number. It accepts only one text for each number.
local function whole(name, text, least, most)
  local n = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not n or n < least or n > most then
    fail('WEIRARG ' .. name .. ' must be a whole number from ' .. digits(least) .. ' to ' .. digits(most))
  end
  return n
end

-- numbers reads the parameters that take needs from a definition.
local function numbers()
  local d = redis.pcall('HMGET', KEYS[1], 'version', 'scope', 'capacity', 'def')
  if d.err then
    fail(d.err)
  elseif not d[1] and redis.call('EXISTS', KEYS[1]) == 0 then
    fail('WEIRNONE there is no limit of this name: it is made by init')
  elseif d[1] ~= '1' or not d[2] or not d[3] or not d[4] then
    fail('WEIRSTATE the key holds something that is no named limit of this version')
  end
  return {scope = d[2], capacity = tonumber(d[3]), def = d[4]}
end

-- key finds one of the limit's keys among those of the call.
local function key(part)
  local prefix = KEYS[1] .. part
  for i = 2, #KEYS do
    local k = KEYS[i]
    if k == prefix and part == ':state' or part ~= ':state' and #k > #prefix and string.sub(k, 1, #prefix) == prefix then
      return k, string.sub(k, #prefix + 1)
    end
  end
end

local function needed(part)
  local k, rest = key(part)
  if not k then
    fail('WEIRKEY one more key is needed: that of the limit with ' .. part .. ' after it')
  elseif rest and #rest > 512 then
    fail('WEIRKEY the name of a client has at most 512 bytes')
  end
  return k, rest
end

-- place returns where a limit's state is, and for a limit per client the set of clients, and the
-- client.
local function place(d)
  local state = needed(':state')
  if d.scope == 'overall' then
    return state
  end
  local noted = redis.pcall('ZCARD', state)
  if type(noted) == 'table' then
    fail(noted.err)
  end
  local k, client = needed(':client:')
  return k, state, client
end

-- ask evaluates the limit: 0 charges, 1 does not. It returns the wait, what remains, and the reset.
local function ask(d, at, op, cost, before)
  local nonce = op == 0 and key(':nonce:')
  if nonce and before == 0 then
    before = now + 60000000
  end
  local charges = {op, 1, cost, 0, 0, '', 0, 0}
  local answer = decide(nonce and {nonce, at} or {at}, {cmsgpack.pack({1, before, 0, nonce and 1 or 0, {d.def}, charges})})
  if type(answer) == 'table' then
    fail(answer.err)
  end
  local said = cmsgpack.unpack(answer)
  if type(said[2]) == 'string' then
    fail(said[2])
  end
  return said[2], said[3], said[4]
end

-- note records until when a client has a state, and removes some of those that have none.
local function note(at, state, client)
  local ttl = redis.call('PTTL', at)
  if ttl > 0 then
    redis.call('ZADD', state, digits(now + ttl * 1000), client)
    redis.call('PEXPIRE', state, digits(max(ttl + 1000, redis.call('PTTL', state))))
  else
    redis.call('ZREM', state, client)
  end
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', state, '-inf', digits(now), 'LIMIT', 0, 4)) do
    redis.call('ZREM', state, gone)
  end
end

-- take [COST [BEFORE]]: whether it was admitted, the capacity, what remains, and the retry (-1 for
-- never) and reset in microseconds. BEFORE is the server's time in microseconds after which the
-- call is not carried out. The reply to a call with a nonce is kept until then, or for a minute.
local function take(op)
  local d = numbers()
  local at, state, client = place(d)
  local cost, before = whole('the cost', args[2] or '1', 0, last + 1), whole('the time', args[3] or '0', 0, last)
  local wait, remaining, reset = ask(d, at, op, cost, before)
  if state and op == 0 then
    note(at, state, client)
  end
  return {wait == 0 and 1 or 0, d.capacity, remaining, wait, reset, packed and now or nil}
end

-- other is the rare operations. Its functions are only made when needed, as making them takes
-- longer than most calls.
local function other(name)
  -- definition is everything that is stored of a limit, by field; nil if there is nothing.
  local function definition()
    local all = redis.pcall('HGETALL', KEYS[1])
    if all.err then
      fail(all.err)
    elseif #all == 0 then
      return nil
    end
    numbers() -- fails if there is no valid definition
    local d = {order = {}}
    for i = 1, #all, 2 do
      d[all[i]], d.order[#d.order + 1] = all[i + 1], all[i]
    end
    return d
  end

  local units = {us = 1, ms = 1000, s = 1000000, m = 60000000, h = 3600000000, d = 86400000000, w = 604800000000}

  -- span parses a duration, such as 100ms, 1m, or d for one day, as microseconds.
  local function span(name, text)
    local n, unit = string.match(text or '', '^(%d*)(%l+)$')
    local v = n and units[unit] and #n <= 16 and (n == '' and 1 or tonumber(n)) * units[unit]
    if not v or v < 1 or v > horizon then
      fail('WEIRARG ' .. name .. ' must be a duration from 1us to 100 years, such as 100ms, 1m or 7d')
    end
    return v
  end

  -- rate parses a rate, such as 100/s, as ticks for each microsecond and ticks that a token
  -- costs.
  local function rate(f)
    local n, per = string.match(f.rate or '', '^(%d+)/(%w+)$')
    if not n then
      fail('WEIRARG rate must be a number for a duration, such as 100/s, 6/m or 20/100ms')
    end
    n, per = whole('the number of rate', n, 1, 2251799813685248), span('the duration of rate', per)
    local a, b = n, per
    while b > 0 do
      a, b = b, math.fmod(a, b)
    end
    return n / a, per / a
  end

  -- fills checks that a bucket fills within 100 years.
  local function fills(name, size, n, p)
    if muldiv(size, p, n) > horizon then
      fail('WEIRARG ' .. name .. ' takes more than 100 years at this rate')
    end
  end

  -- What init parses itself: the fields of each algorithm, optional ones in brackets; and what
  -- makes a definition and a capacity of them.
  local known = {
    token_bucket = {'rate', 'burst', '[initial]', function(f)
      local n, p = rate(f)
      local burst = whole('burst', f.burst, 1, last)
      fills('burst', burst, n, p)
      local initial = burst
      if f.initial == '-1' then
        initial = 0
      elseif f.initial and f.initial ~= '0' then
        initial = whole('initial', f.initial, 1, burst)
      end
      return {1, 1, 0, n, p, burst, burst - initial}, burst
    end},
    leaky_bucket = {'rate', '[queue]', '[delay_after]', function(f)
      local n, p = rate(f)
      local queue = whole('queue', f.queue or '0', 0, last - 1)
      fills('queue', queue + 1, n, p)
      return {1, 1, 1, n, p, queue + 1, whole('delay_after', f.delay_after or '0', 0, queue)}, queue + 1
    end},
    interval_bucket = {'burst', 'refill', 'every', function(f)
      local burst, refill, every = whole('burst', f.burst, 1, last), whole('refill', f.refill, 1, last), span('every', f.every)
      if math.ceil(burst / refill) * every > horizon then
        fail('WEIRARG burst takes more than 100 years to come')
      end
      return {1, 2, burst, refill, every}, burst
    end},
    fixed_window = {'limit', 'window', '[align]', function(f)
      local aligned = ({epoch = 0, first = 1})[f.align or 'epoch']
      if not aligned then
        fail('WEIRARG align must be epoch or first: calendars need a client that knows time zones')
      end
      local limit = whole('limit', f.limit, 1, last)
      return {1, 3, aligned, limit, span('window', f.window)}, limit
    end},
    sliding_counter = {'limit', 'window', function(f)
      local limit = whole('limit', f.limit, 1, last)
      return {1, 4, limit, span('window', f.window)}, limit
    end},
    sliding_window = {'limit', 'window', 'slots', '[slot_limit]', function(f)
      local limit, window, slots = whole('limit', f.limit, 1, last), span('window', f.window), whole('slots', f.slots, 2, 4096)
      if math.fmod(window, slots) > 0 then
        fail('WEIRARG slots must part the window into whole microseconds')
      end
      local each = f.slot_limit and f.slot_limit ~= '0' and whole('slot_limit', f.slot_limit, 1, limit) or limit
      return {1, 5, limit, each, slots, window / slots}, min(limit, each)
    end},
    sliding_log = {'limit', 'window', '[max_entries]', function(f)
      local limit, window = whole('limit', f.limit, 1, last), span('window', f.window)
      return {1, 6, limit, window, f.max_entries and whole('max_entries', f.max_entries, 2, 16384) or max(2, min(limit, 4096))}, limit
    end},
  }

  -- fields parses name=value from an argument on, in order, and by name.
  local function fields(from)
    local order, f = {}, {}
    for i = from, #args do
      local name, value = string.match(args[i], '^([a-z][a-z0-9_]*)=(.+)$')
      if not name or #args[i] > 1024 or f[name] or i > 40 then
        fail('WEIRARG argument ' .. i .. ' must be name=value, each name once, and not more than 35 of them')
      end
      f[name], order[#order + 1] = value, name
    end
    return order, f
  end

  -- sane reports whether a definition has the numbers that its algorithm computes with, as another
  -- program may have written it.
  local sane
  sane = function(P)
    if type(P) ~= 'table' or #P < 3 or #P > 32 or P[1] ~= 1 then
      return false
    end
    local least = P[2] == 1 and {0, 1, 0, 1, 0} or P[2] == 3 and {0, 1, 1} or P[2] == 7 and {0, 1, 0, 1, 1} or {}
    for i = 3, #P do
      local v = P[i]
      if P[2] == 8 then
        local ok, part = pcall(cmsgpack.unpack, v)
        if not ok or type(part) ~= 'table' or part[2] == 8 or not sane(part) then
          return false
        end
      elseif type(v) ~= 'number' or v ~= floor(v) or v < (least[i - 2] or 1) or v > last or P[2] == 1 and i < 6 and v > 2251799813685248 then
        return false
      end
    end
    return true
  end

  -- check validates a definition, and runs it once on no state, before it is stored.
  local function check(def)
    local ok = pcall(function()
      assert(sane(cmsgpack.unpack(def)))
      decide({}, {cmsgpack.pack({1, 0, 0, 0, {}, {}})}) -- makes prepare
      local P = prepare(def)
      local S = P.K.contact(P)
      P.K.plan(P, S, now, 1)
      P.K.look(P, S, now)
    end)
    if not ok then
      fail('WEIRARG this is no definition of a limit that these scripts know')
    end
  end

  -- define stores a definition. What was used stays used: a state is converted when it is
  -- next evaluated.
  local function define(scope, algorithm, capacity, def, order, f)
    if scope ~= 'overall' and scope ~= 'per_client' then
      fail('WEIRARG the scope must be overall or per_client')
    end
    local before = definition()
    if before and before.scope ~= scope then
      fail('WEIRSCOPE the limit is ' .. before.scope .. ': delete it first')
    end
    check(def)
    local all = {'algorithm', algorithm}
    for _, name in ipairs(order) do
      all[#all + 1], all[#all + 2] = name, f[name]
    end
    for _, v in ipairs({'scope', scope, 'capacity', digits(capacity), 'version', '1', 'def', def}) do
      all[#all + 1] = v
    end
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], unpack(all))
    return before and 0 or 1
  end

  -- init SCOPE ALGORITHM name=value...: 1 if the limit is new.
  local function init()
    local algorithm = known[args[3]]
    if not algorithm then
      fail('WEIRARG the algorithm must be token_bucket, leaky_bucket, interval_bucket, fixed_window, sliding_counter, sliding_window or sliding_log')
    end
    local order, f = fields(4)
    local allowed = {}
    for i = 1, #algorithm - 1 do
      allowed[string.match(algorithm[i], '[%l_]+')] = true
    end
    for _, name in ipairs(order) do
      if not allowed[name] then
        fail('WEIRARG the fields of ' .. args[3] .. ' are ' .. table.concat(algorithm, ' ', 1, #algorithm - 1))
      end
    end
    local P, capacity = algorithm[#algorithm](f)
    return define(args[2], args[3], capacity, cmsgpack.pack(P), order, f)
  end

  -- define SCOPE ALGORITHM CAPACITY DEF name=value...: init for clients that can encode a limit of
  -- any algorithm.
  local function redefine()
    local order, f = fields(6)
    for _, name in ipairs({'algorithm', 'scope', 'capacity', 'version', 'def'}) do
      if f[name] then
        fail('WEIRARG ' .. name .. ' is no field of a limit')
      end
    end
    if not string.find(args[3] or '', '^[a-z][a-z_]*$') or #args[3] > 64 then
      fail('WEIRARG the algorithm must be a word')
    end
    return define(args[2], args[3], whole('capacity', args[4], 0, last), args[5] or '', order, f)
  end

  -- charged is how much of a limit is used: what has been charged and has not come back yet.
  local function charged(d, at)
    local P = prepare(d.def)
    local S, time = stateof(at, P)
    S = S or P.K.contact(P)
    return S and P.K.spent(P, S, time) or 0
  end

  -- inspect: names and values; with the key of a client, what that client has used.
  local function inspect()
    local d = definition() or numbers()
    local all = {}
    for _, name in ipairs(d.order) do
      if name ~= 'def' and name ~= 'version' then
        all[#all + 1], all[#all + 2] = name, d[name]
      end
    end
    local function add(name, value)
      all[#all + 1], all[#all + 2] = name, digits(value)
    end
    if d.scope == 'per_client' then
      add('clients', redis.call('ZCOUNT', needed(':state'), '(' .. digits(now), '+inf'))
    end
    if d.scope == 'overall' or key(':client:') then
      local at = place(d)
      local _, remaining, reset = ask(d, at, 1, 0, 0)
      add('used', charged(d, at))
      add('remaining', remaining)
      add('reset_us', reset)
    end
    return all
  end

  -- clients [OFFSET [COUNT]]: the names of the clients that have used something, at most
  -- 1000.
  local function clients()
    local d = numbers()
    if d.scope ~= 'per_client' then
      return {}
    end
    local from, count = whole('the offset', args[2] or '0', 0, last), whole('the count', args[3] or '100', 1, 1000)
    return redis.call('ZRANGEBYSCORE', needed(':state'), '(' .. digits(now), '+inf', 'LIMIT', digits(from), digits(count))
  end

  -- delete: removes the definition and the states, those of 1000 clients at a time. It
  -- returns how many are left; if any are, call it again.
  local function delete()
    definition() -- fails if the key is no limit
    local state = needed(':state')
    local kind = redis.call('TYPE', state).ok
    if kind ~= 'none' and kind ~= 'string' and kind ~= 'zset' then
      fail('WEIRSTATE the key of the state holds something else')
    end
    redis.call('DEL', KEYS[1])
    if kind ~= 'zset' then
      redis.call('DEL', state)
      return 0
    end
    local some = redis.call('ZRANGE', state, 0, 999)
    for _, client in ipairs(some) do
      redis.call('DEL', KEYS[1] .. ':client:' .. client)
      redis.call('ZREM', state, client)
    end
    return redis.call('ZCARD', state)
  end

  -- The names of limits, in a sorted set of their own: register NAME, unregister NAME, list
  -- [AFTER [COUNT]].
  local function limitname()
    local name = args[2] or ''
    if not string.find(name, '^[a-z0-9][a-z0-9._-]*$') or #name > 128 then
      fail('WEIRARG a name has up to 128 lower-case letters, digits, dots, dashes and underscores')
    end
    return name
  end

  return ({
    init = init,
    define = redefine,
    inspect = inspect,
    clients = clients,
    delete = delete,
    register = function() return redis.call('ZADD', KEYS[1], 0, limitname()) end,
    unregister = function() return redis.call('ZREM', KEYS[1], limitname()) end,
    list = function()
      local after = (args[2] or '') == '' and '-' or '(' .. limitname()
      return redis.call('ZRANGEBYLEX', KEYS[1], after, '+', 'LIMIT', 0, digits(whole('the count', args[3] or '100', 1, 1000)))
    end,
  })[name]
end

local operation
if args[1] == 'take' or args[1] == 'peek' then
  operation = function() return take(args[1] == 'take' and 0 or 1) end
else
  operation = other(args[1] or '')
end
if not operation or not KEYS[1] then
  return redis.error_reply('WEIRARG the operations are init, take, peek, inspect, clients, delete, register, unregister, list; the first key is the limit')
end
local ok, answer = pcall(operation)
if not ok then
  local text = failure or type(answer) == 'table' and answer.err or tostring(answer)
  return redis.error_reply(string.find(text, '^%u+ ') and text or 'WEIRSCRIPT ' .. text)
end
if packed then
  return cmsgpack.pack(answer)
end
return answer
end
return named()
