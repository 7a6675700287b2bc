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
