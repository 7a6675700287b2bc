-- SlidingWindow. Parameters: 5 limit, 6 the limit of a slot, 7 slots, 8 the width of a slot. The times
-- of charges are slot numbers, each with the count of its slot, for used slots only. As in the ring of
-- the Go package, a slot stays until it is overwritten by a slot with the same number modulo the number
-- of slots. It counts again if everything later is given back and the clock is set back. If a slot left
-- the window a whole window ago, the state has been idle in between, so the slot is removed.

-- window_at is the slot that counts at t, or at the latest promised time, and how long that lies
-- ahead. A reading before the newest slot counts in that slot.
CREATE OR REPLACE FUNCTION weir.window_at(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN ARRAY[div(t, p[8]), 0];
  END IF;
  RETURN ARRAY[greatest(div(greatest(t, s[1]), p[8]), weir.list_newest(s)), greatest(s[1] - t, 0)];
END $weir$;

-- window_totals is the sum of the counts of the window that ends with a slot, none before the newest;
-- and the count of that slot.
CREATE OR REPLACE FUNCTION weir.window_totals(p numeric[], s numeric[], slot numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN '{0,0}';
  END IF;
  RETURN ARRAY[weir.list_sum(s, weir.list_leading(s, slot - p[7]) + 1),
    CASE WHEN weir.list_newest(s) = slot THEN s[cardinality(s)] ELSE 0 END];
END $weir$;

CREATE OR REPLACE FUNCTION weir.window_plan(p numeric[], s numeric[], t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  at numeric[] := weir.window_at(p, s, t);
  sums numeric[] := weir.window_totals(p, s, at[1]);
  slot numeric := at[1];
BEGIN
  IF sums[1] > p[5] - cost THEN
    slot := weir.list_freeing(s, weir.list_sum(s, 1) - p[5] + cost) + p[7];
  ELSIF sums[2] > p[6] - cost THEN
    slot := at[1] + 1;
  END IF;
  IF slot > at[1] THEN
    RETURN ARRAY[weir.within(greatest(slot * p[8] - t, 0)), 0];
  END IF;
  RETURN ARRAY[weir.within(at[2]), 0];
END $weir$;

-- window_book: a ticket is the slot, the cost, the latest promise before and after, the count of the
-- slot just after, and the slot that was overwritten, with its count.
CREATE OR REPLACE FUNCTION weir.window_book(p numeric[], s numeric[], t numeric, due numeric, cost numeric) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.booked;
  slot numeric;
  after numeric;
  n integer;
  i integer := 1;
BEGIN
  s := coalesce(s, '{-1,-1}');
  due := greatest(due, s[1]);
  slot := (weir.window_at(p, s, due))[1];
  after := CASE WHEN due > t THEN due ELSE -1 END;
  s := weir.list_dropped(s, weir.list_leading(s, div(t, p[8]) - 2 * p[7]));
  r.inexact := 0;
  IF weir.list_sum(s, 1) + cost > 9007199254740991 THEN
    r.s := ARRAY[after, -1, slot, 9007199254740991];
    r.ticket := '{}';
    RETURN r;
  END IF;
  r.ticket := ARRAY[slot, cost, s[1], after, cost];
  n := (cardinality(s) - 2) / 2;
  IF weir.list_newest(s) = slot THEN
    s := weir.list_altered(s, n, cost);
    r.ticket[5] := s[cardinality(s)];
  ELSE
    WHILE i <= n AND s[1+2*i] <= slot - p[7] LOOP -- those after are of other places in the ring
      IF mod(slot - s[1+2*i], p[7]) = 0 THEN
        r.ticket := r.ticket || s[1+2*i:2+2*i];
        s := weir.list_altered(s, i, -s[2+2*i]);
        EXIT;
      END IF;
      i := i + 1;
    END LOOP;
    s := s || ARRAY[slot, cost];
  END IF;
  r.s := weir.list_promised(s, after);
  RETURN r;
END $weir$;

-- window_refund lowers the count of the slot while it is in the ring. If it was the latest charge, the
-- promise before it is the latest again, and the overwritten slot is restored.
CREATE OR REPLACE FUNCTION weir.window_refund(s numeric[], ticket numeric[], amount numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  i integer := weir.list_leading(s, ticket[1]);
  count numeric;
  latest boolean;
BEGIN
  IF i = 0 OR s[1+2*i] <> ticket[1] THEN
    RETURN s;
  END IF;
  count := s[2+2*i];
  latest := s[1] = ticket[4] AND count = ticket[5] AND 2 + 2 * i = cardinality(s);
  s := weir.list_altered(s, i, -least(amount, count));
  IF NOT latest OR amount <> ticket[2] THEN
    RETURN s;
  END IF;
  IF cardinality(ticket) = 7 AND amount = count THEN
    s := weir.list_inserted(s, weir.list_leading(s, ticket[6]) + 1, ticket[6], ticket[7]);
  END IF;
  RETURN weir.list_promised(s, ticket[3]);
END $weir$;

CREATE OR REPLACE FUNCTION weir.window_look(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  at numeric[] := weir.window_at(p, s, t);
  sums numeric[] := weir.window_totals(p, s, at[1]);
  reset numeric := at[2];
BEGIN
  IF cardinality(s) > 2 THEN
    reset := greatest(reset, least((weir.list_newest(s) + p[7]) * p[8], 9007199254740991) - t);
  END IF;
  IF at[2] > 0 THEN
    RETURN ARRAY[0, reset];
  END IF;
  RETURN ARRAY[greatest(least(p[5] - sums[1], p[6] - sums[2]), 0), reset];
END $weir$;

-- window_convert: the counts move to the slots of their latest possible times, if the slots have
-- another length or number.
CREATE OR REPLACE FUNCTION weir.window_convert(p numeric[], s numeric[], q numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r numeric[] := ARRAY[s[1], -1];
  i integer;
  j integer;
  latest numeric;
  slot numeric;
BEGIN
  IF p[8] = q[8] AND p[7] = q[7] THEN
    RETURN s;
  END IF;
  i := weir.list_leading(s, (weir.window_at(p, s, t))[1] - p[7]) + 1;
  WHILE 2 + 2 * i <= cardinality(s) LOOP
    latest := (s[1+2*i] + 1) * p[8] - 1;
    IF s[1+2*i] = div(t, p[8]) THEN
      latest := least(latest, greatest(t, s[1]));
    END IF;
    slot := div(latest, q[8]);
    IF weir.list_newest(r) = slot THEN
      r[cardinality(r)] := r[cardinality(r)] + s[2+2*i];
    ELSE
      j := 1;
      WHILE 2 + 2 * j <= cardinality(r) LOOP -- the slot of the same place in the ring
        IF mod(slot - r[1+2*j], q[7]) = 0 THEN
          r := weir.list_altered(r, j, -r[2+2*j]);
          EXIT;
        END IF;
        j := j + 1;
      END LOOP;
      r := r || ARRAY[slot, s[2+2*i]];
    END IF;
    i := i + 1;
  END LOOP;
  RETURN r;
END $weir$;
