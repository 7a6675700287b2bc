package postgres

import (
	"flag"
	"testing"

	"github.com/weirflow/weir/proof/load"
	"github.com/weirflow/weir/proof/servers"
)

var failoverCalls = flag.Int64("failover", 0, "how many calls are admitted before and after each failover; runs all cases. default: 300, and two cases")

// TestFailover: while several processes charge a primary, it is killed and its standby is promoted. The processes
// find the standby by the hosts of their URL. With a standby that each call waits for, nothing is lost; with one
// that follows later, what is lost was admitted, and is admitted at most once more.
func TestFailover(t *testing.T) {
	calls := max(*failoverCalls, 300)
	for _, c := range []struct {
		name        string
		synchronous bool
		keys        int
		burst       int64
		long        bool
	}{
		{"synchronous, one key", true, 1, 0, true},
		{"synchronous, 10,000 keys", true, 10_000, 0, false},
		{"asynchronous, one key", false, 1, 0, true},
		{"asynchronous, 10,000 keys", false, 10_000, 0, true},
		{"asynchronous, a limit that is reached", false, 1, 5 * calls, false},
	} {
		if c.long && *failoverCalls == 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			first := servers.StartPostgres(t, servers.PostgresOptions{})
			second, err := first.Standby(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := second.Stop(); err != nil {
					t.Error(err)
				}
			})
			pool := connect(t, first)
			follows := func() bool {
				var n int
				err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND (NOT $1 OR sync_state = 'sync')", c.synchronous).Scan(&n)
				return err == nil && n == 1
			}
			url := "postgres://postgres@" + first.Addr + "," + second.Addr + "/postgres?sslmode=disable&target_session_attrs=read-write"
			if c.synchronous {
				url += "&durable=true"
				for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
					if _, err := pool.Exec(t.Context(), statement); err != nil {
						t.Fatal(err)
					}
				}
			}
			servers.Poll(t, "the standby follows", follows)
			f := load.Start(t, 3, load.Task{URL: url, Keys: c.keys, Burst: c.burst})
			f.More(t, calls)
			first.Kill()
			if err := second.Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.burst > 0 {
				servers.Poll(t, "the limit is reached", func() bool { return f.Refused() > 100 })
			} else {
				f.More(t, calls)
			}
			f.Stop(t)
			n, charged := f.Admitted(), f.Charged(t, url)
			t.Logf("%d admitted, %d without a decision, %d charged", n, f.Unknown(), charged)
			switch {
			case charged > n+f.Unknown(), c.synchronous && charged < n:
				t.Errorf("%d admitted, %d without a decision, %d charged", n, f.Unknown(), charged)
			case c.burst > 0 && (charged != c.burst || n > 2*c.burst):
				t.Errorf("%d admitted, %d charged, of a limit of %d", n, charged, c.burst)
			}
		})
	}
}
