-- Times are microseconds since 1970, by the server's clock.

CREATE SCHEMA IF NOT EXISTS weir;

CREATE TABLE IF NOT EXISTS weir.migrations (
  version integer PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now()
);

-- A row for each key of a limit that is not idle. No index but that of id, so that updates of a row
-- change no index (HOT) and reuse the room that fillfactor leaves on its page.
CREATE /*unlogged*/ TABLE IF NOT EXISTS weir.states (
  id bytea PRIMARY KEY,
  idle bigint NOT NULL,        -- from when on the row says nothing that a new one would not say
  def text,                    -- the limit: the numbers of its parameters, and the name of its calendar
  s numeric[],                 -- the state under that limit
  used bigint, ends bigint,    -- with two versions of the limit: see versions.sql
  odef text, os numeric[], oused bigint, oends bigint, -- the other version
  seen bigint, behind bigint, further bigint           -- the key's clock: see clock.sql
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- The latest call of each connection lane of a process that charged anything, with its reply: a call
-- whose reply was lost is repeated as it is, and carried out once. A lane sends one call at a time.
CREATE /*unlogged*/ TABLE IF NOT EXISTS weir.calls (
  lane bigint PRIMARY KEY,
  number bigint NOT NULL,
  at bigint NOT NULL,
  reply text NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000);

-- Settlements that may be repeated by another call: the SHA-256 of their weir.Charge.Once.
CREATE /*unlogged*/ TABLE IF NOT EXISTS weir.settlements (
  once bytea PRIMARY KEY,
  until bigint NOT NULL
);

-- What is known of a key while a call is carried out.
DO $$ BEGIN
  CREATE TYPE weir.entry AS (
    id bytea, stored boolean,
    def text, p numeric[], s numeric[], used bigint, ends bigint,
    odef text, op numeric[], os numeric[], oused bigint, oends bigint,
    seen bigint, behind bigint, further bigint,
    now bigint,      -- by the key's clock; null until that is needed
    behinder bigint, -- how far the server's clock was behind, where this call was the first to meet that
    moved boolean,   -- the key's clock has changed
    dirty boolean,   -- the state has changed
    begun integer,   -- null: one version; 0: two; 1: the caller's has just begun, or was converted
    keep boolean,    -- a refusal, too, stores that the caller's version has begun
    joint boolean    -- the caller's version has no state: the two others decide
  );
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- The result of a charge: the state after it, and what giving it back needs to know.
DO $$ BEGIN
  CREATE TYPE weir.booked AS (s numeric[], ticket numeric[], inexact integer);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- What giving back a charge leaves, and whether that came too late.
DO $$ BEGIN
  CREATE TYPE weir.refunded AS (s numeric[], expired boolean);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- The result of one operation.
DO $$ BEGIN
  CREATE TYPE weir.asked AS (e weir.entry, reply text, admitted boolean, made boolean, inexact integer);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- A limit with its parameters.
DO $$ BEGIN
  CREATE TYPE weir.prepared AS (p numeric[]);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- The processes that use this store, for the shares that they have while it is unavailable.
CREATE /*unlogged*/ TABLE IF NOT EXISTS weir.nodes (
  prefix text,
  id text,
  until bigint NOT NULL,
  PRIMARY KEY (prefix, id)
) WITH (fillfactor = 20);
