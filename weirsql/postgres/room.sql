-- Waiting rooms: the queue of a room, as server/room/state.go has it, function by function. Times are
-- microseconds: of the room's clock, or of its wait clock, which measures how long visitors have not polled.

-- A row for each room. It is locked first, so that the polls of a room come one after the other.
CREATE /*unlogged*/ TABLE IF NOT EXISTS weir.rooms (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  prefix text,
  name text,                            -- null once nobody has polled for long: what the room has is being removed
  expires bigint NOT NULL DEFAULT 0,    -- by the server's clock
  started bigint NOT NULL DEFAULT 0,    -- 0 before the first poll
  now bigint NOT NULL DEFAULT 0,        -- at the latest poll
  behind bigint NOT NULL DEFAULT 0,     -- how far the server's clock is behind: see server/room/behind.go
  further bigint NOT NULL DEFAULT 0,
  server timestamptz,                   -- when the server had started at the latest poll
  torn bigint[] NOT NULL DEFAULT '{}',  -- from, to, of the latest 8 restarts of the server: what was given between may have been lost
  waited bigint NOT NULL DEFAULT 0,     -- the wait clock
  swept bigint NOT NULL DEFAULT 0,      -- when silent visitors are looked for next, on the wait clock
  hold bigint NOT NULL DEFAULT 0,       -- nobody is admitted before
  latest bigint NOT NULL DEFAULT 0,     -- the last place that was given
  called bigint NOT NULL DEFAULT 0,     -- all visitors whose turn came until then are admitted
  n bigint NOT NULL DEFAULT 0,          -- the rate of the latest poll: n in per microseconds
  per bigint NOT NULL DEFAULT 0,
  paused bigint NOT NULL DEFAULT 0,
  full_at bigint NOT NULL DEFAULT 0,    -- when the bucket is full again, and n-ths of a microsecond
  rest bigint NOT NULL DEFAULT 0,
  since bigint NOT NULL DEFAULT 0,      -- when the queue began, 0 without one; the current window; admissions before it, and in it
  win bigint NOT NULL DEFAULT 0,
  before bigint NOT NULL DEFAULT 0,
  counted bigint NOT NULL DEFAULT 0,
  waiting bigint NOT NULL DEFAULT 0,    -- visitors in the queue
  inside bigint NOT NULL DEFAULT 0,     -- visitors inside
  soonest bigint NOT NULL DEFAULT 0,    -- no visitor inside has to leave before
  UNIQUE (prefix, name)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000);

