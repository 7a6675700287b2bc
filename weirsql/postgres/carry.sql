-- write stores what is known of a key at the end of a call. A row that says nothing any more is removed.
CREATE OR REPLACE FUNCTION weir.write(e weir.entry, reading bigint) RETURNS void
LANGUAGE plpgsql AS $weir$
DECLARE
  until numeric;
BEGIN
  IF e.dirty AND e.odef IS NOT NULL AND (e.oends <= e.now OR e.s IS NULL) THEN
    IF e.s IS NULL THEN
      e := weir.swapped(e);
    END IF;
    e := weir.alone(e);
  END IF;
  IF e.s IS NULL THEN
    DELETE FROM weir.states WHERE id = e.id;
    RETURN;
  END IF;
  e.seen := CASE WHEN weir.reachedby(e) > e.now THEN e.now END;
  IF NOT e.dirty THEN -- only its clock has changed
    UPDATE weir.states SET seen = e.seen, behind = e.behind, further = e.further WHERE id = e.id;
    RETURN;
  END IF;
  until := (weir.look(e.p, e.s, e.now))[2];
  IF e.odef IS NOT NULL THEN
    until := greatest(until, e.oends - e.now);
  END IF;
  -- It is kept for longer than the state is in use, to know how far the server's clock is behind: until
  -- that has reached the same time again, or for a day.
  until := reading + until + least(e.now - reading, 86400000000);
  IF e.p[3] = 1 OR e.op[3] = 1 THEN
    until := until + 86400000000; -- it never becomes idle: it is reset after a day without calls
  END IF;
  UPDATE weir.states SET idle = least(until, 9007199254740991), def = e.def, s = e.s, used = e.used, ends = e.ends,
    odef = e.odef, os = e.os, oused = e.oused, oends = e.oends, seen = e.seen, behind = e.behind, further = e.further WHERE id = e.id;
END $weir$;

