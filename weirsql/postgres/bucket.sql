-- TokenBucket, LeakyBucket and SmoothBursty: the generic cell rate algorithm (GCRA). All spans and
-- times of a bucket are in ticks, exactly: one clock unit brings n ticks, one token costs p.
--
-- Parameters: 5 type (0 token, 1 leaky, 2 owing), 6 n, 7 p, 8 the ticks of a full bucket, 9 those
-- that pass without a delay, 10 those missing at first, 11 size, 12 the parameter of the type.
--
-- A state is Z, the time at which the bucket is full again, and the total of what was given back.
-- While reservations are outstanding, it goes on with Z before the charges of a list, and the charges
-- since the oldest outstanding reservation, four numbers each: the identity of an outstanding
-- reservation, or -1; 1 if it is final once its work may go; the time at which its work goes; the cost.
-- Each charge sets Z to max(Z, that time) + cost. Giving a reservation back repeats the others.
-- Neighbours that are not outstanding are joined, so the list has at most twice as many charges as
-- reservations. weirtest.Versions is the model of this.

CREATE OR REPLACE FUNCTION weir.bucket_contact(p numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF p[10] > 0 THEN
    RETURN ARRAY[least(t * p[6] + p[10], 9007199254740991 * p[6]), 0];
  END IF;
  RETURN NULL;
END $weir$;

CREATE OR REPLACE FUNCTION weir.bucket_plan(p numeric[], s numeric[], t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  n numeric := p[6];
  used numeric := 0;
  after numeric;
BEGIN
  IF s IS NOT NULL THEN
    used := greatest(s[1] - t * n, 0);
  END IF;
  after := used + cost * p[7];
  IF t + div(after + n - 1, n) > 9007199254740991 THEN
    RETURN '{-1,-1}';
  ELSIF p[5] = 0 THEN
    RETURN ARRAY[weir.within(div(greatest(after - p[8], 0) + n - 1, n)), 0];
  ELSIF p[5] = 1 THEN
    RETURN ARRAY[weir.within(div(greatest(used - p[9], 0) + n - 1, n)), weir.within(div(greatest(after - p[8], 0) + n - 1, n))];
  END IF;
  RETURN ARRAY[weir.within(div(greatest(used - p[9], 0) + n - 1, n)), 0];
END $weir$;

-- bucket_relist adds a charge to a list, which begins with Z and with Z before its charges.
CREATE OR REPLACE FUNCTION weir.bucket_relist(l numeric[], id numeric, final numeric, goes numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  k integer;
BEGIN
  IF NOT goes < l[1] THEN -- it found the bucket full: nothing before it matters any more
    l := ARRAY[goes, goes];
  END IF;
  k := cardinality(l);
  l[1] := l[1] + cost;
  IF id < 0 AND k = 2 THEN
    l[2] := l[1];
  ELSIF id < 0 AND l[k-3] < 0 THEN -- the two have the effect of one
    l[k-1] := greatest(l[k-1], goes - l[k], 0);
    l[k] := l[k] + cost;
  ELSE
    l := l || ARRAY[id, final, goes, cost];
  END IF;
  RETURN l;
END $weir$;

-- bucket_repeat makes the charges of a state's list again, from z on. It returns how many
-- reservations are outstanding, whether the one with an identity was found, and the new list. By mode:
-- 0 changes nothing, 1 ends reservations that are final, 2 ends one, and 3 takes an amount off it.
CREATE OR REPLACE FUNCTION weir.bucket_repeat(n numeric, s numeric[], z numeric, mode integer, t numeric, id numeric, amount numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  l numeric[] := ARRAY[z, z];
  i integer := 4;
  outstanding integer := 0;
  found integer := 0;
  a numeric;
  final numeric;
  goes numeric;
  cost numeric;
  ended boolean;
BEGIN
  WHILE i < cardinality(s) LOOP
    a := s[i];
    final := s[i+1];
    goes := s[i+2];
    cost := s[i+3];
    IF a >= 0 THEN
      ended := false;
      IF mode = 1 THEN
        ended := div(goes, n) + (1 - final) * 900000000 < t;
      ELSIF mode >= 2 AND a = id THEN
        ended := true;
        found := 1;
        IF mode = 3 AND div(goes, n) + 900000000 >= t THEN
          cost := greatest(cost - amount, 0);
        END IF;
      END IF;
      IF ended THEN
        a := -1;
        final := 0;
      ELSE
        outstanding := outstanding + 1;
      END IF;
    END IF;
    IF cost > 0 THEN
      l := weir.bucket_relist(l, a, final, goes, cost);
      IF cardinality(l) = 2 OR cardinality(l) = 6 AND l[3] >= 0 AND a >= 0 THEN
        outstanding := (a >= 0)::integer;
      END IF;
    END IF;
    i := i + 4;
  END LOOP;
  RETURN ARRAY[outstanding, found]::numeric[] || l;
END $weir$;

-- bucket_state is a state of its parts. A list without charges is left out.
CREATE OR REPLACE FUNCTION weir.bucket_state(z numeric, returned numeric, l numeric[]) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF cardinality(l) > 2 THEN
    RETURN ARRAY[z, returned] || l[2:];
  END IF;
  RETURN ARRAY[z, returned];
END $weir$;

-- bucket_book: keeps is 1 for a reservation, and 2 for one that is not settled after its work may go.
-- The ticket is the state after it; of one that is in the list, also when its work goes.
CREATE OR REPLACE FUNCTION weir.bucket_book(p numeric[], s numeric[], t numeric, due numeric, cost numeric, keeps integer) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  n numeric := p[6];
  z numeric := t * n;
  returned numeric := 0;
  c numeric := cost * p[7];
  next numeric;
  r weir.booked;
  l numeric[];
  outstanding integer := 0;
  goes numeric;
  id numeric := -1;
  final numeric := 0;
BEGIN
  r.inexact := 0;
  IF s IS NOT NULL THEN
    returned := s[2];
    IF s[1] > z THEN
      z := s[1];
    END IF;
  END IF;
  next := least(z + c, 9007199254740991 * n);
  r.ticket := ARRAY[next, returned];
  IF (keeps > 0 OR cardinality(s) > 2) AND c > 0 AND next < 9007199254740991 * n THEN
    IF cardinality(s) > 2 THEN
      l := weir.bucket_repeat(n, s, s[3], CASE WHEN keeps > 0 THEN 1 ELSE 0 END, t, NULL, NULL);
      outstanding := l[1];
      l := l[3:];
    ELSE
      l := ARRAY[z, z];
    END IF;
    goes := t * n;
    IF due > t THEN
      goes := goes + greatest(z - goes - CASE WHEN p[5] = 0 THEN greatest(p[8] - c, 0) ELSE p[9] END, 0);
    END IF;
    IF keeps > 0 AND (outstanding < 256 OR z = t * n) THEN
      id := next + returned; -- it grows with each charge, and giving back does not change it
      final := keeps - 1;
      r.ticket := r.ticket || greatest(div(goes, n), 2);
    ELSIF keeps > 0 THEN
      r.inexact := 1;
    END IF;
    l := weir.bucket_relist(l, id, final, goes, c);
  END IF;
  r.s := weir.bucket_state(next, returned, l);
  RETURN r;
END $weir$;

-- bucket_settled ends a reservation that gives nothing back.
CREATE OR REPLACE FUNCTION weir.bucket_settled(p numeric[], s numeric[], ticket numeric[]) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  l numeric[];
BEGIN
  IF cardinality(ticket) = 3 AND cardinality(s) > 2 THEN
    l := weir.bucket_repeat(p[6], s, s[3], 2, 0, ticket[1] + ticket[2], 0);
    IF l[2] = 1 THEN
      RETURN weir.bucket_state(s[1], s[2], l[3:]);
    END IF;
  END IF;
  RETURN s;
END $weir$;

-- bucket_least is what is given back by the state alone: what the bucket has not refilled by itself
-- since. While work promised later still waits, only what exceeds everything charged since.
CREATE OR REPLACE FUNCTION weir.bucket_least(p numeric[], s numeric[], t numeric, ticket numeric[], amount numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  n numeric := p[6];
  used numeric := greatest(s[1] - t * n, 0);
  tail numeric := greatest(ticket[1] - t * n, 0);
  returned numeric := s[2] - ticket[2]; -- since the charge
  since numeric;
  cost numeric := amount * p[7];
  given numeric;
  passes numeric;
BEGIN
  IF amount <= 0 OR used = 0 OR tail = 0 OR returned < 0 OR returned >= 4503599627370496 * n OR used + returned < tail THEN
    RETURN 0;
  END IF;
  given := least(cost, greatest(tail - returned, 0));
  since := used + returned - tail;
  IF since > 0 THEN
    passes := CASE WHEN p[5] = 0 THEN p[8] ELSE p[9] + p[7] END;
    IF passes < used THEN
      given := least(given, greatest(least(cost, passes) - since, 0));
    END IF;
  END IF;
  RETURN given;
END $weir$;

-- bucket_refund gives back exactly what the state has because of a reservation that is in the list.
-- For another charge it goes by the state alone.
CREATE OR REPLACE FUNCTION weir.bucket_refund(p numeric[], s numeric[], t numeric, ticket numeric[], amount numeric) RETURNS weir.refunded
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  n numeric := p[6];
  r weir.refunded;
  l numeric[];
  z numeric;
  given numeric;
BEGIN
  r.s := s;
  r.expired := false;
  IF cardinality(ticket) = 3 THEN
    r.expired := amount > 0 AND ticket[3] > 1 AND ticket[3] + 900000000 < t AND t < div(s[1] + n - 1, n);
    IF cardinality(s) = 2 OR amount <= 0 THEN
      RETURN r;
    END IF;
    l := weir.bucket_repeat(n, s, s[3], 3, t, ticket[1] + ticket[2], amount * p[7]);
    IF l[2] = 0 THEN
      RETURN r;
    END IF;
    l := l[3:];
    z := l[1];
  ELSE
    given := weir.bucket_least(p, s, t, ticket, amount);
    IF given = 0 THEN
      RETURN r;
    ELSIF cardinality(s) > 2 THEN -- the charges after it say how much of that counts
      l := weir.bucket_repeat(n, s, greatest(s[3] - given, 0), 0, t, NULL, NULL);
      l := l[3:];
      z := l[1];
    ELSE
      z := greatest(s[1] - given, 0);
    END IF;
  END IF;
  z := least(greatest(z, t * n), s[1]);
  r.s := weir.bucket_state(z, s[2] + s[1] - z, l);
  RETURN r;
END $weir$;

-- bucket_reached: without debt, no more than the capacity is missing; where each charge leaves a debt,
-- no more than one permit.
CREATE OR REPLACE FUNCTION weir.bucket_reached(p numeric[], s numeric[]) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  RETURN div(greatest(s[1] - p[8] - CASE WHEN p[5] = 2 THEN p[7] ELSE 0 END, 0) + p[6] - 1, p[6]);
END $weir$;

CREATE OR REPLACE FUNCTION weir.bucket_look(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  n numeric := p[6];
  used numeric := 0;
BEGIN
  IF s IS NOT NULL THEN
    used := greatest(s[1] - t * n, 0);
  END IF;
  IF p[9] < used THEN
    RETURN ARRAY[0, div(used + n - 1, n)];
  ELSIF p[7] = 0 THEN
    RETURN ARRAY[p[11], div(used + n - 1, n)];
  END IF;
  RETURN ARRAY[least(div(greatest(least(p[8], (9007199254740991 - t) * n) - used, 0), p[7]), p[11]), div(used + n - 1, n)];
END $weir$;

CREATE OR REPLACE FUNCTION weir.bucket_spent(p numeric[], s numeric[], t numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF p[7] = 0 THEN
    RETURN 0;
  END IF;
  RETURN least(div(greatest(s[1] - t * p[6], 0) + p[7] - 1, p[7]), 9007199254740991);
END $weir$;

-- bucket_convert: used tokens stay used, at the new rate. For a bucket that allows debt, the time
-- until the next charge may go stays. Null: the limit becomes one of another algorithm.
CREATE OR REPLACE FUNCTION weir.bucket_convert(p numeric[], s numeric[], q numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  used numeric := greatest(s[1] - t * p[6], 0);
BEGIN
  IF (p[5] = 2) <> (q[5] = 2) THEN
    RETURN NULL;
  ELSIF p[5] = 2 THEN
    used := greatest(div(used * q[6] + p[6] - 1, p[6]) + (q[12] - p[12]) * q[6], 0);
    RETURN ARRAY[least(t * q[6] + used, 9007199254740991 * q[6]), 0];
  ELSIF p[6] = q[6] AND p[7] = q[7] THEN
    IF s[1] < t * p[6] THEN -- full: what came back by now does not go away again where the clock steps back
      RETURN ARRAY[t * p[6], s[2]];
    END IF;
    RETURN s;
  END IF;
  -- What was charged before cannot be given back: it may have come back at the other rate.
  RETURN ARRAY[least(t * q[6] + div(used * q[7] + p[7] - 1, p[7]), 9007199254740991 * q[6]),
    (div(s[2], 4503599627370496 * p[6]) + 1) * 4503599627370496 * q[6]];
END $weir$;