-- A row for each visitor. A poll of a waiting visitor changes silent_at alone, which is in no index.
CREATE /*unlogged*/ TABLE IF NOT EXISTS weir.visitors (
  room bigint,
  id text COLLATE "C",
  place bigint,       -- in the queue; null: the visitor is inside
  silent_at bigint,   -- when the place is lost, on the wait clock
  looked_at bigint,   -- when that is looked at: not after silent_at
  leaves_at bigint,   -- inside: when the time of the visitor is over
  session_end bigint, -- inside: null before the visitor has entered
  PRIMARY KEY (room, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS visitors_queue ON weir.visitors (room, place, id) WHERE place IS NOT NULL;
CREATE INDEX IF NOT EXISTS visitors_silent ON weir.visitors (room, looked_at) WHERE place IS NOT NULL;
CREATE INDEX IF NOT EXISTS visitors_inside ON weir.visitors (room, leaves_at) WHERE place IS NULL;

-- The queue in parts of at most 512 visitors, each from a place and id on, with how many visitors it has:
-- so the visitors ahead of one are counted without reading them all.
CREATE /*unlogged*/ TABLE IF NOT EXISTS weir.parts (
  room bigint,
  place bigint,
  id text COLLATE "C",
  n integer NOT NULL,
  PRIMARY KEY (room, place, id)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000);

-- queued counts a visitor who was added to the queue.
CREATE OR REPLACE FUNCTION weir.queued(room_ bigint, place_ bigint, id_ text) RETURNS void
LANGUAGE plpgsql AS $weir$
DECLARE
  part record;
  cut record;
BEGIN
  SELECT p.place, p.id, p.n INTO part FROM weir.parts p WHERE p.room = room_ AND (p.place, p.id) <= (place_, id_) ORDER BY p.place DESC, p.id DESC LIMIT 1;
  IF NOT FOUND THEN -- before all others
    SELECT p.place, p.id, p.n INTO part FROM weir.parts p WHERE p.room = room_ ORDER BY p.place, p.id LIMIT 1;
    IF NOT FOUND THEN
      INSERT INTO weir.parts (room, place, id, n) VALUES (room_, place_, id_, 1);
      RETURN;
    END IF;
    UPDATE weir.parts p SET place = place_, id = id_ WHERE p.room = room_ AND p.place = part.place AND p.id = part.id;
    part.place := place_;
    part.id := id_;
  END IF;
  IF part.n >= 256 AND NOT EXISTS (SELECT FROM weir.visitors v WHERE v.room = room_ AND v.place IS NOT NULL AND (v.place, v.id) > (place_, id_)) THEN
    INSERT INTO weir.parts (room, place, id, n) VALUES (room_, place_, id_, 1);
    RETURN;
  END IF;
  UPDATE weir.parts p SET n = p.n + 1 WHERE p.room = room_ AND p.place = part.place AND p.id = part.id;
  IF part.n >= 511 THEN
    SELECT v.place, v.id INTO cut FROM weir.visitors v WHERE v.room = room_ AND v.place IS NOT NULL AND (v.place, v.id) >= (part.place, part.id)
      ORDER BY v.place, v.id OFFSET 256 LIMIT 1;
    UPDATE weir.parts p SET n = 256 WHERE p.room = room_ AND p.place = part.place AND p.id = part.id;
    INSERT INTO weir.parts (room, place, id, n) VALUES (room_, cut.place, cut.id, part.n + 1 - 256);
  END IF;
END $weir$;

-- unqueued counts visitors who left the queue.
CREATE OR REPLACE FUNCTION weir.unqueued(room_ bigint, places bigint[], ids text[]) RETURNS void
LANGUAGE plpgsql AS $weir$
DECLARE
  part record;
  place_ bigint; -- the part before
  id_ text;
  n_ integer;
BEGIN
  FOR i IN 1 .. cardinality(places) LOOP
    SELECT p.place, p.id INTO part FROM weir.parts p WHERE p.room = room_ AND (p.place, p.id) <= (places[i], ids[i]) ORDER BY p.place DESC, p.id DESC LIMIT 1;
    UPDATE weir.parts p SET n = p.n - 1 WHERE p.room = room_ AND p.place = part.place AND p.id = part.id;
  END LOOP;
  FOR part IN SELECT p.place, p.id, p.n FROM weir.parts p WHERE p.room = room_ ORDER BY p.place, p.id LOOP
    IF part.n = 0 OR part.n + n_ <= 128 THEN -- it is empty, or joins the part before
      DELETE FROM weir.parts p WHERE p.room = room_ AND p.place = part.place AND p.id = part.id;
      CONTINUE WHEN part.n = 0;
      n_ := n_ + part.n;
      UPDATE weir.parts p SET n = n_ WHERE p.room = room_ AND p.place = place_ AND p.id = id_;
    ELSE
      place_ := part.place;
      id_ := part.id;
      n_ := part.n;
    END IF;
  END LOOP;
END $weir$;

-- leave removes visitors inside whose time is over at a moment, up to most of them. missed had not entered. soonest is when
-- the time of the next one is over.
CREATE OR REPLACE FUNCTION weir.leave(room_ bigint, moment bigint, most integer, OUT missed integer, OUT departed integer, OUT soonest bigint)
LANGUAGE plpgsql AS $weir$
DECLARE
  ids text[];
BEGIN
  SELECT array_agg(d.id), count(*) FILTER (WHERE d.session_end IS NULL), count(d.session_end) INTO ids, missed, departed
    FROM (SELECT v.id, v.session_end FROM weir.visitors v WHERE v.room = room_ AND v.place IS NULL AND v.leaves_at <= moment ORDER BY v.leaves_at LIMIT most) d;
  IF ids IS NOT NULL THEN
    DELETE FROM weir.visitors v WHERE v.room = room_ AND v.id = ANY (ids);
  END IF;
  SELECT v.leaves_at INTO soonest FROM weir.visitors v WHERE v.room = room_ AND v.place IS NULL ORDER BY v.leaves_at LIMIT 1;
  soonest := coalesce(soonest, 9223372036854775807);
END $weir$;

-- poll is one poll of a visitor: it admits all whose turn it is, and returns where the visitor stands. The
-- parameters after patience, which is how many ms the poll may wait for the room, are those of room.Spec.Parameters and
-- room.Poll. Carrying it out twice changes nothing more. A poll does a bounded amount of work, and the next one goes on.
-- Plans are made while the tables may be empty and without statistics: the settings have them use the indexes, whatever is there.
CREATE OR REPLACE FUNCTION weir.poll(fleet text, title text, durable boolean, patience integer,
  n_ bigint, per_ bigint, burst bigint, room_size bigint, idle bigint, session bigint, enter_within bigint, poll_timeout bigint, max_waiting bigint,
  max_step bigint, recovery bigint, win_size bigint, most bigint, opens bigint, paused_ bigint,
  visitor text, ticket integer, at_place bigint, ending bigint, began bigint, provisional boolean, enters boolean, joins boolean, lot bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $weir$
DECLARE
  s weir.rooms;
  v record;
  head record;
  gone record;
  reading bigint;
  t bigint; -- the room's time
  at bigint;
  edge bigint;
  full_ bigint;
  rest_ bigint;
  due bigint;
  used numeric;
  whole numeric;
  k bigint;
  i bigint;
  rounds bigint;
  work integer := 1000; -- how many visitors inside may yet be removed
  places bigint[];
  ids text[];
  admitted text[];
  silent text[];
  found_ boolean; -- v is a row
  changed boolean := false;
  given bigint; -- when the ticket was
  lost boolean; -- the state that gave the ticket, or its latest part
  joined bigint; -- the place at which the visitor joins
  full_queue boolean := false;
  lapsed bigint := 0;
  missed bigint := 0;
  departed bigint := 0;
  result integer := 0;
  ahead bigint := 0;
  shown bigint := 0; -- the place, of a waiting visitor
  stop bigint := 0;
  entered integer := 0;
  admissions bigint := 0;
  span bigint := 0;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' OR set_config('lock_timeout', patience::text, true) IS NULL
    OR NOT durable AND set_config('synchronous_commit', 'off', true) IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'WR004', MESSAGE = -- with the fix in it: drivers do not print a HINT
      format('weir: transactions must be READ COMMITTED, as they are by default: ALTER ROLE %I SET default_transaction_isolation = ''read committed''', current_user);
  END IF;
  IF title IS NULL THEN -- of warm
    RETURN '';
  END IF;
  LOOP
    SELECT r.* INTO s FROM weir.rooms r WHERE r.prefix = fleet AND r.name = title FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO weir.rooms (prefix, name) VALUES (fleet, title) ON CONFLICT DO NOTHING;
  END LOOP;
  reading := (extract(epoch from clock_timestamp()) * 1000000)::bigint; -- the clock, once the room is locked
  IF s.started = 0 THEN
    s.started := reading;
    s.now := reading;
  END IF;
  t := reading;
  IF t < s.now THEN
    IF s.behind > 0 AND t + s.behind >= s.now THEN
      t := t + s.behind;
      s.further := 0;
    ELSIF s.further > 0 AND t + s.further >= s.now THEN
      t := t + s.further;
    ELSE
      IF s.behind = 0 THEN
        s.behind := s.now - t;
      ELSE
        IF s.further > 0 THEN
          s.behind := s.further;
        END IF;
        s.further := s.now - t;
      END IF;
      t := s.now;
    END IF;
  ELSIF s.behind > 0 THEN
    s.behind := 0;
    s.further := 0;
  END IF;
  IF s.server IS DISTINCT FROM pg_postmaster_start_time() THEN
    IF s.server IS NOT NULL THEN
      s.torn := (s.torn || ARRAY[s.now, t])[greatest(cardinality(s.torn) - 13, 1):];
    END IF;
    s.server := pg_postmaster_start_time();
  END IF;
  IF t > s.now THEN
    s.waited := s.waited + least(t - s.now, max_step);
    s.now := t;
  END IF;

  -- Another rate: what was used stays used, rounded up to a microsecond of it. It does not apply to the time before.
  IF s.n <> n_ OR s.per <> per_ OR s.paused <> paused_ THEN
    IF s.n > 0 AND (s.n <> n_ OR s.per <> per_) AND s.full_at >= t THEN
      used := (s.full_at - t)::numeric * s.n + s.rest;
      whole := least(div(used, s.per), 4503599627370496 / per_);
      s.full_at := t + div(whole * per_, n_) + div(mod(used, s.per) * per_ + s.per::numeric * n_ - 1, s.per::numeric * n_);
      s.rest := mod(whole * per_, n_);
    END IF;
    s.n := n_;
    s.per := per_;
    s.paused := paused_;
    s.called := t;
  END IF;

  -- Waiting visitors who have not polled for too long.
  IF s.waited >= s.swept THEN
    s.swept := s.waited + 1000000;
    SELECT count(*) AS all_, array_agg(d.id) AS ids, array_agg(d.place) FILTER (WHERE d.silent_at <= s.waited) AS places, array_agg(d.id) FILTER (WHERE d.silent_at <= s.waited) AS silent
      INTO gone FROM (SELECT w.id, w.place, w.silent_at FROM weir.visitors w WHERE w.room = s.number AND w.place IS NOT NULL AND w.looked_at <= s.waited ORDER BY w.looked_at LIMIT 500) d;
    IF gone.silent IS NOT NULL THEN
      DELETE FROM weir.visitors w WHERE w.room = s.number AND w.id = ANY (gone.silent);
      PERFORM weir.unqueued(s.number, gone.places, gone.silent);
      lapsed := cardinality(gone.silent);
      s.waiting := s.waiting - lapsed;
    END IF;
    IF gone.all_ > lapsed THEN -- they have polled since
      UPDATE weir.visitors w SET looked_at = w.silent_at WHERE w.room = s.number AND w.id = ANY (gone.ids);
    END IF;
    IF gone.all_ = 500 THEN
      s.swept := s.waited;
    END IF;
  END IF;

  FOR pass IN 1 .. 2 LOOP
    -- Admits the visitors whose turn came since the last poll, each as of the moment at which there was a token and a place.
    at := greatest(s.called, t - max_step, s.hold, opens);
    IF paused_ = 1 THEN
      at := greatest(at, t + 1);
    END IF;
    IF s.waiting > 0 THEN
      rounds := 0;
      k := 0; -- how many are taken from the front
      admitted := NULL;
      silent := NULL;
      <<line>>
      FOR head IN SELECT w.id, w.silent_at FROM weir.visitors w WHERE w.room = s.number AND w.place IS NOT NULL ORDER BY w.place, w.id LOOP
        LOOP
          EXIT line WHEN rounds >= most;
          rounds := rounds + 1;
          IF s.inside > 0 AND s.soonest <= at THEN
            edge := least(at, t);
            IF s.soonest <= edge THEN
              SELECT l.* INTO gone FROM weir.leave(s.number, edge, work) l;
              missed := missed + gone.missed;
              departed := departed + gone.departed;
              s.inside := s.inside - gone.missed - gone.departed;
              work := work - gone.missed - gone.departed;
              s.soonest := CASE WHEN admitted IS NULL THEN gone.soonest ELSE least(gone.soonest, t + enter_within) END; -- they are not inside in the table yet
              EXIT line WHEN work <= 0;
            END IF;
          END IF;
          IF head.silent_at <= s.waited THEN
            silent := array_append(silent, head.id);
            lapsed := lapsed + 1;
            k := k + 1;
            EXIT;
          END IF;
          EXIT line WHEN at > t;
          IF room_size > 0 AND s.inside >= room_size THEN
            at := s.soonest;
            CONTINUE;
          END IF;
          full_ := greatest(s.full_at, at) + per_ / n_;
          rest_ := per_ % n_ + CASE WHEN s.full_at < at THEN 0 ELSE s.rest END;
          IF rest_ >= n_ THEN
            full_ := full_ + 1;
            rest_ := rest_ - n_;
          END IF;
          due := full_ - burst * per_ / n_ + CASE WHEN rest_ > burst * per_ % n_ THEN 1 ELSE 0 END;
          IF due > at THEN
            at := due;
            CONTINUE;
          END IF;
          s.full_at := full_;
          s.rest := rest_;
          admitted := array_append(admitted, head.id);
          s.soonest := CASE WHEN s.inside = 0 THEN t + enter_within ELSE least(s.soonest, t + enter_within) END;
          s.inside := s.inside + 1;
          k := k + 1;
          IF s.since > 0 THEN
            i := (t - s.win) / win_size;
            IF i > 0 THEN
              s.before := CASE WHEN i = 1 THEN s.counted ELSE 0 END;
              s.counted := 0;
              s.win := s.win + i * win_size;
            END IF;
            s.counted := s.counted + 1;
          END IF;
          EXIT;
        END LOOP;
      END LOOP;
      IF k > 0 THEN
        s.waiting := s.waiting - k;
        IF admitted IS NOT NULL THEN
          UPDATE weir.visitors w SET place = NULL, silent_at = NULL, looked_at = NULL, leaves_at = t + enter_within, session_end = NULL WHERE w.room = s.number AND w.id = ANY (admitted);
        END IF;
        IF silent IS NOT NULL THEN
          DELETE FROM weir.visitors w WHERE w.room = s.number AND w.id = ANY (silent);
        END IF;
        FOR head IN SELECT p.place, p.id, p.n FROM weir.parts p WHERE p.room = s.number ORDER BY p.place, p.id LOOP
          IF head.n > k THEN
            UPDATE weir.parts p SET n = p.n - k WHERE p.room = s.number AND p.place = head.place AND p.id = head.id;
            EXIT;
          END IF;
          DELETE FROM weir.parts p WHERE p.room = s.number AND p.place = head.place AND p.id = head.id;
          k := k - head.n;
          EXIT WHEN k = 0;
        END LOOP;
      END IF;
    END IF;
    IF s.waiting = 0 THEN
      at := t;
    END IF;
    s.called := least(at, t);
    IF s.inside > 0 AND s.soonest <= t AND work > 0 THEN
      SELECT l.* INTO gone FROM weir.leave(s.number, t, work) l;
      missed := missed + gone.missed;
      departed := departed + gone.departed;
      s.inside := s.inside - gone.missed - gone.departed;
      work := work - gone.missed - gone.departed;
      s.soonest := gone.soonest;
    END IF;

    -- The visitor, once before and once after a place was given.
    SELECT w.place, w.silent_at, w.looked_at, w.leaves_at, w.session_end INTO v FROM weir.visitors w WHERE w.room = s.number AND w.id = visitor;
    found_ := FOUND;
    EXIT WHEN pass = 2;
    IF v.silent_at <= s.waited OR v.leaves_at <= t THEN -- their time is over, and they are not removed yet
      DELETE FROM weir.visitors w WHERE w.room = s.number AND w.id = visitor;
      IF v.place IS NOT NULL THEN
        PERFORM weir.unqueued(s.number, ARRAY[v.place], ARRAY[visitor]);
        s.waiting := s.waiting - 1;
        lapsed := lapsed + 1;
      ELSE
        s.inside := s.inside - 1;
        IF v.session_end IS NULL THEN
          missed := missed + 1;
        ELSE
          departed := departed + 1;
        END IF;
      END IF;
      changed := true;
      found_ := false;
    END IF;
    given := CASE ticket WHEN 1 THEN at_place WHEN 2 THEN ending - session END;
    lost := began <> s.started OR provisional;
    FOR restart IN 1 .. cardinality(s.torn) BY 2 LOOP
      lost := lost OR given > s.torn[restart] AND given <= s.torn[restart + 1];
    END LOOP;
    IF ticket = 2 AND lost AND ending > t AND (NOT found_ OR v.place IS NOT NULL) THEN
      IF found_ THEN
        PERFORM weir.unqueued(s.number, ARRAY[v.place], ARRAY[visitor]);
        s.waiting := s.waiting - 1;
      END IF;
      at := least(t + idle, ending);
      INSERT INTO weir.visitors AS w (room, id, leaves_at, session_end) VALUES (s.number, visitor, at, ending)
        ON CONFLICT (room, id) DO UPDATE SET place = NULL, silent_at = NULL, looked_at = NULL, leaves_at = excluded.leaves_at, session_end = excluded.session_end;
      s.soonest := CASE WHEN s.inside = 0 THEN at ELSE least(s.soonest, at) END;
      s.inside := s.inside + 1;
      changed := true;
    ELSIF NOT found_ THEN
      IF ticket = 1 AND lost THEN
        IF began <> s.started AND began <> 0 THEN
          s.hold := greatest(s.hold, s.started + recovery);
        END IF;
        IF at_place <> 0 AND t >= opens THEN
          joined := least(at_place, t);
        END IF;
      ELSIF joins THEN
        IF t >= opens THEN
          joined := greatest(t, s.latest + 1);
        END IF;
      ELSE -- enters only if nobody waits, and there is a token and a place
        EXIT WHEN s.waiting > 0 OR t < greatest(s.hold, opens) OR paused_ = 1 OR room_size > 0 AND s.inside >= room_size;
        full_ := greatest(s.full_at, t) + per_ / n_;
        rest_ := per_ % n_ + CASE WHEN s.full_at < t THEN 0 ELSE s.rest END;
        EXIT WHEN full_ + rest_ / n_ - burst * per_ / n_ + CASE WHEN rest_ % n_ > burst * per_ % n_ THEN 1 ELSE 0 END > t;
        joined := greatest(t, s.latest + 1);
      END IF;
      IF s.waiting >= max_waiting THEN
        full_queue := true;
      ELSE
        -- by lot: before the opening, or before now without one
        joined := coalesce(joined, CASE WHEN opens > 0 THEN opens ELSE t END - least(greatest(lot, 1), 3600000000));
        s.latest := greatest(s.latest, joined);
        INSERT INTO weir.visitors (room, id, place, silent_at, looked_at) VALUES (s.number, visitor, joined, s.waited + poll_timeout, s.waited + poll_timeout);
        PERFORM weir.queued(s.number, joined, visitor);
        s.waiting := s.waiting + 1;
        changed := true;
      END IF;
    END IF;
    EXIT WHEN NOT changed;
  END LOOP;

  IF s.waiting = 0 OR t < opens THEN
    s.since := 0;
    s.win := 0;
    s.before := 0;
    s.counted := 0;
  ELSIF s.since = 0 THEN
    s.since := t;
    s.win := t;
    s.before := 0;
    s.counted := 0;
  END IF;

  -- What becomes of the visitor: 0 outside, 1 waiting, 2 admitted, 3 inside, 4 there is no place.
  IF NOT found_ THEN
    NULL;
  ELSIF v.place IS NOT NULL THEN
    result := 1;
    shown := v.place;
    UPDATE weir.visitors w SET silent_at = s.waited + poll_timeout, looked_at = least(w.looked_at, s.waited + poll_timeout) WHERE w.room = s.number AND w.id = visitor;
    SELECT p.place, p.id INTO head FROM weir.parts p WHERE p.room = s.number AND (p.place, p.id) <= (v.place, visitor) ORDER BY p.place DESC, p.id DESC LIMIT 1;
    SELECT coalesce((SELECT sum(p.n) FROM weir.parts p WHERE p.room = s.number AND (p.place, p.id) < (head.place, head.id)), 0)
      + (SELECT count(*) FROM weir.visitors w WHERE w.room = s.number AND w.place IS NOT NULL AND (w.place, w.id) >= (head.place, head.id) AND (w.place, w.id) < (v.place, visitor)) INTO ahead;
  ELSIF v.session_end IS NULL AND NOT enters THEN
    result := 2;
  ELSE
    result := 3;
    stop := v.session_end;
    IF stop IS NULL THEN
      stop := t + session;
      entered := 1;
    END IF;
    IF enters THEN
      UPDATE weir.visitors w SET session_end = stop, leaves_at = least(t + idle, stop) WHERE w.room = s.number AND w.id = visitor;
      s.soonest := least(s.soonest, t + idle, stop);
    END IF;
  END IF;
  IF full_queue THEN
    result := 4;
  END IF;
  IF s.since > 0 THEN
    i := (t - s.win) / win_size;
    IF i > 0 THEN
      s.before := CASE WHEN i = 1 THEN s.counted ELSE 0 END;
      s.counted := 0;
      s.win := s.win + i * win_size;
    END IF;
    admissions := s.before + s.counted;
    span := t - greatest(s.since, s.win - win_size);
  END IF;
  UPDATE weir.rooms r SET expires = reading + greatest(session, idle, enter_within, poll_timeout) + recovery + 3600000000, started = s.started, now = s.now, behind = s.behind, further = s.further, server = s.server, torn = s.torn,
    waited = s.waited, swept = s.swept, hold = s.hold, latest = s.latest, called = s.called, n = s.n, per = s.per, paused = s.paused, full_at = s.full_at, rest = s.rest,
    since = s.since, win = s.win, before = s.before, counted = s.counted, waiting = s.waiting, inside = s.inside, soonest = s.soonest WHERE r.number = s.number;
  RETURN concat_ws(' ', result, shown, ahead, s.waiting, s.inside, admissions, span, stop, s.started, t, entered, lapsed, missed, departed);
END $weir$;
