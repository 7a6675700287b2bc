-- FixedWindow. Parameters: 5 type (0 epoch, 1 first, 2 calendar), 6 limit, 7 length, 8 the identity of
-- the calendar, and from 9 on the windows that the caller sent: day, beginning and end of each. A state
-- is the latest window with a count, that count, the latest promised time, -1 for none, and with a
-- calendar the end of the window as known at the charge. A window is identified by the time at which
-- it begins, or in a calendar by its first day, as days since 1970-01-01: a date and not a moment, so
-- that other time zone data do not change the identity. See fixedWindowRule in the Go package.

-- fixed_frame returns the window that contains t, and its end.
CREATE OR REPLACE FUNCTION weir.fixed_frame(p numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  i integer := 9;
BEGIN
  IF p[5] = 1 THEN
    RETURN ARRAY[t, least(t + p[7], 9007199254740991)];
  ELSIF p[5] = 0 THEN
    RETURN ARRAY[t - mod(t, p[7]), least(t - mod(t, p[7]) + p[7], 9007199254740991)];
  END IF;
  WHILE i < cardinality(p) LOOP
    IF p[i+1] <= t AND (t < p[i+2] OR p[i+2] = 9007199254740991) THEN -- the last one contains the end of the clock
      RETURN ARRAY[p[i], p[i+2]];
    END IF;
    i := i + 3;
  END LOOP;
  RAISE EXCEPTION USING ERRCODE = 'WR002', MESSAGE = format('weir: the call lacks %s : no window at that time was sent', t);
END $weir$;

-- fixed_ends is the end of the window of a state.
CREATE OR REPLACE FUNCTION weir.fixed_ends(p numeric[], s numeric[]) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  i integer := 9;
BEGIN
  IF p[5] < 2 THEN
    RETURN least(s[1] + p[7], 9007199254740991);
  END IF;
  WHILE i < cardinality(p) LOOP
    IF p[i] = s[1] THEN
      RETURN p[i+2];
    END IF;
    i := i + 3;
  END LOOP;
  PERFORM weir.fixed_frame(p, greatest(s[4] - 1, 0));
  RAISE EXCEPTION USING ERRCODE = 'WR003', MESSAGE = 'weir: the key holds a window that its calendar does not have';
END $weir$;

-- fixed_at returns the window that counts at t, or at the latest promised time, its count, how long
-- until then, and its end. A time before the window counts in it too.
CREATE OR REPLACE FUNCTION weir.fixed_at(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  at numeric := greatest(t, s[3]);
  f numeric[] := weir.fixed_frame(p, at);
BEGIN
  IF f[1] < s[1] OR p[5] = 1 AND s[2] > 0 AND at < s[1] + p[7] THEN
    RETURN ARRAY[s[1], s[2], greatest(s[3] - t, 0), weir.fixed_ends(p, s)];
  ELSIF f[1] = s[1] THEN
    RETURN ARRAY[f[1], s[2], greatest(s[3] - t, 0), f[2]];
  END IF;
  RETURN ARRAY[f[1], 0, greatest(s[3] - t, 0), f[2]];
END $weir$;

-- fixed_count returns the count, and how long until its window. For a limit whose windows cannot be
-- known, the stored end counts.
CREATE OR REPLACE FUNCTION weir.fixed_count(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  f numeric[];
BEGIN
  IF p[5] < 2 OR cardinality(p) > 8 THEN
    f := weir.fixed_at(p, s, t);
    RETURN f[2:3];
  END IF;
  RETURN ARRAY[CASE WHEN greatest(t, s[3]) >= s[4] THEN 0 ELSE s[2] END, greatest(s[3] - t, 0)];
END $weir$;

CREATE OR REPLACE FUNCTION weir.fixed_plan(p numeric[], s numeric[], t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  f numeric[];
  wait numeric;
BEGIN
  IF s IS NULL THEN
    RETURN '{0,0}';
  END IF;
  f := weir.fixed_at(p, s, t);
  wait := f[3];
  IF f[2] > p[6] - cost THEN
    IF f[4] >= 9007199254740991 THEN
      RETURN '{-1,-1}';
    END IF;
    wait := f[4] - t;
  END IF;
  IF wait > 3155760000000000 THEN
    RETURN '{-1,-1}';
  END IF;
  RETURN ARRAY[wait, 0];
END $weir$;

-- fixed_book: a ticket is the state after the charge, the cost, and the state before.
CREATE OR REPLACE FUNCTION weir.fixed_book(p numeric[], s numeric[], t numeric, due numeric, cost numeric) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.booked;
  before numeric[] := s;
  f numeric[];
BEGIN
  IF s IS NULL THEN
    f := weir.fixed_frame(p, t);
    before := ARRAY[f[1], 0, -1, f[2]];
  END IF;
  due := greatest(due, before[3]);
  f := weir.fixed_at(p, before, due);
  r.s := ARRAY[f[1], least(f[2] + cost, 9007199254740991), CASE WHEN due > t THEN due ELSE -1 END, f[4]];
  r.ticket := r.s || cost || before;
  r.inexact := 0;
  RETURN r;
END $weir$;

-- fixed_refund lowers the count of the charge's window while it is open. If nothing was charged since,
-- the state is as it was before.
CREATE OR REPLACE FUNCTION weir.fixed_refund(s numeric[], ticket numeric[], amount numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s[1] <> ticket[1] THEN
    RETURN s;
  ELSIF amount = ticket[5] AND s[2] = ticket[2] AND s[3] = ticket[3] THEN
    RETURN ticket[6:9];
  END IF;
  s[2] := greatest(s[2] - amount, 0);
  RETURN s;
END $weir$;

-- fixed_giveback lowers the count of the current window, or of the one of promised work.
CREATE OR REPLACE FUNCTION weir.fixed_giveback(p numeric[], s numeric[], t numeric, amount numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  f numeric[] := weir.fixed_at(p, s, t);
BEGIN
  IF f[1] = s[1] THEN
    s[2] := greatest(f[2] - amount, 0);
  END IF;
  RETURN s;
END $weir$;

CREATE OR REPLACE FUNCTION weir.fixed_look(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  f numeric[];
  reset numeric;
BEGIN
  IF s IS NULL THEN
    RETURN ARRAY[p[6], 0];
  END IF;
  f := weir.fixed_at(p, s, t);
  reset := f[3];
  IF f[2] > 0 THEN
    reset := greatest(reset, f[4] - t);
  END IF;
  IF f[3] > 0 THEN
    RETURN ARRAY[0, reset];
  END IF;
  RETURN ARRAY[greatest(p[6] - f[2], 0), reset];
END $weir$;

-- fixed_convert keeps the count. With other windows, it counts in the window of now, or of the latest
-- promised time. Null: the limit becomes one of another algorithm.
CREATE OR REPLACE FUNCTION weir.fixed_convert(p numeric[], s numeric[], q numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  c numeric[];
  f numeric[];
BEGIN
  IF (p[5] = 1) <> (q[5] = 1) THEN
    RETURN NULL;
  ELSIF p[5] = q[5] AND p[7] = q[7] AND p[8] = q[8] THEN
    RETURN s;
  END IF;
  c := weir.fixed_count(p, s, t);
  f := weir.fixed_frame(q, t + c[2]);
  RETURN ARRAY[f[1], c[1], s[3], f[2]];
END $weir$;
