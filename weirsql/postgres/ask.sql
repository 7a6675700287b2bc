-- ask carries out one operation, by its number in weir.Op: 0 take, 1 peek, 2 reserve, 3 settle, 4 take
-- some, 5 carry, 6 reset, 7 give back. more is the longest acceptable delay of a reserve, -1 for any; of
-- a take, 1: a receipt is wanted, 2: its cost will be settled; of a peek, 3: how much is used. paper is a receipt, or 'settled' for a
-- reserve whose cost will be settled.
--
-- The reply is the wait (0 for yes, -1 for never), what remains, the reset, and more as asked; or a word.
CREATE OR REPLACE FUNCTION weir.ask(e weir.entry, p numeric[], pdef text, op integer, cost numeric, more numeric, paper text) RETURNS weir.asked
LANGUAGE plpgsql AS $weir$
DECLARE
  r weir.asked;
  t numeric := e.now;
  own numeric := p[2];     -- the largest cost of the caller's version
  largest numeric := p[2]; -- that of what decides
  s numeric[];
  os numeric[];
  seen numeric[];
  oseen numeric[];
  admitted boolean := true;
  retry numeric := 0;
  delay numeric := 0;
  taken numeric := 0;
  plan numeric[];
  oplan numeric[];
  look numeric[];
  olook numeric[];
  b weir.booked;
  f record;
  def text := pdef;
  odef text;
  oamount numeric;
  oticket numeric[];
  keeps integer := 0;
