-- Two versions of a limit that are in use at once, as during a rolling deploy: a key has a state for
-- each. The caller's own version decides, and what it admits is charged to the other one too. used is
-- when a version last admitted, or began, and ends is from when on it may be dropped, as what it admitted
-- has come back. See docs/guarantees.md, "Two versions at once", and weirtest.Versions, which is the
-- model of this.

-- filledto is how far a version is filled by what another one admits: one capacity beyond full.
CREATE OR REPLACE FUNCTION weir.filledto(p numeric[]) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  RETURN least(2 * greatest(p[4], 1), 9007199254740991);
END $weir$;

-- held is what is used of a limit, also beyond its capacity.
CREATE OR REPLACE FUNCTION weir.held(p numeric[], s numeric[], t numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN 0;
  ELSIF p[1] = 4 THEN
    RETURN weir.counter_held(p, s, t);
  END IF;
  RETURN weir.spent(p, s, t);
END $weir$;

-- lost reports whether a limit goes by a calendar that the caller cannot know, as it lacks the time
-- zone.
CREATE OR REPLACE FUNCTION weir.lost(p numeric[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  RETURN p[1] = 3 AND p[5] = 2 AND cardinality(p) = 8;
END $weir$;

-- endof is when a state is idle again.
CREATE OR REPLACE FUNCTION weir.endof(p numeric[], s numeric[], t numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF s IS NULL THEN
    RETURN t;
  END IF;
  RETURN least(t + (weir.look(p, s, t))[2], 9007199254740991);
END $weir$;

-- fill charges a limit for what another version admitted. It returns the amount, too.
CREATE OR REPLACE FUNCTION weir.fill(p numeric[], s numeric[], t numeric, cost numeric, keeps integer, OUT b weir.booked, OUT amount numeric)
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  amount := greatest(least(cost, weir.filledto(p) - weir.held(p, s, t)), 0);
  IF amount = 0 THEN
    b.s := s;
    b.inexact := 0;
    RETURN;
  END IF;
  b := weir.book(p, s, t, t, amount, keeps);
END $weir$;

-- sharesstate reports whether one state serves two limits: a change from one to the other and back
-- creates nothing, and loses less than 1/32 of what each charge takes.
CREATE OR REPLACE FUNCTION weir.sharesstate(p numeric[], q numeric[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  IF p[1] <> q[1] THEN
    RETURN false;
  END IF;
  CASE p[1]
  WHEN 1 THEN RETURN p[5] <> 2 AND q[5] <> 2 AND (p[6] = q[6] AND p[7] = q[7] OR p[7] >= 64 AND q[7] >= 64);
  WHEN 2 THEN RETURN p[7] = q[7];
  WHEN 3 THEN RETURN p[5] = q[5] AND p[7] = q[7] AND p[8] = q[8];
  WHEN 4 THEN RETURN p[6] = q[6];
  WHEN 5 THEN RETURN p[7] = q[7] AND p[8] = q[8];
  ELSE RETURN p[6] = q[6] AND (p[7] = q[7] OR p[7] >= p[5] AND q[7] >= q[5]);
  END CASE;
END $weir$;

-- sooner reports whether a state that two limits share comes back faster under the second one. A
-- refused caller is told so, and the state has to do so.
CREATE OR REPLACE FUNCTION weir.sooner(p numeric[], q numeric[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  RETURN p[1] = 1 AND q[7] * p[6] < p[7] * q[6] OR p[1] = 2 AND q[6] > p[6];
END $weir$;

-- takeover is what a version begins with that takes over what another one has used: at most one
-- capacity beyond full.
CREATE OR REPLACE FUNCTION weir.takeover(p numeric[], pdef text, s numeric[], q numeric[], qdef text, t numeric) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  changed numeric[] := weir.change(p, pdef, s, q, qdef, t);
BEGIN
  IF weir.held(q, changed, t) <= weir.filledto(q) THEN
    RETURN changed;
  END IF;
  RETURN (weir.book(q, weir.contact(q, t), t, t, weir.filledto(q), 0)).s;
END $weir$;

-- swapped is an entry with its two versions in the other order.
CREATE OR REPLACE FUNCTION weir.swapped(e weir.entry) RETURNS weir.entry
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.entry := e;
BEGIN
  r.def := e.odef; r.p := e.op; r.s := e.os; r.used := e.oused; r.ends := e.oends;
  r.odef := e.def; r.op := e.p; r.os := e.s; r.oused := e.used; r.oends := e.ends;
  RETURN r;
END $weir$;

-- alone is an entry without its other version.
CREATE OR REPLACE FUNCTION weir.alone(e weir.entry) RETURNS weir.entry
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  e.odef := NULL; e.op := NULL; e.os := NULL; e.oused := NULL; e.oends := NULL;
  RETURN e;
END $weir$;

-- own makes the caller's version the entry's own.
CREATE OR REPLACE FUNCTION weir.own(e weir.entry, p numeric[], pdef text) RETURNS weir.entry
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  t numeric := e.now;
  old weir.entry;
BEGIN
  IF e.odef IS NOT NULL THEN
    old := e; -- the one that was not used for longest first
    IF e.used >= e.oused THEN
      old := weir.swapped(e);
    END IF;
    IF NOT (e.odef = pdef OR e.oends > t AND NOT weir.lost(e.op)) THEN
      IF e.def = pdef OR e.ends > t AND NOT weir.lost(e.p) THEN
        e := weir.alone(e);
      ELSIF e.used < e.oused THEN
        e := weir.alone(weir.swapped(e));
      ELSE
        e := weir.alone(e);
      END IF;
    ELSIF NOT (e.def = pdef OR e.ends > t AND NOT weir.lost(e.p)) THEN
      e := weir.alone(weir.swapped(e));
    END IF;
  END IF;
  e.begun := 0;
  e.keep := false;
  e.joint := false;
  IF e.def = pdef THEN
    RETURN e;
  ELSIF e.odef = pdef THEN
    RETURN weir.swapped(e);
  ELSIF NOT weir.sharesstate(e.p, p) AND e.odef IS NOT NULL AND weir.sharesstate(e.op, p) THEN
    e := weir.swapped(e);
  END IF;
  IF weir.sharesstate(e.p, p) THEN
    e.begun := 1;
    e.keep := weir.sooner(e.p, p);
    e.s := weir.change(e.p, e.def, e.s, p, pdef, t);
    e.def := pdef;
    e.p := p;
    RETURN e;
  END IF;
  IF e.odef IS NULL THEN
    old := e;
    e := weir.swapped(e);
    e.oused := t;
    e.oends := CASE WHEN weir.lost(e.op) THEN t ELSE weir.endof(e.op, e.os, t) END;
    IF e.oends <= t THEN
      e := weir.alone(e);
    END IF;
  ELSE
    IF old.used > t - 60000000 THEN -- while both were used within this time, a third one replaces neither
      e.joint := true;
      RETURN e;
    END IF;
    e.odef := old.odef; e.op := old.op; e.os := old.os; e.oused := old.oused; e.oends := old.oends;
  END IF;
  -- It takes over from the one that it replaces, also where the other one counted more: versions in turn
  -- would otherwise renew what a long window has counted, and refuse for good.
  e.begun := 1;
  e.keep := true;
  e.s := weir.takeover(old.p, old.def, old.s, p, pdef, t);
  e.def := pdef;
  e.p := p;
  e.used := t;
  e.ends := weir.endof(p, e.s, t);
  RETURN e;
END $weir$;

-- given is a version's state after a charge was replaced by its actual cost. It was the version that
-- decided, with def, cost and ticket, or the other one, with odef, amount and oticket.
CREATE OR REPLACE FUNCTION weir.given(p numeric[], pdef text, s numeric[], t numeric, actual numeric, def text, cost numeric, ticket numeric[], odef text, amount numeric, oticket numeric[]) RETURNS weir.refunded
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  r weir.refunded;
BEGIN
  r.s := s;
  r.expired := false;
  IF s IS NOT NULL AND pdef = def THEN
    RETURN weir.refund(p, s, t, ticket, cost - actual);
  ELSIF s IS NOT NULL AND pdef = odef AND amount > actual AND oticket IS NOT NULL THEN
    RETURN weir.refund(p, s, t, oticket, amount - actual);
  END IF;
  RETURN r;
END $weir$;
