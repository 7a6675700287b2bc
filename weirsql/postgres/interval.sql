-- IntervalBucket. Parameters: 5 size, 6 refill, 7 the length of a step. A state is the tokens, the time
-- of the last counted step, the time of the charge that began these steps, and the latest promised
-- time, -1 for none. Tokens below 0 are a debt. See intervalBucketRule in the Go package.
--
-- While reservations are outstanding, it goes on with a list: the latest number of a reservation, and
-- for each outstanding one, oldest first: its number; the time after which it is final; and the fewest
-- tokens that any later charge found lacking, 2^53-1 without a later one. The number is the time of its
-- charge, or the next free one. weirtest.Versions is the model of this.

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

-- interval_state is a state with a list. One without reservations stays while numbers are ahead of the
-- clock, so that numbers are unique.
CREATE OR REPLACE FUNCTION weir.interval_state(s numeric[], l numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF cardinality(l) > 1 OR l[1] >= t THEN
    RETURN s[1:4] || l;
  END IF;
  RETURN s[1:4];
END $weir$;

-- interval_book: a ticket is the state after the charge, the cost, and the state before. That of a
-- reservation in the list also has when its work goes, and its number. keeps is as in bucket_book.
CREATE OR REPLACE FUNCTION weir.interval_book(p numeric[], s numeric[], t numeric, due numeric, cost numeric, keeps integer) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.booked;
  before numeric[] := coalesce(s, ARRAY[p[5], t, t, -1]);
  b numeric[];
  l numeric[];
  least_ numeric;
  i integer := 6;
BEGIN
  due := greatest(due, before[4]);
  b := weir.interval_stepped(p, before[1], before[2], due);
  r.s := ARRAY[greatest(b[1] - cost, p[5] - 9007199254740991), b[2],
    CASE WHEN b[1] = p[5] THEN b[2] ELSE before[3] END, CASE WHEN due > t THEN due ELSE -1 END];
  r.ticket := r.s || cost || before[1:4];
  r.inexact := 0;
  IF keeps > 0 OR cardinality(before) > 4 THEN
    l := ARRAY[coalesce(before[5], 0)];
    WHILE i < cardinality(before) LOOP
      least_ := least(before[i+2], p[5] - b[1]);
      -- A charge that goes at once and finds a full bucket ends all reservations; one that goes later
      -- may be given back before.
      IF (b[1] < p[5] OR due > t) AND NOT (keeps > 0 AND before[i+1] < t) THEN
        l := l || ARRAY[before[i], before[i+1], least_];
      END IF;
      i := i + 3;
    END LOOP;
    IF keeps > 0 AND cardinality(l) < 1 + 3 * 256 THEN
      l[1] := greatest(t, l[1] + 1);
      due := greatest(due, t);
      l := l || ARRAY[l[1], least(due + (2 - keeps) * 900000000, 9007199254740991), 9007199254740991];
      r.ticket := r.ticket || ARRAY[due, l[1]];
    ELSIF keeps > 0 THEN
      r.inexact := 1;
    END IF;
    r.s := weir.interval_state(r.s, l, t);
  END IF;
  RETURN r;
END $weir$;

-- interval_without is the list of a state without a reservation, after what is given back: an amount at
-- most, where so much lacks. Null if the reservation is not in the list.
CREATE OR REPLACE FUNCTION weir.interval_without(s numeric[], id numeric, amount numeric, lacks numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  i integer := 6;
  found integer;
  given numeric;
  most numeric;
  m numeric;
  l numeric[] := s[5:5];
BEGIN
  WHILE i < cardinality(s) LOOP
    IF s[i] = id THEN
      found := i;
      most := s[i+2];
      given := greatest(least(amount, most, lacks), 0);
    END IF;
    i := i + 3;
  END LOOP;
  IF found IS NULL THEN
    RETURN NULL;
  END IF;
  i := 6;
  WHILE i < cardinality(s) LOOP
    m := s[i+2];
    IF i < found AND amount > 0 AND most < 9007199254740991 THEN
      m := least(m, greatest(most - given, 0));
    ELSIF i > found AND m < 9007199254740991 THEN
      m := greatest(m - given, 0);
    END IF;
    IF i <> found THEN
      l := l || ARRAY[s[i], s[i+1], m];
    END IF;
    i := i + 3;
  END LOOP;
  RETURN given || l;
END $weir$;

-- interval_settled ends a reservation that gives nothing back.
CREATE OR REPLACE FUNCTION weir.interval_settled(s numeric[], ticket numeric[]) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  l numeric[];
BEGIN
  IF cardinality(ticket) = 11 AND cardinality(s) > 4 THEN
    l := weir.interval_without(s, ticket[11], 0, 0);
  END IF;
  IF l IS NULL THEN
    RETURN s;
  END IF;
  RETURN s[1:4] || l[2:];
END $weir$;

-- interval_refund gives back exactly what a reservation of the list still takes: at most what every
-- later charge found lacking. Another charge gives back what the steps since have not made up for, and
-- nothing if the bucket was full since. If nothing was charged since, the state is as it was before.
CREATE OR REPLACE FUNCTION weir.interval_refund(p numeric[], s numeric[], t numeric, ticket numeric[], amount numeric) RETURNS weir.refunded
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.refunded;
  b numeric[] := weir.interval_at(p, s, t);
  listed boolean := cardinality(ticket) = 11;
  final boolean := false;
  l numeric[] := s[5:];
  i integer := 4;
BEGIN
  r.s := s;
  r.expired := false;
  IF listed THEN
    final := ticket[10] + 900000000 < t;
    r.expired := final AND b[1] < p[5];
    l := weir.interval_without(s, ticket[11], CASE WHEN final THEN 0 ELSE amount END, p[5] - b[1]);
    IF l IS NULL THEN
      RETURN r;
    ELSIF final THEN
      r.s := weir.interval_state(s, l[2:], t);
      RETURN r;
    END IF;
  END IF;
  IF amount = ticket[5] AND s[1:2] = ticket[1:2] AND s[4] = ticket[4] AND (listed OR s[3] = ticket[3]) THEN
    IF listed THEN
      l := weir.interval_without(s, ticket[11], 0, 0);
      l := l[2:];
    END IF;
    r.s := ticket[6:9] || l;
    RETURN r;
  ELSIF listed THEN
    amount := l[1];
    l := l[2:];
  ELSE
    IF s[3] <> ticket[3] OR b[1] = p[5] THEN
      RETURN r;
    END IF;
    IF b[2] > ticket[2] THEN
      amount := greatest(amount - div(b[2] - ticket[2], p[7]) * p[6], 0);
    END IF;
    amount := least(amount, p[5] - b[1]);
    WHILE i <= cardinality(l) LOOP -- each later charge found at most that much less
      IF l[i] < 9007199254740991 THEN
        l[i] := greatest(l[i] - amount, 0);
      END IF;
      i := i + 3;
    END LOOP;
  END IF;
  IF listed AND amount = 0 THEN
    r.s := weir.interval_state(s, l, t);
  ELSE
    r.s := weir.interval_state(ARRAY[b[1] + amount, b[2], s[3], s[4]], l, t);
  END IF;
  RETURN r;
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
  s := ARRAY[q[5] - (p[5] - b[1]), b[2], least(s[3], b[2]), s[4]] || s[5:];
  IF p[6:7] <> q[6:7] THEN -- what is lacking may have come at the other rate
    RETURN s[1:4];
  END IF;
  RETURN s;
END $weir$;
