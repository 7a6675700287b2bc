-- What all algorithms have: each function goes on to that of the algorithm, which is parameter 1:
-- 1 bucket, 2 interval, 3 fixed, 4 counter, 5 window, 6 log. Parameter 2 is the largest cost, 3 is 1 if
-- a state is kept although it is idle, and 4 is what the limit holds.
--
-- A state is null for a key that is not known. A wait of -1 is never; 3155760000000000 are 100 years,
-- and 9007199254740991 is the end of the clock.

-- within is a wait, or never where it is beyond the horizon.
CREATE OR REPLACE FUNCTION weir.within(wait numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF wait > 3155760000000000 THEN
    RETURN -1;
  END IF;
  RETURN wait;
END $weir$;

-- calendar is the name of the calendar at the end of a limit; empty if it has none.
CREATE OR REPLACE FUNCTION weir.calendar(def text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  RETURN substr(def, strpos(def, '}') + 1);
END $weir$;

-- prepare reads a limit: the numbers of its parameters, and the name of its calendar. calendars are
-- the names of those that the caller sent, each with its windows.
CREATE OR REPLACE FUNCTION weir.prepare(def text, calendars text[]) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  n numeric[] := left(def, strpos(def, '}'))::numeric[];
  name text;
  i integer := 1;
  full_ numeric;
  passes numeric;
  missing numeric := 0;
  largest numeric;
BEGIN
  CASE n[1]
  WHEN 1 THEN -- type, n, p, size, parameter
    largest := n[5];
    IF n[2] = 2 THEN
      full_ := n[6] * n[3];
      passes := full_;
      largest := 9007199254740991;
      IF n[4] > 0 THEN
        missing := full_;
        largest := least(div(3155760000000000 * n[3], n[4]), largest);
      END IF;
    ELSE
      full_ := n[5] * n[4];
      passes := full_;
      IF n[2] = 1 THEN
        passes := n[6] * n[4];
      ELSE
        missing := n[6] * n[4];
      END IF;
    END IF;
    RETURN ARRAY[1, largest, CASE WHEN missing > 0 OR n[4] = 0 THEN 1 ELSE 0 END, n[5],
      n[2], n[3], n[4], full_, passes, missing, n[5], n[6]];
  WHEN 2 THEN -- size, refill, every
    RETURN ARRAY[2, n[2], 0, n[2]] || n[2:4];
  WHEN 3 THEN -- type, limit, length
    IF n[2] < 2 THEN
      RETURN ARRAY[3, n[3], 0, n[3]] || n[2:4] || 0::numeric;
    END IF;
    name := weir.calendar(def);
    WHILE i < cardinality(calendars) LOOP
      IF calendars[i] = name THEN
        RETURN ARRAY[3, n[3], 0, n[3], 2, n[3], 0, hashtextextended(name, 0)] || calendars[i+1]::numeric[];
      END IF;
      i := i + 2;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'WR002', MESSAGE = format('weir: the call lacks %s : the windows of this calendar were not sent', name);
  WHEN 4, 5, 6 THEN
    RETURN ARRAY[n[1], CASE WHEN n[1] = 5 THEN n[3] ELSE n[2] END, 0, n[2]] || n[2:];
  ELSE
    RAISE EXCEPTION USING ERRCODE = 'WR003', MESSAGE = format('weir: the limit %s is of a version that these functions do not know', def);
  END CASE;
END $weir$;

-- contact is the state of a key that is not known, for a limit that does not start full.
CREATE OR REPLACE FUNCTION weir.contact(p numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF p[1] = 1 THEN
    RETURN weir.bucket_contact(p, t);
  END IF;
  RETURN NULL;
END $weir$;

-- plan returns how long work of a cost would be delayed, and how long until there is room for it.
CREATE OR REPLACE FUNCTION weir.plan(p numeric[], s numeric[], t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  CASE p[1]
  WHEN 1 THEN RETURN weir.bucket_plan(p, s, t, cost);
  WHEN 2 THEN RETURN weir.interval_plan(p, s, t, cost);
  WHEN 3 THEN RETURN weir.fixed_plan(p, s, t, cost);
  WHEN 4 THEN RETURN weir.counter_plan(p, s, t, cost);
  WHEN 5 THEN RETURN weir.window_plan(p, s, t, cost);
  ELSE RETURN weir.log_plan(p, s, t, cost);
  END CASE;
END $weir$;

-- book charges a cost, for work that goes at due.
CREATE OR REPLACE FUNCTION weir.book(p numeric[], s numeric[], t numeric, due numeric, cost numeric, keeps integer) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  CASE p[1]
  WHEN 1 THEN RETURN weir.bucket_book(p, s, t, due, cost, keeps);
  WHEN 2 THEN RETURN weir.interval_book(p, s, t, due, cost, keeps);
  WHEN 3 THEN RETURN weir.fixed_book(p, s, t, due, cost);
  WHEN 4 THEN RETURN weir.counter_book(p, s, t, cost);
  WHEN 5 THEN RETURN weir.window_book(p, s, t, due, cost);
  ELSE RETURN weir.log_book(p, s, t, due, cost);
  END CASE;
END $weir$;

-- settled ends a reservation that gives nothing back.
CREATE OR REPLACE FUNCTION weir.settled(p numeric[], s numeric[], ticket numeric[]) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF p[1] = 1 THEN
    RETURN weir.bucket_settled(p, s, ticket);
  ELSIF p[1] = 2 THEN
    RETURN weir.interval_settled(s, ticket);
  END IF;
  RETURN s;
END $weir$;

-- refund gives back an amount of a charge.
CREATE OR REPLACE FUNCTION weir.refund(p numeric[], s numeric[], t numeric, ticket numeric[], amount numeric) RETURNS weir.refunded
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.refunded;
BEGIN
  r.s := s;
  r.expired := false;
  IF cardinality(ticket) > 0 THEN
    CASE p[1]
    WHEN 1 THEN r := weir.bucket_refund(p, s, t, ticket, amount);
    WHEN 2 THEN r := weir.interval_refund(p, s, t, ticket, amount);
    WHEN 3 THEN r.s := weir.fixed_refund(s, ticket, amount);
    WHEN 4 THEN r.s := weir.counter_refund(p, s, t, ticket, amount);
    WHEN 5 THEN r.s := weir.window_refund(s, ticket, amount);
    ELSE r.s := weir.log_refund(s, ticket, amount);
    END CASE;
  END IF;
  RETURN r;
END $weir$;

-- reached is a time that the key's clock had reached at the latest charge, as far as the state shows it.
CREATE OR REPLACE FUNCTION weir.reached(p numeric[], s numeric[]) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  CASE p[1]
  WHEN 1 THEN
    RETURN weir.bucket_reached(p, s);
  WHEN 2 THEN -- steps are counted up to the clock, or to a promised time
    RETURN greatest(s[2], s[4]);
  WHEN 3 THEN
    IF p[5] = 2 THEN -- the state does not show it: a window may begin later by other time zone data
      RETURN 9007199254740991;
    END IF;
    RETURN greatest(s[1], s[3]);
  WHEN 4 THEN
    RETURN least(s[1] * p[6], 9007199254740991);
  WHEN 5 THEN
    RETURN greatest(s[1], least(weir.list_newest(s) * p[8], 9007199254740991), 0);
  ELSE
    RETURN greatest(s[1], weir.list_newest(s), s[2], 0);
  END CASE;
END $weir$;

-- look returns what remains, and how long until the state is idle.
CREATE OR REPLACE FUNCTION weir.look(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  CASE p[1]
  WHEN 1 THEN RETURN weir.bucket_look(p, s, t);
  WHEN 2 THEN RETURN weir.interval_look(p, s, t);
  WHEN 3 THEN RETURN weir.fixed_look(p, s, t);
  WHEN 4 THEN RETURN weir.counter_look(p, s, t);
  WHEN 5 THEN RETURN weir.window_look(p, s, t);
  ELSE RETURN weir.log_look(p, s, t);
  END CASE;
END $weir$;

-- spent is what is used of a limit.
CREATE OR REPLACE FUNCTION weir.spent(p numeric[], s numeric[], t numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  CASE p[1]
  WHEN 1 THEN RETURN weir.bucket_spent(p, s, t);
  WHEN 2 THEN RETURN p[5] - (weir.interval_at(p, s, t))[1];
  WHEN 3 THEN RETURN (weir.fixed_count(p, s, t))[1];
  WHEN 4 THEN RETURN p[5] - (weir.counter_look(p, s, t))[1];
  WHEN 5 THEN RETURN (weir.window_totals(p, s, (weir.window_at(p, s, t))[1]))[1];
  ELSE RETURN weir.log_spent(p, s, t);
  END CASE;
END $weir$;

-- change carries a state over to another limit: what was used stays used, as far as the other can say
-- so. Between algorithms, it is charged once to an unused state.
CREATE OR REPLACE FUNCTION weir.change(p numeric[], pdef text, s numeric[], q numeric[], qdef text, t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  changed numeric[];
  used numeric;
BEGIN
  IF pdef = qdef OR s IS NULL THEN
    RETURN s;
  END IF;
  IF p[1] = q[1] THEN
    CASE p[1]
    WHEN 1 THEN changed := weir.bucket_convert(p, s, q, t);
    WHEN 2 THEN changed := weir.interval_convert(p, s, q, t);
    WHEN 3 THEN changed := weir.fixed_convert(p, s, q, t);
    WHEN 4 THEN changed := weir.counter_convert(p, s, q, t);
    WHEN 5 THEN changed := weir.window_convert(p, s, q, t);
    ELSE changed := weir.log_convert(p, s, q, t);
    END CASE;
    IF changed IS NOT NULL THEN
      RETURN changed;
    END IF;
  END IF;
  used := weir.spent(p, s, t);
  IF used = 0 THEN
    RETURN weir.contact(q, t);
  ELSIF q[1] >= 3 THEN -- a count cannot exceed its limit so
    used := least(used, q[4]);
  END IF;
  RETURN (weir.book(q, weir.contact(q, t), t, t, used, 0)).s;
END $weir$;
