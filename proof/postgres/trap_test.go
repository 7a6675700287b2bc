package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

// traps are operators and functions that fit the arguments of ours better than those of PostgreSQL do, as another
// user may make them where the schema public is everybody's (the default before PostgreSQL 15). They are found
// wherever a statement leaves the search path as it is, and would run with the rights of Weir's user.
const traps = `
DO $$
DECLARE
  l text;
  r text;
  o text;
  f text;
BEGIN
  FOREACH l IN ARRAY '{smallint,integer,bigint,numeric,text,name}'::text[] LOOP
    FOREACH r IN ARRAY '{smallint,integer,bigint,numeric,text,name}'::text[] LOOP
      CONTINUE WHEN l = r;
      EXECUTE format('CREATE FUNCTION public.trap(%s, %s) RETURNS boolean LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION $t$trapped$t$; END''', l, r);
      FOREACH o IN ARRAY '{<,<=,=,<>,>=,>,+,-,*,/,%,||,~,~~}'::text[] LOOP
        IF NOT EXISTS (SELECT FROM pg_operator WHERE oprname = o AND oprleft = l::regtype AND oprright = r::regtype) THEN
          EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.trap)', o, l, r);
        END IF;
      END LOOP;
    END LOOP;
  END LOOP;
  FOREACH f IN ARRAY ARRAY['unnest(text[])', 'cardinality(text[])', 'cardinality(bytea[])', 'cardinality(bigint[])', 'cardinality(numeric[])', 'array_to_string(text[], text)',
    'quote_ident(name)', 'format(text, text)', 'format(text, name)', 'div(numeric, integer)', 'div(bigint, bigint)', 'set_config(text, name, boolean)'] LOOP
    EXECUTE format('CREATE FUNCTION public.%s RETURNS text LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION $t$trapped$t$; END''', f);
  END LOOP;
END $$`

// trap makes the traps, and tests that they work.
func trap(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), traps); err != nil {
		t.Fatal(err)
	}
	for _, expression := range []string{"1::numeric >= 1", "1::bigint + 1::numeric", "'a'::text || 1", "cardinality('{a}'::text[])", "quote_ident(current_user)"} {
		if _, err := pool.Exec(t.Context(), "SELECT "+expression); err == nil || !strings.Contains(err.Error(), "trapped") {
			t.Errorf("%s is no trap: %v", expression, err)
		}
	}
}

// TestTraps: what a process asks besides charges calls nothing that other users have made.
func TestTraps(t *testing.T) {
	w := newWorld(t)
	s, err := weirpgx.New(w.pool, weirsql.Options{Schema: weirsql.Schema{Clock: testClock}, SweepEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := s.Beat(t.Context(), "a", time.Minute); err != nil || n != 1 {
		t.Errorf("%d nodes, %v", n, err)
	}
	for _, visitor := range []string{"a", "b", "c", "b"} { // one enters, two wait, and one polls again
		poll := weirsql.RoomPoll{
			Prefix: "traps", Room: "sale", Patience: time.Minute, Visitor: visitor, Enter: true, Join: true,
			Parameters: []int64{1, 86_400_000_000, 1, 1, 1e9, 1e9, 1e9, 1e9, 100, 60e6, 45e6, 30e6, 100, 0, 0},
		}
		if _, err := (weirsql.Schema{}).Poll(t.Context(), weirpgx.Querier(w.pool), poll); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	migrate(t, w.pool, weirsql.Schema{Name: "second"})
}
