-- Charges in the order of their times, for SlidingWindow and SlidingLog. A state is the latest promised
-- time in the future, or -1; of a SlidingLog whose newest charge was given back, the reading at which
-- that had been made, or -1; and for each charge its time and its count.

-- list_leading is how many of the first charges have a time that is not above a bound.
CREATE OR REPLACE FUNCTION weir.list_leading(s numeric[], bound numeric) RETURNS integer
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  low integer := 0;
  high integer := (cardinality(s) - 2) / 2 + 1;
  step integer := 1;
  i integer;
BEGIN
  WHILE high - low > 1 LOOP -- it is fast if they are few
    i := low + step;
    IF i >= high THEN
      i := (low + high) / 2;
      step := high; -- from here on by halves
    END IF;
    IF s[1 + 2 * i] <= bound THEN
      low := i;
      step := step * 2;
    ELSE
      high := i;
      step := high;
    END IF;
  END LOOP;
  RETURN low;
END $weir$;

-- list_sum is the sum of the counts from the i-th charge on.
CREATE OR REPLACE FUNCTION weir.list_sum(s numeric[], i integer) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  sum numeric := 0;
BEGIN
  i := 2 + 2 * i;
  WHILE i <= cardinality(s) LOOP
    sum := sum + s[i];
    i := i + 2;
  END LOOP;
  RETURN sum;
END $weir$;

-- list_freeing is the time of the charge whose leaving, with those before it, takes at least an amount
-- off the sum.
CREATE OR REPLACE FUNCTION weir.list_freeing(s numeric[], amount numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  sum numeric := 0;
  i integer := 4;
BEGIN
  WHILE i <= cardinality(s) LOOP
    sum := sum + s[i];
    IF sum >= amount THEN
      RETURN s[i-1];
    END IF;
    i := i + 2;
  END LOOP;
  RETURN 0;
END $weir$;

-- list_newest is the time of the newest charge; null without one.
CREATE OR REPLACE FUNCTION weir.list_newest(s numeric[]) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF cardinality(s) > 2 THEN
    RETURN s[cardinality(s)-1];
  END IF;
  RETURN NULL;
END $weir$;

-- list_dropped returns the state without its first n charges.
CREATE OR REPLACE FUNCTION weir.list_dropped(s numeric[], n integer) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF n = 0 THEN
    RETURN s;
  END IF;
  RETURN s[1:2] || s[3+2*n:];
END $weir$;

-- list_altered changes the count of the i-th charge. A charge with nothing left is removed.
CREATE OR REPLACE FUNCTION weir.list_altered(s numeric[], i integer, by numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s[2+2*i] + by = 0 THEN
    RETURN s[:2*i] || s[3+2*i:];
  END IF;
  s[2+2*i] := s[2+2*i] + by;
  RETURN s;
END $weir$;

-- list_inserted returns the state with another charge before the i-th.
CREATE OR REPLACE FUNCTION weir.list_inserted(s numeric[], i integer, t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  RETURN s[:2*i] || ARRAY[t, cost] || s[1+2*i:];
END $weir$;

-- list_promised returns the state with another latest promise.
CREATE OR REPLACE FUNCTION weir.list_promised(s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  s[1] := t;
  RETURN s;
END $weir$;