BEGIN
  r.made := false;
  r.inexact := 0;
  e.begun := NULL;
  e.keep := false;
  e.joint := false;
  IF e.s IS NOT NULL AND (e.odef IS NOT NULL OR e.def <> pdef) THEN
    e := weir.own(e, p, pdef);
  END IF;

  IF op = 3 THEN
    f := weir.settle(e, p, pdef, cost, paper);
    e := f.e;
    r.made := f.made;
    IF f.expired THEN
      r.e := e;
      r.reply := 'EXPIRED';
      r.admitted := true;
      RETURN r;
    END IF;
    op := 1;
    cost := 0;
  ELSIF op = 6 THEN
    IF e.s IS NOT NULL THEN
      e := weir.alone(e);
      e.s := NULL; e.joint := false; e.dirty := true;
      e.behind := NULL; e.further := NULL;
      r.made := true;
    END IF;
    op := 1;
    cost := 0;
  ELSIF op = 7 THEN
    IF p[1] <> 3 THEN
      r.e := e;
      r.reply := 'NOCOUNT';
      r.admitted := false;
      RETURN r;
    END IF;
    IF cost > 0 AND e.s IS NOT NULL THEN
      IF e.p[1] = 3 THEN
        e.s := weir.fixed_giveback(e.p, e.s, t, cost);
      END IF;
      IF e.odef IS NOT NULL AND e.op[1] = 3 AND e.os IS NOT NULL THEN
        e.os := weir.fixed_giveback(e.op, e.os, t, cost);
      END IF;
      e.dirty := true;
      r.made := true;
    END IF;
    op := 1;
    cost := 0;
  ELSIF op = 5 THEN
    IF e.begun = 1 THEN
      e.dirty := true;
    END IF;
    op := 1;
    cost := 0;
  END IF;

  s := e.s;
  IF e.joint THEN
    os := e.os;
    largest := least(e.p[2], e.op[2]);
    p := e.p;
    def := e.def;
  ELSIF op <> 1 AND s IS NULL AND cost > 0 AND (cost <= largest OR op = 4) THEN
    s := weir.contact(p, t);
    IF s IS NOT NULL THEN -- without a stored state, each retry would start again
      e := weir.put(e, p, pdef, s);
    END IF;
  END IF;
  seen := s;
  IF s IS NULL THEN
    seen := weir.contact(p, t);
  END IF;
  IF op = 4 AND cost > 0 THEN
    look := weir.look(p, seen, t);
    cost := least(cost, look[1], largest);
    IF e.joint THEN
      olook := weir.look(e.op, os, t);
      cost := least(cost, olook[1]);
    END IF;
    admitted := cost > 0;
    IF NOT admitted THEN
      cost := 1;
    END IF;
  END IF;
  IF e.keep AND op <> 1 AND s IS NOT NULL AND cost > 0 AND cost <= largest THEN -- a version begins, as at a first call
    e.dirty := true;
  END IF;

  IF cost < 0 OR cost > largest THEN
    admitted := false;
    retry := -1;
  ELSIF cost > 0 THEN
    plan := weir.plan(p, seen, t, cost);
    IF e.joint THEN
      oplan := weir.plan(e.op, os, t, cost);
      plan[1] := CASE WHEN plan[1] = -1 OR oplan[1] = -1 THEN -1 ELSE greatest(plan[1], oplan[1]) END;
      plan[2] := CASE WHEN plan[2] = -1 OR oplan[2] = -1 THEN -1 ELSE greatest(plan[2], oplan[2]) END;
    END IF;
    IF op = 2 THEN
      IF p[1] = 4 OR e.joint THEN -- no booking ahead
        more := 0;
      END IF;
      admitted := plan[1] <> -1 AND plan[2] = 0 AND (more < 0 OR plan[1] <= more);
      IF plan[1] = -1 OR plan[2] = -1 THEN
        retry := -1;
      ELSIF more < 0 THEN
        retry := plan[2];
      ELSE
        retry := greatest(plan[2], plan[1] - more);
      END IF;
      delay := plan[1];
      keeps := CASE WHEN paper = 'settled' THEN 1 ELSE 2 END;
    ELSE
      admitted := plan[1] = 0 AND plan[2] = 0;
      retry := CASE WHEN plan[1] = -1 OR plan[2] = -1 THEN -1 ELSE greatest(plan[1], plan[2]) END;
      IF op = 0 AND more = 2 THEN
        keeps := 1;
      END IF;
    END IF;
    IF admitted AND op <> 1 THEN
      b := weir.book(p, s, t, CASE WHEN e.joint THEN t ELSE least(t + delay, 9007199254740991) END, cost, keeps);
      r.inexact := b.inexact;
      seen := b.s;
      taken := cost;
      r.made := true;
      IF e.joint THEN
        e.s := b.s;
        f := weir.book(e.op, os, t, t, cost, keeps);
        os := f.s;
        e.os := os;
        e.dirty := true;
        odef := e.odef;
        oamount := cost;
        oticket := f.ticket;
      ELSE
        e := weir.put(e, p, pdef, b.s);
        IF e.odef IS NOT NULL THEN
          f := weir.fill(e.op, e.os, t, cost, keeps);
          e.os := (f.b).s;
          e.used := t;
          e.ends := weir.endof(p, e.s, t);
          odef := e.odef;
          oamount := f.amount;
          oticket := (f.b).ticket;
        END IF;
      END IF;
    END IF;
  END IF;

  look := weir.look(p, seen, t);
  IF e.joint THEN
    olook := weir.look(e.op, os, t);
    look[1] := least(look[1], olook[1]);
    look[2] := greatest(look[2], olook[2]);
    IF NOT admitted AND retry = -1 AND cost > 0 AND cost <= own THEN
      retry := greatest(least(e.used, e.oused) + 60000000 - t, 1); -- a third version may take the place of one then
    END IF;
  END IF;
  IF admitted THEN
    retry := 0;
  END IF;
  r.reply := retry || ' ' || look[1] || ' ' || look[2];
  IF op = 2 THEN
    r.reply := r.reply || ' ' || CASE WHEN admitted THEN delay ELSE 0 END;
  ELSIF op = 4 THEN
    r.reply := r.reply || ' ' || taken;
  ELSIF op = 1 AND more = 3 THEN -- also beyond the limit
    r.reply := r.reply || ' ' || least(greatest(weir.held(p, seen, t), CASE WHEN e.joint THEN weir.held(e.op, os, t) END), 9007199254740991);
  END IF;
  IF (r.reply ~ '^(-?[0-9]{1,18}( |$))+$') IS NOT TRUE THEN -- no state that the functions have written
    RAISE EXCEPTION USING ERRCODE = 'WR003', MESSAGE = format('weir: the state of a key of the limit %s holds numbers that it cannot have', e.def);
  END IF;
  IF op = 2 AND admitted OR (op = 4 OR op = 0 AND more >= 1) AND b.ticket IS NOT NULL THEN
    r.reply := r.reply || ' ' || concat_ws('~', def, CASE WHEN op = 2 THEN cost ELSE taken END, t, coalesce(b.ticket, '{}'), odef, oamount, coalesce(oticket::text, CASE WHEN odef IS NOT NULL THEN '-' END));
  END IF;
  r.e := e;
  r.admitted := admitted;
  RETURN r;
