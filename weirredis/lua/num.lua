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
