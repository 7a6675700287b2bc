-- SlidingLog: each charge at its time. Parameters: 5 limit, 6 window, 7 how many charges a log may
-- have. Expired charges are removed at the next charge. A charge that will have expired at a promised
-- time does not count at that time, but stays: the promise may be given back.

-- log_at is the time that counts at t: the latest promised time if it is in the future, or the time of
-- the newest charge for an earlier reading; and how long until then.
CREATE OR REPLACE FUNCTION weir.log_at(s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN ARRAY[t, 0];
  END IF;
  RETURN ARRAY[greatest(t, s[1], weir.list_newest(s)), greatest(s[1] - t, 0)];
END $weir$;

-- log_gone is how many charges have expired at a time.
CREATE OR REPLACE FUNCTION weir.log_gone(p numeric[], s numeric[], at numeric) RETURNS integer
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN 0;
  END IF;
  RETURN weir.list_leading(s, at - p[6]);
END $weir$;

-- log_spent is the sum of the charges that have not expired at t.
CREATE OR REPLACE FUNCTION weir.log_spent(p numeric[], s numeric[], t numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN 0;
  END IF;
  RETURN weir.list_sum(s, weir.log_gone(p, s, (weir.log_at(s, t))[1]) + 1);
END $weir$;

CREATE OR REPLACE FUNCTION weir.log_plan(p numeric[], s numeric[], t numeric, cost numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  free numeric;
BEGIN
  IF weir.log_spent(p, s, t) > p[5] - cost THEN -- until the first of those has left whose leaving makes room
    free := weir.list_freeing(s, weir.list_sum(s, 1) - p[5] + cost) + p[6];
    IF free > 9007199254740991 THEN
      RETURN '{-1,0}';
    END IF;
    RETURN ARRAY[weir.within(greatest(free - t, 0)), 0];
  END IF;
  RETURN ARRAY[weir.within((weir.log_at(s, t))[2]), 0];
END $weir$;

-- log_join merges n charges with those after them, after the first from.
CREATE OR REPLACE FUNCTION weir.log_join(s numeric[], from_ integer, n integer) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  at integer := 3 + 2 * (from_ + n); -- of the last one
  i integer := from_ + 1;
BEGIN
  WHILE i <= from_ + n LOOP
    s[at+1] := s[at+1] + s[2+2*i];
    i := i + 1;
  END LOOP;
  RETURN s[:2+2*from_] || s[at:];
END $weir$;

-- log_over is how many charges to merge, and after how many, to make room for more. The first gone
-- charges do not count at the promised time; the others are bounded, and all together may be twice as
-- many. See slidingLogRule.bounded in the Go package.
CREATE OR REPLACE FUNCTION weir.log_over(p numeric[], s numeric[], gone integer, more integer) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  n integer := (cardinality(s) - 2) / 2 + more;
BEGIN
  IF n - gone > p[7] THEN
    RETURN ARRAY[n - gone - p[7]::integer, gone];
  END IF;
  RETURN ARRAY[n - 2 * p[7]::integer, 0];
END $weir$;

-- log_bounded makes room for more charges by merging the oldest.
CREATE OR REPLACE FUNCTION weir.log_bounded(p numeric[], s numeric[], gone integer, more integer) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  o integer[] := weir.log_over(p, s, gone, more);
BEGIN
  IF o[1] > 0 THEN
    s := weir.log_join(s, o[2], o[1]);
  END IF;
  o[1] := (cardinality(s) - 2) / 2 + more - 2 * p[7]::integer;
  IF o[1] > 0 THEN -- after a change of the bound
    s := weir.log_join(s, 0, o[1]);
  END IF;
  RETURN s;
END $weir$;

-- log_book: a ticket is the time, the cost, the latest promise before, the two charges that were merged
-- to make room for this one, if any were, and the reading at which the charge was made.
CREATE OR REPLACE FUNCTION weir.log_book(p numeric[], s numeric[], t numeric, due numeric, cost numeric) RETURNS weir.booked
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.booked;
  at numeric;
  after numeric;
  gone integer;
  o integer[];
BEGIN
  s := coalesce(s, '{-1,-1}');
  due := greatest(due, s[1]);
  at := (weir.log_at(s, due))[1];
  after := CASE WHEN due > t THEN due ELSE -1 END;
  r.ticket := ARRAY[at, cost, s[1]];
  s := weir.list_dropped(s, weir.log_gone(p, s, t));
  r.inexact := 0;
  IF weir.list_sum(s, 1) + cost > 9007199254740991 THEN
    r.s := ARRAY[after, -1, at, 9007199254740991];
    r.ticket := '{}';
    RETURN r;
  END IF;
  gone := weir.log_gone(p, s, at);
  o := weir.log_over(p, s, gone, 1);
  IF o[1] > 0 THEN
    r.ticket := r.ticket || s[1+2*(o[1]+o[2])] || (weir.list_sum(s, o[2] + 1) - weir.list_sum(s, o[2] + o[1] + 1))
      || s[3+2*(o[1]+o[2]):4+2*(o[1]+o[2])];
  END IF;
  s := weir.log_bounded(p, s, gone, 1);
  r.ticket := r.ticket || t;
  r.s := weir.list_promised(s || ARRAY[at, cost], after);
  RETURN r;
END $weir$;

-- log_unjoin undoes the merge of two charges.
CREATE OR REPLACE FUNCTION weir.log_unjoin(s numeric[], earlier numeric, cost numeric, t numeric, rest numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  i integer := weir.list_leading(s, t - 1) + 1;
BEGIN
  WHILE 2 + 2 * i <= cardinality(s) AND s[1+2*i] <= t LOOP
    IF s[2+2*i] = cost + rest THEN
      IF i > 1 AND s[2*i-1] > earlier THEN
        RETURN s; -- another charge with the same time and cost
      END IF;
      s[2+2*i] := rest;
      RETURN weir.list_inserted(s, i, earlier, cost);
    END IF;
    i := i + 1;
  END LOOP;
  RETURN s;
END $weir$;

-- log_refund lowers a charge that is still remembered unmerged. If it was the latest, the merge that
-- made room for it is undone, and the promise before it is the latest again. Charges with the same time
-- and cost cannot be told apart: while one of them is left, its time stays promised.
CREATE OR REPLACE FUNCTION weir.log_refund(s numeric[], ticket numeric[], amount numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  i integer := weir.list_leading(s, ticket[1]);
  n integer := (cardinality(s) - 2) / 2;
  previous numeric;
BEGIN
  WHILE i > 0 AND s[1+2*i] = ticket[1] LOOP
    IF s[2+2*i] = ticket[2] THEN
      previous := CASE WHEN i > 1 THEN s[2*i-1] ELSE 0 END;
      s := weir.list_altered(s, i, -amount);
      IF amount < ticket[2] OR i < n THEN
        RETURN s;
      END IF;
      s[2] := greatest(s[2], ticket[cardinality(ticket)]); -- what had expired by then was removed
      IF n = 1 THEN
        RETURN weir.list_promised(s, -1);
      ELSIF previous < ticket[1] THEN -- what was promised before may have been given back too
        s := weir.list_promised(s, least(ticket[3], previous));
      END IF;
      IF cardinality(ticket) = 8 THEN
        RETURN weir.log_unjoin(s, ticket[4], ticket[5], ticket[6], ticket[7]);
      END IF;
      RETURN s;
    END IF;
    i := i - 1;
  END LOOP;
  RETURN s;
END $weir$;

CREATE OR REPLACE FUNCTION weir.log_look(p numeric[], s numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  at numeric[] := weir.log_at(s, t);
  sum numeric := weir.log_spent(p, s, t);
  reset numeric := at[2];
BEGIN
  IF sum > 0 THEN
    reset := greatest(reset, least(weir.list_newest(s) + p[6], 9007199254740991) - t);
  END IF;
  IF at[2] > 0 THEN
    RETURN ARRAY[0, reset];
  END IF;
  RETURN ARRAY[greatest(p[5] - sum, 0), reset];
END $weir$;

-- log_convert keeps the charges that have not expired: a longer window does not bring expired ones
-- back.
CREATE OR REPLACE FUNCTION weir.log_convert(p numeric[], s numeric[], q numeric[], t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  s := weir.list_dropped(s, weir.log_gone(p, s, t));
  RETURN weir.log_bounded(q, s, weir.log_gone(q, s, (weir.log_at(s, t))[1]), 0);
END $weir$;
