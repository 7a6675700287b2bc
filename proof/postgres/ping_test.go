package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

// testPing: Ping fails for users whose charges would fail, and says why, as the charges do.
func testPing(t *testing.T, server *servers.PostgresServer, pool *pgxpool.Pool) {
	for _, user := range []struct{ name, setup, want string }{
		{"whole", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA weir TO whole", ""},
		{"half", "GRANT SELECT ON ALL TABLES IN SCHEMA weir TO half", "permission denied for table states"},
		{"\"Isolated\"", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA weir TO \"Isolated\"; ALTER ROLE \"Isolated\" SET default_transaction_isolation = 'repeatable read'",
			"ALTER ROLE \"Isolated\" SET default_transaction_isolation = 'read committed'"},
		{"reader", "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA weir TO reader; ALTER ROLE reader SET default_transaction_read_only = on", "in a read-only transaction"},
	} {
		if _, err := pool.Exec(t.Context(), "CREATE ROLE "+user.name+" LOGIN; GRANT USAGE ON SCHEMA weir TO "+user.name+"; "+user.setup); err != nil {
			t.Fatal(err)
		}
		s := open(t, weirpgx.Querier(connectTo(t, strings.Replace(server.URL(), "postgres@", strings.Trim(user.name, `"`)+"@", 1))), weirsql.Options{Prefix: "ping"})
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		defer cancel()
		for range 2 {
			if err := s.Ping(ctx); user.want == "" && err != nil || user.want != "" && (err == nil || !strings.Contains(err.Error(), user.want)) {
				t.Errorf("%s: %v, want %q", user.name, err, user.want)
			}
		}
		// some errors are repeated until the caller leaves; it learns the reason then
		charge := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			return s.Do(ctx, []weir.Charge{{Name: "x", Limit: hour, Cost: 1}}, make([]weir.Decision, 1))
		}
		var err error
		servers.Poll(t, user.name+" has the reason", func() bool {
			err = charge(time.Second)
			return (err == nil) == (user.want == "") && (err == nil || strings.Contains(err.Error(), user.want))
		})
		if user.name == "reader" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that left: %v", err)
		}
	}
	// A user that may charge, and lacks a right that other calls need, learns it before these fail.
	for _, table := range []string{"calls", "settlements", "nodes", "rooms", "visitors", "parts"} {
		user := "no_" + table
		if _, err := pool.Exec(t.Context(), "CREATE ROLE "+user+" LOGIN; GRANT USAGE ON SCHEMA weir TO "+user+"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA weir TO "+user+
			"; REVOKE DELETE ON weir."+table+" FROM "+user); err != nil {
			t.Fatal(err)
		}
		s := open(t, weirpgx.Querier(connectTo(t, strings.Replace(server.URL(), "postgres@", user+"@", 1))), weirsql.Options{Prefix: "ping"})
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		defer cancel()
		fix := "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA weir TO " + user + ";"
		if err := s.Ping(ctx); err == nil || !strings.Contains(err.Error(), "permission denied for table "+table) || !strings.Contains(err.Error(), fix) {
			t.Errorf("without the right to delete from %s: %v", table, err)
		}
		if _, err := pool.Exec(t.Context(), fix); err != nil {
			t.Fatal(err)
		}
		if err := s.Ping(ctx); err != nil {
			t.Errorf("with all rights: %v", err)
		}
	}
	if _, err := pool.Exec(t.Context(), "CREATE ROLE stranger LOGIN"); err != nil {
		t.Fatal(err)
	}
	stranger := weirpgx.Querier(connectTo(t, strings.Replace(server.URL(), "postgres@", "stranger@", 1)))
	s := open(t, stranger, weirsql.Options{Prefix: "ping"})
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "GRANT USAGE ON SCHEMA weir TO stranger;") {
		t.Errorf("without the schema: %v", err)
	}
	if err := (weirsql.Schema{}).Migrate(t.Context(), stranger); err == nil || !strings.Contains(err.Error(), "GRANT USAGE ON SCHEMA weir TO stranger;") {
		t.Errorf("without the right to look at the schema: %v", err)
	}
	if err := (weirsql.Schema{Name: "own"}).Migrate(t.Context(), stranger); err == nil || !strings.Contains(err.Error(), "may not make") || !strings.Contains(err.Error(), "`weir store sql --schema own | psql`") {
		t.Errorf("without the right to make tables: %v", err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM weir.states WHERE substr(id, 1, 1) = '\x02'`).Scan(&n); err != nil || n != 0 {
		t.Errorf("Ping has left %d rows: %v", n, err)
	}
}