-- carry_out carries out a call, in one transaction: a SELECT of this function outside of a transaction.
-- ids are in ascending order, without repetition: as all calls lock rows in this order, none of
-- them wait for each other in a circle. A row is locked until the end of the transaction, and the
-- clock is read once all are locked. With lane 0 nothing is charged and nothing is locked.
--
-- limits are those of the charges, and calendars the names and windows of those that they go by.
-- charges are seven numbers each: the key and the limit, as indexes, the operation, the cost, a group
-- (0 for none; those of a group are neighbours), more (see ask), and by how many ms the charge expires
-- sooner than the call. papers are 'settled', '' or a receipt for each charge; a receipt may be followed by
-- the hash of Once and by how long it counts.
--
-- The reply is a word with a reading, if nothing was done: LATE, STALE for the call before the lane's
-- latest, or LOCK where a call with lane 0 has to store the clock of a key. Otherwise it is the reading, how many keys met a step
-- back of the clock, the farthest one, how many reservations are inexact, and a reply to each charge.
CREATE OR REPLACE FUNCTION weir.carry_out(lane bigint, number bigint, expiry bigint, durable boolean, limits text[], calendars text[], ids bytea[], charges bigint[], papers text[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $weir$
#variable_conflict use_column
DECLARE
  reading bigint;
  row weir.states;
  call weir.calls;
  e weir.entry;
  entries weir.entry[] := '{}';
  saved weir.entry[];
  p numeric[];
  prepared weir.prepared[] := '{}';
  def text;
  k integer;
  i integer := 1;
  j integer;
  last integer;
  total integer := cardinality(charges) / 7;
  replies text[] := '{}';
  refused text[];
  asked weir.asked;
  fresh boolean;
  made boolean := false;
  hadmade boolean;
  steps integer := 0;
  widest bigint := 0;
  inexact integer := 0;
  hadinexact integer;
  late boolean;
  every boolean;
  again boolean;
  op integer;
  cost numeric;
  paper text;
  result text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'WR004', MESSAGE = -- with the fix in it: drivers do not print a HINT
      format('weir: transactions must be READ COMMITTED, as they are by default: ALTER ROLE %I SET default_transaction_isolation = ''read committed''', current_user);
  END IF;
  reading := (extract(epoch from clock_timestamp()) * 1000000)::bigint; -- the clock
  IF expiry < reading THEN
    RETURN 'LATE ' || reading;
  END IF;
  IF lane <> 0 THEN
    PERFORM set_config('lock_timeout', least((expiry - reading) / 1000 + 1, 60000)::text, true);
    IF NOT durable THEN
      PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    PERFORM pg_advisory_xact_lock(lane); -- an earlier attempt of the same call may still be going on
    SELECT * INTO call FROM weir.calls c WHERE c.lane = carry_out.lane;
    IF call.number = number THEN
      RETURN call.reply;
    ELSIF call.number > number THEN
      RETURN 'STALE ' || reading;
    END IF;
  END IF;

  FOR k IN 1 .. cardinality(ids) LOOP
    fresh := false;
    IF lane = 0 THEN
      SELECT * INTO row FROM weir.states WHERE id = ids[k];
    ELSE
      LOOP
        SELECT * INTO row FROM weir.states WHERE id = ids[k] FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO weir.states (id, idle) VALUES (ids[k], 0) ON CONFLICT DO NOTHING;
        IF FOUND THEN
          fresh := true;
          EXIT;
        END IF;
      END LOOP;
    END IF;
    e := NULL;
    e.id := ids[k];
    e.stored := NOT fresh;
    IF row.def IS NOT NULL THEN
      e.def := row.def; e.s := row.s; e.used := row.used; e.ends := row.ends;
      e.odef := row.odef; e.os := row.os; e.oused := row.oused; e.oends := row.oends;
      e.seen := row.seen; e.behind := row.behind; e.further := row.further;
    END IF;
    entries[k] := e;
  END LOOP;

  reading := (extract(epoch from clock_timestamp()) * 1000000)::bigint; -- the clock
  late := expiry < reading;

  WHILE i <= total AND NOT late LOOP
    last := i;
    IF charges[i*7-2] > 0 THEN
      WHILE last < total AND charges[last*7+5] = charges[i*7-2] LOOP
        last := last + 1;
      END LOOP;
    END IF;
    saved := entries;
    hadmade := made;
    hadinexact := inexact;
    refused := '{}';
    every := true;
    again := false;
    LOOP -- a second time, where a group was refused: as peeks of those that were not
      FOR j IN i .. last LOOP
        IF again AND refused[j-i+1] <> '' THEN
          replies := replies || refused[j-i+1];
          k := charges[j*7-6];
          IF (entries[k]).s IS NULL AND refused[j-i+1] <> 'LATE'
            AND NOT EXISTS (SELECT FROM generate_series(i, last) other WHERE other <> j AND charges[other*7-6] = k) THEN
            e := entries[k];
            e.dirty := false;
            asked := weir.ask(e, (prepared[charges[j*7-5]]).p, limits[charges[j*7-5]], 0, charges[j*7-3], 0, '');
            IF NOT asked.admitted THEN -- it is refused again, and its state begins, as after any refusal
              entries[k] := asked.e;
            END IF;
          END IF;
          CONTINUE;
        END IF;
        IF reading > expiry - 1000 * charges[j*7] THEN
          result := 'LATE';
          every := false;
        ELSE
          k := charges[j*7-6];
          op := charges[j*7-4];
          cost := charges[j*7-3];
          IF again THEN
            op := 1;
          END IF;
          e := entries[k];
          def := limits[charges[j*7-5]];
          IF (prepared[charges[j*7-5]]).p IS NULL THEN
            prepared[charges[j*7-5]].p := weir.prepare(def, calendars);
          END IF;
          p := (prepared[charges[j*7-5]]).p;
          IF e.s IS NOT NULL AND e.p IS NULL THEN
            e.p := CASE WHEN e.def = def THEN p ELSE weir.prepare(e.def, calendars) END;
            IF e.odef IS NOT NULL THEN
              e.op := CASE WHEN e.odef = def THEN p ELSE weir.prepare(e.odef, calendars) END;
            END IF;
          END IF;
          IF e.now IS NULL THEN
            e := weir.settime(e, reading);
            entries[k] := e;
            saved[k] := e;
          END IF;
          paper := papers[j];
          IF op = 3 AND paper LIKE '%^%^%' THEN -- receipt, SHA-256 of Once, and for how long that counts
            INSERT INTO weir.settlements AS o (once, until)
              VALUES (decode(split_part(paper, '^', 2), 'hex'), reading + split_part(paper, '^', 3)::bigint)
              ON CONFLICT (once) DO UPDATE SET until = excluded.until WHERE o.until < reading;
            IF NOT FOUND THEN -- it was carried out
              op := 1;
              cost := 0;
            END IF;
            paper := split_part(paper, '^', 1);
          END IF;
          e.dirty := false;
          asked := weir.ask(e, p, def, op, cost, charges[j*7-1], paper);
          e := asked.e;
          IF op = 6 AND asked.made THEN
            e.now := reading;
          END IF;
          IF e.begun IS NOT NULL AND NOT e.dirty THEN -- a refusal leaves no trace, not even a converted state
            e := entries[k];
          ELSE
            e.dirty := e.dirty OR (entries[k]).dirty;
          END IF;
          entries[k] := e;
          made := made OR asked.made;
          inexact := inexact + asked.inexact;
          result := asked.reply;
          IF NOT asked.admitted THEN
            every := false;
          END IF;
        END IF;
        IF i = last THEN
          replies := replies || result;
        ELSIF again THEN
          replies := replies || CASE WHEN charges[j*7-1] >= 1 THEN result || ' ' ELSE result END;
        ELSE
          refused := refused || result;
          IF result <> 'LATE' AND asked.admitted THEN
            refused[j-i+1] := '+' || result; -- for now
          END IF;
        END IF;
      END LOOP;
      EXIT WHEN again OR i = last;
      IF every THEN
        FOR j IN 1 .. last - i + 1 LOOP
          replies := replies || substr(refused[j], 2);
        END LOOP;
        EXIT;
      END IF;
      FOR j IN 1 .. last - i + 1 LOOP
        IF refused[j] LIKE '+%' THEN
          refused[j] := '';
        END IF;
      END LOOP;
      entries := saved;
      made := hadmade;
      inexact := hadinexact;
      again := true;
    END LOOP;
    i := last + 1;
  END LOOP;

  FOR k IN 1 .. cardinality(entries) LOOP
    e := entries[k];
    IF e.behinder IS NOT NULL THEN
      steps := steps + 1;
      widest := greatest(widest, e.behinder);
    END IF;
    IF lane = 0 AND e.moved THEN
      RETURN 'LOCK ' || reading;
    ELSIF lane <> 0 THEN
      IF e.dirty OR e.moved THEN
        PERFORM weir.write(e, reading);
      ELSIF NOT e.stored THEN
        DELETE FROM weir.states WHERE id = e.id;
      END IF;
    END IF;
  END LOOP;
  IF late THEN
    RETURN 'LATE ' || reading;
  END IF;
  result := reading || ' ' || steps || ' ' || widest || ' ' || inexact || ';' || array_to_string(replies, ';');
  IF made THEN
    INSERT INTO weir.calls AS c (lane, number, at, reply) VALUES (carry_out.lane, carry_out.number, reading, result)
      ON CONFLICT (lane) DO UPDATE SET number = excluded.number, at = excluded.at, reply = excluded.reply;
  END IF;
  RETURN result;
END $weir$;

-- warm has the server read the functions, which it does in each session when they are first called.
CREATE OR REPLACE FUNCTION weir.warm() RETURNS text
LANGUAGE plpgsql AS $weir$
DECLARE
  now bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
  p numeric[] := weir.prepare('{1,0,1,1000000,1,0}', '{}');
  e weir.entry;
BEGIN
  PERFORM weir.take(0, 0, 0, false, '{}', '{}', '{}');
  PERFORM weir.take_key(0, 0, 0, false, false, '', '', 0, 0, 0, 0, '{}');
  PERFORM weir.carry_out(0, 0, now + 60000000, false, '{"{1,0,1,1000000,1,0}"}', '{}', '{"\\x02"}', '{1,1,1,1,0,0,0}', '{""}');
  e.id := '\x02';
  e.now := now;
  e := weir.put(e, p, '{1,0,1,1000000,1,0}', (weir.book(p, NULL, now, now, 1, 0)).s);
  PERFORM weir.write(weir.settime(e, now), now); -- no row has this id
  PERFORM weir.poll(NULL, NULL, false, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, '', 0, 0, 0, 0, false, false, false, 0);
  RETURN 'ready';
END $weir$;
