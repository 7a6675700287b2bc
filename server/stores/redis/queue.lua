-- The queue of a room: state.go, function by function. All keys are in one slot. KEYS: the state of
-- the room; the waiting visitors by place, and by the time until which they may stay silent; the
-- visitors inside, by the time until which they may stay silent, and by the ends of their sessions.
-- Numbers are whole and below 2^53.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local about, line, lapses, inside, ends = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- The numbers of the room: the bucket lets n in per so many microseconds, and burst at once.
local n, per, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local room, idle, session = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local enter, lapse, capacity = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local patience, gather, window, most = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local opens, paused = tonumber(ARGV[14]), tonumber(ARGV[15])
-- The question.
local id, held, place = ARGV[16], ARGV[17], tonumber(ARGV[18])
local ending, started, kept = tonumber(ARGV[19]), ARGV[20], ARGV[21] == '1'
local entering, joining, lot = ARGV[22] == '1', ARGV[23] == '1', tonumber(ARGV[24])

local function text(x) return string.format('%.0f', x) end

local S = {}
do
  local names = {'now', 'waited', 'sweep', 'born', 'hold', 'last', 'full', 'rest', 'n', 'per', 'since', 'start', 'before', 'count', 'called', 'behind', 'further', 'paused'}
  local values = redis.call('HMGET', about, unpack(names))
  for i, name in ipairs(names) do
    S[name] = tonumber(values[i] or 0) or 0
  end
end
if S.born == 0 then
  S.born, S.now = now, now
end
-- The room's time goes on where the server's clock steps back: see behind.go.
if now >= S.now then
  S.behind, S.further = 0, 0
elseif S.behind > 0 and now + S.behind >= S.now then
  now, S.further = now + S.behind, 0
elseif S.further > 0 and now + S.further >= S.now then
  now = now + S.further
else
  local back = S.now - now
  if S.further > 0 then
    S.behind, S.further = S.further, back
  elseif S.behind > 0 then
    S.further = back
  else
    S.behind = back
  end
  now = S.now
end
if now > S.now then
  S.waited = S.waited + math.min(now - S.now, patience)
  S.now = now
end
now = S.now

-- Another rate: what was used stays used, rounded up to a microsecond of it; also what is more than there may be now, so that two gateways with
-- different policies, as while one is put in force, give nothing away.
if S.n ~= n or S.per ~= per then
  if S.n > 0 and S.full >= now then
    local used = (S.full - now) * S.n + S.rest
    local whole = math.min(math.floor(used / S.per), math.floor(4503599627370496 / per))
    S.full = now + math.floor(whole * per / n) + math.ceil((used % S.per) / S.per * per / n)
    S.rest = (whole * per) % n
  end
  S.n, S.per, S.called = n, per, now -- the new rate is not that of the time before
end
if S.paused ~= paused then
  S.paused, S.called = paused, now
end

local lapsed, missed, left = 0, 0, 0

-- Waiting visitors who have not polled for too long.
if S.waited >= S.sweep then
  local gone = redis.call('ZRANGEBYSCORE', lapses, '-inf', text(S.waited), 'LIMIT', 0, 1000)
  if #gone > 0 then
    redis.call('ZREM', line, unpack(gone))
    redis.call('ZREM', lapses, unpack(gone))
    lapsed = #gone
  end
  S.sweep = S.waited + 1000000
end
local waiting, within = redis.call('ZCARD', line), redis.call('ZCARD', inside)

-- Lets go of those inside whose time is over at a moment. soonest is when the next one's is.
local soonest = tonumber(redis.call('ZRANGE', inside, 0, 0, 'WITHSCORES')[2] or math.huge)
local function expire(at)
  while soonest <= at do
    local gone = redis.call('ZRANGEBYSCORE', inside, '-inf', text(at), 'LIMIT', 0, 1000)
    redis.call('ZREM', inside, unpack(gone))
    local entered = redis.call('HDEL', ends, unpack(gone))
    left, missed, within = left + entered, missed + #gone - entered, within - #gone
    soonest = tonumber(redis.call('ZRANGE', inside, 0, 0, 'WITHSCORES')[2] or math.huge)
  end
end

local function crowded() return room > 0 and within >= room end

-- What the bucket is after one more at a moment, or nil and when there is one.
local function token(at)
  local full, rest = S.full, S.rest
  if full < at then
    full, rest = at, 0
  end
  full, rest = full + math.floor(per / n), rest + per % n
  if rest >= n then
    full, rest = full + 1, rest - n
  end
  local due = full - math.floor(burst * per / n)
  if rest > (burst * per) % n then
    due = due + 1
  end
  if due <= at then
    return full, rest
  end
  return nil, due
end

local function roll()
  local k = math.floor((now - S.start) / window)
  if k > 0 then
    S.before = k == 1 and S.count or 0
    S.count = 0
    S.start = S.start + k * window
  end
