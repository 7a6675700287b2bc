-- SlidingCounter. Parameters: 5 limit, 6 window. A state is the number of the current window, its
-- count, and the count of the window before. With e the time into the window of W, a cost is admitted
-- while previous*(W-e) + (current+cost)*W <= limit*W. See slidingCounterRule in the Go package.

-- counter_at returns the number of the window and both counts at t, how far t is into the window, and
-- for an earlier time how long before it: that counts as the window's beginning.
CREATE OR REPLACE FUNCTION weir.counter_at(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  here numeric := div(t, p[6]);
  into_ numeric := mod(t, p[6]);
BEGIN
  IF s IS NOT NULL THEN
    IF here < s[1] THEN
      RETURN s || ARRAY[0, s[1] * p[6] - t];
    ELSIF here = s[1] THEN
      RETURN s || ARRAY[into_, 0];
    ELSIF here - 1 = s[1] THEN
      RETURN ARRAY[here, 0, s[2], into_, 0];
    END IF;
  END IF;
  RETURN ARRAY[here, 0, 0, into_, 0];
END $weir$;

-- counter_covered is the part of the previous count that a sliding window still covers, rounded up.
CREATE OR REPLACE FUNCTION weir.counter_covered(p numeric[], c numeric[]) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  RETURN div(c[3] * (p[6] - c[4]) + p[6] - 1, p[6]);
END $weir$;

-- counter_enough is how far into a window the weighted count of the window before is down to room.
CREATE OR REPLACE FUNCTION weir.counter_enough(p numeric[], previous numeric, room numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF previous = 0 THEN
    RETURN 0;
  END IF;
  RETURN greatest(p[6] - div(room * p[6], previous), 0);
END $weir$;

CREATE OR REPLACE FUNCTION weir.counter_plan(p numeric[], s numeric[], t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  c numeric[] := weir.counter_at(p, s, t);
  room numeric := p[5] - cost;
  wait numeric := 0;
BEGIN
  IF c[2] > room THEN
    wait := c[5] + p[6] - c[4] + weir.counter_enough(p, c[2], room);
  ELSIF weir.counter_covered(p, c) > room - c[2] THEN
    wait := c[5] + weir.counter_enough(p, c[3], room - c[2]) - c[4];
  END IF;
  IF wait > 3155760000000000 OR wait > 9007199254740991 - t THEN
    RETURN '{-1,-1}';
  END IF;
  RETURN ARRAY[wait, 0];
END $weir$;

-- counter_book: a ticket is the window of the charge.
CREATE OR REPLACE FUNCTION weir.counter_book(p numeric[], s numeric[], t numeric, cost numeric) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.booked;
  c numeric[] := weir.counter_at(p, s, t);
BEGIN
  r.s := ARRAY[c[1], least(c[2] + cost, 9007199254740991), c[3]];
  r.ticket := c[1:1];
  r.inexact := 0;
  RETURN r;
END $weir$;

-- counter_refund lowers the count of the charge's window, while it is the current one or the one
-- before.
CREATE OR REPLACE FUNCTION weir.counter_refund(p numeric[], s numeric[], t numeric, ticket numeric[], amount numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  c numeric[] := weir.counter_at(p, s, t);
BEGIN
  IF c[1] <= ticket[1] THEN
    RETURN ARRAY[c[1], greatest(c[2] - amount, 0), c[3]];
  ELSIF c[1] = ticket[1] + 1 THEN
    RETURN ARRAY[c[1], c[2], greatest(c[3] - amount, 0)];
  END IF;
  RETURN s;
END $weir$;

CREATE OR REPLACE FUNCTION weir.counter_look(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  c numeric[] := weir.counter_at(p, s, t);
  reset numeric := 0;
BEGIN
  IF c[2] > 0 THEN
    reset := least(c[5] + 2 * p[6] - c[4], 9007199254740991);
  ELSIF c[3] > 0 THEN
    reset := least(c[5] + p[6] - c[4], 9007199254740991);
  END IF;
  RETURN ARRAY[greatest(p[5] - c[2] - weir.counter_covered(p, c), 0), reset];
END $weir$;

-- counter_held is what is used, also beyond the limit.
CREATE OR REPLACE FUNCTION weir.counter_held(p numeric[], s numeric[], t numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  c numeric[] := weir.counter_at(p, s, t);
BEGIN
  RETURN least(c[2] + weir.counter_covered(p, c), 9007199254740991);
END $weir$;

-- counter_convert keeps both counts; with another window, they count in the window of now and the one
-- before.
CREATE OR REPLACE FUNCTION weir.counter_convert(p numeric[], s numeric[], q numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  c numeric[];
BEGIN
  IF p[6] = q[6] THEN
    RETURN s;
  END IF;
  c := weir.counter_at(p, s, t);
  RETURN ARRAY[div(t, q[6]), c[2], c[3]];
END $weir$;