END $weir$;

-- put makes a state the entry's own.
CREATE OR REPLACE FUNCTION weir.put(e weir.entry, p numeric[], pdef text, s numeric[]) RETURNS weir.entry
LANGUAGE plpgsql IMMUTABLE AS $weir$
BEGIN
  e.s := s;
  e.p := p;
  e.def := pdef;
  e.dirty := true;
  RETURN e;
END $weir$;

-- settle replaces the cost of a receipt by the actual one.
CREATE OR REPLACE FUNCTION weir.settle(INOUT e weir.entry, p numeric[], pdef text, actual numeric, paper text, OUT made boolean, OUT expired boolean)
LANGUAGE plpgsql AS $weir$
DECLARE
  words text[] := string_to_array(paper, '~');
  t numeric := e.now;
  def text := pdef;
  cost numeric := 0;
  ticket numeric[];
  odef text;
  amount numeric;
  oticket numeric[];
  f record;
  r weir.refunded;
  o weir.refunded;
  s numeric[] := e.s;
BEGIN
  made := false;
  expired := false;
  IF cardinality(words) >= 4 THEN -- without a receipt, nothing was reserved: the whole cost is charged
    def := words[1];
    cost := words[2]::numeric;
    ticket := words[4]::numeric[];
    IF cardinality(words) >= 7 THEN
      odef := words[5];
      amount := words[6]::numeric;
      oticket := CASE WHEN words[7] <> '-' THEN words[7]::numeric[] END;
    END IF;
  END IF;
  IF actual < 0 THEN
    RETURN;
  ELSIF actual = cost THEN
    IF s IS NOT NULL AND ticket IS NOT NULL AND def = pdef AND e.begun IS DISTINCT FROM 1 AND NOT e.joint THEN
      s := weir.settled(p, s, ticket);
      IF s <> e.s THEN
        e := weir.put(e, p, pdef, s);
        made := true;
      END IF;
    END IF;
  ELSIF actual > cost THEN -- also of a version that is gone
    IF e.joint THEN -- the caller's version has no state: its work counts for those that have one
      f := weir.fill(e.p, e.s, t, actual - cost, 0);
      e.s := (f.b).s;
      f := weir.fill(e.op, e.os, t, actual - cost, 0);
      e.os := (f.b).s;
      e.dirty := true;
    ELSE
      IF s IS NOT NULL AND ticket IS NOT NULL AND def = pdef AND e.begun IS DISTINCT FROM 1 THEN
        s := weir.settled(p, s, ticket);
      END IF;
      IF s IS NULL THEN
        s := weir.contact(p, t);
      END IF;
      e := weir.put(e, p, pdef, (weir.book(p, s, t, t, actual - cost, 0)).s);
      IF e.odef IS NOT NULL THEN
        f := weir.fill(e.op, e.os, t, actual - cost, 0);
        e.os := (f.b).s;
        e.used := t;
        e.ends := weir.endof(p, e.s, t);
      END IF;
    END IF;
    made := true;
  ELSIF s IS NOT NULL THEN
    r := weir.given(e.p, e.def, e.s, t, actual, def, cost, ticket, odef, amount, oticket);
    o := weir.given(e.op, e.odef, e.os, t, actual, def, cost, ticket, odef, amount, oticket);
    expired := r.expired OR o.expired;
    IF r.s <> e.s OR o.s <> e.os THEN
      e.s := r.s;
      e.os := o.s;
      e.dirty := true;
      made := true;
    END IF;
  END IF;
END $weir$;
