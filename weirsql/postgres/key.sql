-- take_key carries out a call as take does (see take.sql), where all charges are of one key, which is what nodes send
-- that share a hot key. The limit's four numbers are n, p, full_ and passes: parameters 6 to 9 of a bucket, or
-- 0, length, limit and type of a window. charges are for each charge the cost, and by how many ms it expires
-- sooner than the call.
--
-- Where doubtful, as the caller's last call was refused, the state that was committed last is read first, without
-- a lock: charges that it refuses are refused, and sessions do not wait for each other in front of a key that is exhausted.
-- Such a refusal was true when that state was read, whatever another session was about to commit: a charge
-- would leave less, and a settlement that gives back comes after it.
CREATE OR REPLACE FUNCTION weir.take_key(lane bigint, number bigint, expiry bigint, durable boolean, doubtful boolean, limit_ text, key bytea, n bigint, p bigint, full_ bigint, passes bigint, charges bigint[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $weir$
DECLARE
  reading bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint; -- the clock
  z numeric;         -- when the bucket is full again, in ticks, or when its window began
  given numeric;     -- what was given back to the bucket, or the count of the window
  plain boolean;     -- the state is one for this function
  owes boolean;      -- more than a full bucket may be used: see clock.sql
  unlocked boolean := doubtful;
  fresh boolean;     -- the key had no row
  taken bigint;
  after bigint;
  start bigint;      -- of the window
  reset bigint;
  charged boolean;
  result text;
BEGIN
  IF expiry < reading THEN
    RETURN 'LATE ' || reading;
  ELSIF reading NOT BETWEEN 0 AND 4503599627370496 OR current_setting('transaction_isolation') <> 'read committed'
    OR set_config('lock_timeout', least((expiry - reading) / 1000 + 1, 60000)::text, true) IS NULL THEN -- also where the table is locked
    RETURN 'OTHER';
  END IF;
  LOOP
    IF unlocked THEN
      SELECT t.s[1], t.s[2], t.def = limit_ AND t.s[1] BETWEEN 0 AND 9007199254740991000
          AND (cardinality(t.s) = 2 OR cardinality(t.s) = 4 AND t.s[3] = -1 AND t.s[2] BETWEEN 0 AND 9007199254740991) AND t.odef IS NULL AND t.behind IS NULL AND (t.seen IS NULL OR t.seen <= reading), t.seen IS NOT NULL
        INTO z, given, plain, owes FROM weir.states t WHERE t.id = key;
      unlocked := FOUND;
    END IF;
    IF unlocked IS NOT TRUE THEN
      IF NOT pg_try_advisory_xact_lock(lane) OR NOT durable AND set_config('synchronous_commit', 'off', true) IS NULL THEN
        RETURN 'OTHER';
      END IF;
      LOOP
        SELECT t.s[1], t.s[2], t.def IS NULL OR t.def = limit_ AND t.s[1] BETWEEN 0 AND 9007199254740991000
            AND (cardinality(t.s) = 2 OR cardinality(t.s) = 4 AND t.s[3] = -1 AND t.s[2] BETWEEN 0 AND 9007199254740991) AND t.odef IS NULL AND t.behind IS NULL AND (t.seen IS NULL OR t.seen <= reading), t.seen IS NOT NULL
          INTO z, given, plain, owes FROM weir.states t WHERE t.id = key FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO weir.states (id, idle) VALUES (key, 0) ON CONFLICT DO NOTHING;
        IF FOUND THEN
          fresh := true;
          plain := true;
          EXIT;
        END IF;
      END LOOP;
    END IF;
    reading := (extract(epoch from clock_timestamp()) * 1000000)::bigint; -- the clock
    IF expiry < reading OR plain IS NOT TRUE THEN
      IF fresh THEN
        DELETE FROM weir.states t WHERE t.id = key;
      END IF;
      RETURN CASE WHEN plain THEN 'LATE ' || reading ELSE 'OTHER' END;
    END IF;
    result := reading || ' 0 0 0';
    IF n = 0 THEN
      taken := coalesce(given, 0);
      start := coalesce(z, 0);
      reset := CASE WHEN passes = 0 THEN reading - reading % p WHEN taken > 0 AND reading < start + p THEN start ELSE reading END;
      IF reading < start THEN -- the clock stepped back
        RETURN 'OTHER';
      ELSIF reset > start THEN
        start := reset;
        taken := 0;
      END IF;
      reset := start + p - reading;
      FOR i IN 1 .. cardinality(charges) BY 2 LOOP
        IF reading > expiry - 1000 * charges[i+1] THEN
          result := result || ';LATE';
        ELSIF taken <= full_ - charges[i] THEN
          taken := taken + charges[i];
          charged := true;
          result := result || ';0 ' || full_ - taken || ' ' || reset;
        ELSE
          result := result || ';' || reset || ' ' || greatest(full_ - taken, 0) || ' ' || reset;
        END IF;
      END LOOP;
    ELSE
      taken := greatest(coalesce(z, 0) - reading * n, 0);
      IF taken > full_ AND (taken > 1125899906842624 OR NOT owes) THEN -- the clock stepped back
        RETURN 'OTHER';
      END IF;
      FOR i IN 1 .. cardinality(charges) BY 2 LOOP
        after := taken + charges[i] * p;
        IF reading > expiry - 1000 * charges[i+1] THEN
          result := result || ';LATE';
        ELSIF after <= full_ AND taken <= passes THEN
          taken := after;
          charged := true;
          result := result || ';0 ' || CASE WHEN taken > passes THEN 0 ELSE (full_ - taken) / p END || ' ' || (taken + n - 1) / n;
        ELSE
          result := result || ';' || (greatest(after - full_, taken - passes) + n - 1) / n || ' ' || CASE WHEN taken > passes THEN 0 ELSE (full_ - taken) / p END || ' ' || (taken + n - 1) / n;
        END IF;
      END LOOP;
    END IF;
    IF charged IS NULL THEN
      IF fresh THEN
        DELETE FROM weir.states t WHERE t.id = key;
      END IF;
      RETURN result;
    END IF;
    EXIT WHEN unlocked IS NOT TRUE;
    unlocked := false; -- it is decided again, with the lock
    charged := NULL;
  END LOOP;

  IF n = 0 THEN
    UPDATE weir.states t SET idle = start + p, def = limit_, s = ARRAY[start, taken, -1, start + p], seen = NULL WHERE t.id = key;
  ELSE
    UPDATE weir.states t SET idle = reading + (taken + n - 1) / n, def = limit_, s = ARRAY[reading * n + taken, coalesce(given, 0)], seen = NULL WHERE t.id = key;
  END IF;
  UPDATE weir.calls c SET number = take_key.number, at = reading, reply = result WHERE c.lane = take_key.lane AND c.number < take_key.number;
  IF NOT FOUND THEN
    INSERT INTO weir.calls AS c (lane, number, at, reply) VALUES (take_key.lane, take_key.number, reading, result) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'WR005', MESSAGE = 'weir: a later attempt of this call was carried out';
    END IF;
  END IF;
  RETURN result;
END $weir$;