end

local function advance()
  local at = math.max(S.called, now - patience, S.hold, opens)
  if paused == 1 then
    at = math.max(at, now + 1)
  end
  for _ = 1, most do
    expire(math.min(at, now))
    if waiting == 0 then
      break
    end
    local first, taken = redis.call('ZRANGE', line, 0, 0)[1], true
    if tonumber(redis.call('ZSCORE', lapses, first) or 0) <= S.waited then
      lapsed = lapsed + 1
    elseif at > now then
      break
    elseif crowded() then
      at, taken = soonest, false
    else
      local full, rest = token(at)
      if full then
        S.full, S.rest = full, rest
        redis.call('ZADD', inside, text(now + enter), first)
        within, soonest = within + 1, math.min(soonest, now + enter)
        if S.since > 0 then
          roll()
          S.count = S.count + 1
        end
      else
        at, taken = rest, false
      end
    end
    if taken then
      redis.call('ZREM', line, first)
      redis.call('ZREM', lapses, first)
      waiting = waiting - 1
    end
  end
  if waiting == 0 then
    at = now
  end
  S.called = math.min(at, now)
  expire(now)
end

-- Puts the visitor into the line, or returns true where it is full.
local function join(at)
  if waiting >= capacity then
    return true
  end
  S.last = math.max(S.last, at)
  redis.call('ZADD', line, text(at), id)
  redis.call('ZADD', lapses, text(S.waited + lapse), id)
  waiting = waiting + 1
end

local function leave()
  redis.call('ZREM', line, id)
  redis.call('ZREM', lapses, id)
  waiting = waiting - 1
end

-- The place of a visitor by lot.
local function drawn()
  return (opens > 0 and opens or now) - math.min(math.max(lot, 1), 3600000000)
end

advance()
local full = false
do
  local known = redis.call('ZSCORE', inside, id) and 'inside'
  if not known then
    local until_ = redis.call('ZSCORE', lapses, id)
    if until_ and tonumber(until_) <= S.waited then
      leave()
      lapsed = lapsed + 1
    elseif until_ then
      known = 'line'
    end
  end
  local lost = started ~= text(S.born) or kept
  if held == '2' and lost and ending > now and known ~= 'inside' then
    if known then
      leave()
    end
    redis.call('ZADD', inside, text(math.min(now + idle, ending)), id)
    redis.call('HSET', ends, id, text(ending))
    within, soonest = within + 1, math.min(soonest, now + idle, ending)
  elseif known then -- nothing to do
  elseif held == '1' and lost then
    if started ~= text(S.born) and started ~= '0' then
      S.hold = math.max(S.hold, S.born + gather)
    end
    full = join((now < opens or place == 0) and drawn() or math.min(place, now))
  elseif joining and now < opens then
    full = join(drawn())
  elseif joining or waiting == 0 and now >= math.max(S.hold, opens) and paused == 0 and not crowded() and token(now) then
    full = join(math.max(now, S.last + 1))
  end
end
advance()
if waiting == 0 or now < opens then
  S.since, S.start, S.before, S.count = 0, 0, 0, 0
elseif S.since == 0 then
  S.since, S.start, S.before, S.count = now, now, 0, 0
end

-- What becomes of the visitor: 0 outside, 1 waiting, 2 called, 3 inside, 4 there is no place.
local state, at, ahead, stop, entered = 0, 0, 0, 0, 0
if redis.call('ZSCORE', inside, id) then
  local session_end = redis.call('HGET', ends, id)
  if session_end then
    state, stop = 3, tonumber(session_end)
  elseif entering then
    state, stop, entered = 3, now + session, 1
    redis.call('HSET', ends, id, text(stop))
  else
    state = 2
  end
  if state == 3 and entering then
    redis.call('ZADD', inside, text(math.min(now + idle, stop)), id)
  end
else
  local score = redis.call('ZSCORE', line, id)
  if score then
    state, at, ahead = 1, tonumber(score), redis.call('ZRANK', line, id)
    redis.call('ZADD', lapses, text(S.waited + lapse), id)
  end
end
if full then
  state = 4
end
local counted, span = 0, 0
if S.since > 0 then
  roll()
  counted, span = S.before + S.count, now - math.max(S.since, S.start - window)
end

local fields = {}
for name, value in pairs(S) do
  fields[#fields + 1] = name
  fields[#fields + 1] = text(value)
end
redis.call('HSET', about, unpack(fields))
local keep = text(math.ceil((math.max(session, idle, enter, lapse) + gather) / 1000) + 3600000)
for i = 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], keep)
end
local reply = {state, at, ahead, waiting, within, counted, span, stop, S.born, now, entered, lapsed, missed, left}
for i = 1, #reply do
  reply[i] = text(reply[i])
end
return table.concat(reply, ' ')
