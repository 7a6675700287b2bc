-- take carries out a call whose charges all are the most common one: a take of a TokenBucket, LeakyBucket or
-- FixedWindow, without a receipt and in no group. It decides as carry_out does, in bigint, in a third of the time: PL/pgSQL
-- prepares each expression anew in each transaction, so few of them are what makes it fast.
--
-- The keys are in ascending order, as in carry_out, each with its limit. numbers are for each key: how many charges
-- it has, parameters 6 to 9 of its limit (see bucket.sql), or 0, length, limit and type of a window (see fixed.sql),
-- and for each charge the cost, and by how many ms it expires sooner than the call. The replies have the same
-- order. Every product fits: n is at most 1000, and a full bucket at most 1125899906842624 ticks.
--
-- The reply is that of carry_out, or OTHER: nothing was done, and carry_out has to decide. So it is for a key with
-- two versions of its limit, outstanding reservations, promised work, or a clock that stepped back, and where an earlier attempt
-- of the call goes on. A call that was carried out by a later attempt is an error, which leaves no trace.
CREATE OR REPLACE FUNCTION weir.take(lane bigint, number bigint, expiry bigint, durable boolean, limits text[], ids bytea[], numbers bigint[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $weir$
DECLARE
  reading bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint; -- the clock
  keys integer := cardinality(ids);
  z numeric;
  given numeric;
  plain boolean;
  owes boolean;
  fresh integer[] := '{}'; -- keys without a row
  fulls bigint[];    -- when the bucket of each key is full again, in ticks, or when its window began
  returned numeric[]; -- what was given back to the bucket, or the count of the window
  debts boolean[];   -- more than a full bucket may be used: see clock.sql
  idles bigint[];    -- 0 for a key that was not charged
  k integer;
  closes bigint[];     -- of windows
  at integer := 0;   -- in numbers, before those of a key
  n bigint;
  p bigint;
  full_ bigint;
  passes bigint;
  used bigint;
  after bigint;
  start bigint;
  reset bigint;
  made boolean := false;
  result text := '';
BEGIN
  IF expiry < reading THEN
    RETURN 'LATE ' || reading;
  ELSIF reading NOT BETWEEN 0 AND 4503599627370496 OR current_setting('transaction_isolation') <> 'read committed' OR NOT pg_try_advisory_xact_lock(lane)
    OR set_config('lock_timeout', least((expiry - reading) / 1000 + 1, 60000)::text, true) IS NULL
    OR NOT durable AND set_config('synchronous_commit', 'off', true) IS NULL THEN
    RETURN 'OTHER';
  END IF;
  FOR k IN 1 .. keys LOOP
    LOOP
      SELECT t.s[1], t.s[2], t.def IS NULL OR t.def = limits[k] AND t.s[1] BETWEEN 0 AND 9007199254740991000
          AND (cardinality(t.s) = 2 OR cardinality(t.s) = 4 AND t.s[3] = -1 AND t.s[2] BETWEEN 0 AND 9007199254740991) AND t.odef IS NULL AND t.behind IS NULL AND (t.seen IS NULL OR t.seen <= reading), t.seen IS NOT NULL
        INTO z, given, plain, owes FROM weir.states t WHERE t.id = ids[k] FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO weir.states (id, idle) VALUES (ids[k], 0) ON CONFLICT DO NOTHING;
      IF FOUND THEN
        fresh := fresh || k;
        plain := true;
        EXIT;
      END IF;
    END LOOP;
    IF plain IS NOT TRUE THEN
      RETURN 'OTHER';
    END IF;
    fulls[k] := coalesce(z, 0);
    returned[k] := coalesce(given, 0);
    debts[k] := coalesce(owes, false);
  END LOOP;

  reading := (extract(epoch from clock_timestamp()) * 1000000)::bigint; -- the clock
  IF expiry < reading THEN
    FOREACH k IN ARRAY fresh LOOP
      DELETE FROM weir.states t WHERE t.id = ids[k];
    END LOOP;
    RETURN 'LATE ' || reading;
  END IF;
  FOR k IN 1 .. keys LOOP
    n := numbers[at+2];
    p := numbers[at+3];
    full_ := numbers[at+4];
    passes := numbers[at+5];
    idles[k] := 0;
    IF n = 0 THEN -- a window: p is its length, full_ the limit, and passes 1 if it begins with its first charge
      used := returned[k];
      start := CASE WHEN passes = 0 THEN reading - reading % p WHEN used > 0 AND reading < fulls[k] + p THEN fulls[k] ELSE reading END;
      IF reading < fulls[k] THEN -- the clock stepped back
        RETURN 'OTHER';
      ELSIF start > fulls[k] THEN
        used := 0;
      END IF;
      reset := start + p - reading;
      FOR i IN 1 .. numbers[at+1] LOOP
        IF reading > expiry - 1000 * numbers[at+5+2*i] THEN
          result := result || ';LATE';
        ELSIF used <= full_ - numbers[at+4+2*i] THEN
          used := used + numbers[at+4+2*i];
          idles[k] := reading + reset;
          result := result || ';0 ' || full_ - used || ' ' || reset;
        ELSE
          result := result || ';' || reset || ' ' || greatest(full_ - used, 0) || ' ' || reset;
        END IF;
      END LOOP;
      fulls[k] := start;
      closes[k] := start + p;
      returned[k] := used;
      at := at + 5 + 2 * numbers[at+1];
      CONTINUE;
    END IF;
    used := greatest(fulls[k] - reading * n, 0);
    IF used > full_ AND (used > 1125899906842624 OR NOT debts[k]) THEN -- the clock stepped back
      RETURN 'OTHER';
    END IF;
    FOR i IN 1 .. numbers[at+1] LOOP
      after := used + numbers[at+4+2*i] * p;
      IF reading > expiry - 1000 * numbers[at+5+2*i] THEN
        result := result || ';LATE';
      ELSIF after <= full_ AND used <= passes THEN
        used := after;
        idles[k] := reading + (used + n - 1) / n;
        result := result || ';0 ' || CASE WHEN used > passes THEN 0 ELSE (full_ - used) / p END || ' ' || (used + n - 1) / n;
      ELSE
        result := result || ';' || (greatest(after - full_, used - passes) + n - 1) / n || ' ' || CASE WHEN used > passes THEN 0 ELSE (full_ - used) / p END || ' ' || (used + n - 1) / n;
      END IF;
    END LOOP;
    fulls[k] := reading * n + used;
    at := at + 5 + 2 * numbers[at+1];
  END LOOP;
  result := reading || ' 0 0 0' || result;
  FOR k IN 1 .. keys LOOP
    IF idles[k] > 0 THEN
      UPDATE weir.states t SET idle = idles[k], def = limits[k], s = CASE WHEN closes[k] > 0 THEN ARRAY[fulls[k], returned[k], -1, closes[k]] ELSE ARRAY[fulls[k], returned[k]] END, seen = NULL WHERE t.id = ids[k];
      made := true;
    ELSIF k = ANY (fresh) THEN
      DELETE FROM weir.states t WHERE t.id = ids[k];
    END IF;
  END LOOP;
  IF made THEN
    UPDATE weir.calls c SET number = take.number, at = reading, reply = result WHERE c.lane = take.lane AND c.number < take.number;
    IF NOT FOUND THEN
      INSERT INTO weir.calls AS c (lane, number, at, reply) VALUES (take.lane, take.number, reading, result) ON CONFLICT DO NOTHING;
      IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'WR005', MESSAGE = 'weir: a later attempt of this call was carried out';
      END IF;
    END IF;
  END IF;
  RETURN result;
END $weir$;
