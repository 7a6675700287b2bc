-- sweep removes rows that have said nothing for a grace time: it looks at no more than most rows, in the
-- order of their ids after a given one, and leaves out those that are locked. It returns how many it
-- removed, and the id to go on after, in hex; '' begins again. It also removes what has expired in other tables: of a room
-- that nobody polls, up to most visitors at a time.
CREATE OR REPLACE FUNCTION weir.sweep(after bytea, most integer, grace bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $weir$
#variable_conflict use_column
DECLARE
  reading bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
  looked bytea[];
  room_ bigint;
  removed integer;
BEGIN
  DELETE FROM weir.calls WHERE lane IN (
    SELECT c.lane FROM weir.calls c WHERE c.at < reading - 86400000000 LIMIT most FOR UPDATE SKIP LOCKED);
  DELETE FROM weir.settlements WHERE once IN (
    SELECT o.once FROM weir.settlements o WHERE o.until < reading LIMIT most FOR UPDATE SKIP LOCKED);
  UPDATE weir.rooms SET prefix = NULL, name = NULL WHERE number IN (
    SELECT r.number FROM weir.rooms r WHERE r.name IS NOT NULL AND r.expires < reading FOR UPDATE SKIP LOCKED);
  FOR room_ IN SELECT r.number FROM weir.rooms r WHERE r.name IS NULL FOR UPDATE SKIP LOCKED LOOP
    DELETE FROM weir.visitors WHERE room = room_ AND id IN (SELECT v.id FROM weir.visitors v WHERE v.room = room_ LIMIT most);
    DELETE FROM weir.parts WHERE room = room_;
    DELETE FROM weir.rooms WHERE number = room_ AND NOT EXISTS (SELECT FROM weir.visitors v WHERE v.room = room_);
  END LOOP;
  SELECT array_agg(id) INTO looked FROM (SELECT id FROM weir.states WHERE id > after ORDER BY id LIMIT most) l;
  DELETE FROM weir.states WHERE id IN (
    SELECT s.id FROM weir.states s WHERE s.id = ANY (looked) AND s.idle < reading - grace FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS removed = ROW_COUNT;
  IF cardinality(looked) = most THEN
    RETURN removed || ' ' || encode(looked[most], 'hex');
  END IF;
  RETURN removed || ' ';
END $weir$;

-- beat is a heartbeat of a node that counts for ttl microseconds. It returns how many nodes with the same
-- prefix are alive.
CREATE OR REPLACE FUNCTION weir.beat(fleet text, node text, ttl bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $weir$
#variable_conflict use_column
DECLARE
  reading bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
BEGIN
  INSERT INTO weir.nodes (prefix, id, until) VALUES (fleet, node, reading + ttl)
    ON CONFLICT (prefix, id) DO UPDATE SET until = excluded.until;
  DELETE FROM weir.nodes WHERE (prefix, id) IN (
    SELECT n.prefix, n.id FROM weir.nodes n WHERE n.until < reading FOR UPDATE SKIP LOCKED);
  RETURN (SELECT count(*) FROM weir.nodes n WHERE n.prefix = fleet AND n.until >= reading);
END $weir$;
