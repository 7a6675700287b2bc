-- IntervalBucket. Parameters: 5 size, 6 refill, 7 the length of a step. A state is the tokens, the time
-- of the last counted step, the time of the charge that began these steps, and the latest promised
-- time, -1 for none. Tokens below 0 are a debt. See intervalBucketRule in the Go package.

-- interval_stepped adds the tokens of the steps up to t: it returns them, and the last step. A full
-- bucket counts from t.
CREATE OR REPLACE FUNCTION weir.interval_stepped(p numeric[], tokens numeric, anchor numeric, t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  steps numeric;
BEGIN
  IF tokens >= p[5] THEN
    RETURN ARRAY[p[5], greatest(anchor, t)];
  ELSIF t <= anchor THEN
    RETURN ARRAY[tokens, anchor];
  END IF;
  steps := div(t - anchor, p[7]);
  IF steps * p[6] >= p[5] - tokens THEN
    RETURN ARRAY[p[5], t];
  END IF;
  RETURN ARRAY[tokens + steps * p[6], anchor + steps * p[7]];
END $weir$;

-- interval_at returns the bucket at t, or at the latest promised time: its tokens, the step from which
-- they are counted, and how long until then.
CREATE OR REPLACE FUNCTION weir.interval_at(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN ARRAY[p[5], t, 0];
  END IF;
  RETURN weir.interval_stepped(p, s[1], s[2], greatest(t, s[4])) || greatest(s[4] - t, 0);
END $weir$;

-- interval_due is how long after t the missing tokens have come.
CREATE OR REPLACE FUNCTION weir.interval_due(p numeric[], lacks numeric, anchor numeric, t numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  span numeric := div(lacks + p[6] - 1, p[6]) * p[7];
BEGIN
  IF span > 9007199254740991 THEN
    RETURN 9007199254740991;
  END IF;
  RETURN least(span + anchor - t, 9007199254740991);
END $weir$;

CREATE OR REPLACE FUNCTION weir.interval_plan(p numeric[], s numeric[], t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  b numeric[] := weir.interval_at(p, s, t);
  wait numeric := b[3];
BEGIN
  IF cost > b[1] THEN
    wait := weir.interval_due(p, cost - b[1], b[2], t);
  END IF;
  IF wait > 9007199254740991 - t THEN
    RETURN '{-1,0}';
  END IF;
  RETURN ARRAY[weir.within(wait), 0];
END $weir$;

-- interval_book: a ticket is the state after the charge, the cost, and the state before.
CREATE OR REPLACE FUNCTION weir.interval_book(p numeric[], s numeric[], t numeric, due numeric, cost numeric) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.booked;
  before numeric[] := coalesce(s, ARRAY[p[5], t, t, -1]);
  b numeric[];
BEGIN
  due := greatest(due, before[4]);
  b := weir.interval_stepped(p, before[1], before[2], due);
  r.s := ARRAY[greatest(b[1] - cost, p[5] - 9007199254740991), b[2],
    CASE WHEN b[1] = p[5] THEN b[2] ELSE before[3] END, CASE WHEN due > t THEN due ELSE -1 END];
  r.ticket := r.s || cost || before;
  r.inexact := 0;
  RETURN r;
END $weir$;

-- interval_refund gives back what the steps since have not made up for. If nothing was charged since,
-- the state is as it was before. A charge from before the bucket was last full has nothing left to
-- give back.
CREATE OR REPLACE FUNCTION weir.interval_refund(p numeric[], s numeric[], t numeric, ticket numeric[], amount numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  b numeric[];
BEGIN
  IF amount = ticket[5] AND s = ticket[1:4] THEN
    RETURN ticket[6:9];
  ELSIF s[3] <> ticket[3] THEN
    RETURN s;
  END IF;
  b := weir.interval_at(p, s, t);
  IF b[1] = p[5] THEN
    RETURN s;
  END IF;
  IF b[2] > ticket[2] THEN
    amount := greatest(amount - div(b[2] - ticket[2], p[7]) * p[6], 0);
  END IF;
  RETURN ARRAY[b[1] + least(amount, p[5] - b[1]), b[2], s[3], s[4]];
END $weir$;

CREATE OR REPLACE FUNCTION weir.interval_look(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  b numeric[] := weir.interval_at(p, s, t);
  reset numeric := b[3];
BEGIN
  IF b[1] < p[5] THEN
    reset := greatest(reset, weir.interval_due(p, p[5] - b[1], b[2], t));
  END IF;
  IF b[3] > 0 THEN
    RETURN ARRAY[0, reset];
  END IF;
  RETURN ARRAY[greatest(b[1], 0), reset];
END $weir$;

-- interval_convert keeps the tokens used, and the last step. Steps of the new length that would have
-- come before the change do not count.
CREATE OR REPLACE FUNCTION weir.interval_convert(p numeric[], s numeric[], q numeric[], now numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  b numeric[] := weir.interval_at(p, s, now);
  t numeric := greatest(now, s[4]);
BEGIN
  IF b[2] < t THEN
    b[2] := t - mod(t - b[2], q[7]);
  END IF;
  RETURN ARRAY[q[5] - (p[5] - b[1]), b[2], least(s[3], b[2]), s[4]];
END $weir$;
