-- The clocks of keys. A key goes by the server's clock, also where that steps forward. But where the
-- server's clock steps back, to before what the key's clock had reached, the key's clock goes on: it
-- is ahead by what the server's clock is behind, until that has reached the same time again. So a step
-- back neither gives anything away nor has anyone wait for as long as it.
--
-- Two such steps are remembered, for clocks that swing. The smallest that is enough counts, and then
-- larger ones are forgotten: so a key's clock is never ahead of the times that a swinging clock shows.
-- seen is the time of the latest charge if the state does not show it, being in debt or promised ahead.
-- See weirtest.Versions, which is the model of this.

CREATE OR REPLACE FUNCTION weir.reachedby(e weir.entry) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  t numeric := weir.reached(e.p, e.s);
BEGIN
  IF e.odef IS NOT NULL THEN
    t := greatest(t, e.used, e.oused, weir.reached(e.op, e.os));
  END IF;
  RETURN least(t, 9007199254740991);
END $weir$;

-- settime sets the time of a key's clock.
CREATE OR REPLACE FUNCTION weir.settime(e weir.entry, reading bigint) RETURNS weir.entry
LANGUAGE plpgsql IMMUTABLE AS $weir$
DECLARE
  reached numeric;
BEGIN
  e.moved := false;
  IF e.s IS NULL THEN
    e.now := reading;
    RETURN e;
  END IF;
  reached := coalesce(e.seen::numeric, weir.reachedby(e));
  IF reading >= reached THEN
    e.now := reading;
    e.moved := e.behind IS NOT NULL;
    e.behind := NULL;
    e.further := NULL;
  ELSIF reading + e.behind >= reached THEN
    e.now := least(reading + e.behind, 9007199254740991);
    e.moved := e.further IS NOT NULL;
    e.further := NULL;
  ELSIF reading + e.further >= reached THEN
    e.now := least(reading + e.further, 9007199254740991);
  ELSE
    e.now := reached;
    e.behinder := reached - reading;
    IF e.behind IS NULL THEN
      e.behind := e.behinder;
    ELSE
      e.behind := coalesce(e.further, e.behind);
      e.further := e.behinder;
    END IF;
    e.moved := true;
  END IF;
  RETURN e;
END $weir$;
