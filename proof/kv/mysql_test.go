package kv

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirmysql"
)

// admin returns a pool of connections of root.
func admin(t *testing.T, s *servers.MariaDBServer) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+s.Addr+")/weir?multiStatements=true")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, script string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), script); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
}

func migrate(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := (weirmysql.Schema{}).Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// openedMySQL opens a store until the test ends.
func openedMySQL(t *testing.T, url string, o weirkv.Options) *weirmysql.Store {
	t.Helper()
	s, err := weirmysql.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func taken(t *testing.T, s weir.Store, key string, limit weir.Limit) (bool, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	out := make([]weir.Decision, 1)
	err := s.Do(ctx, []weir.Charge{{Name: "l", Key: key, Limit: limit, Cost: 1}}, out)
	return out[0].Allowed, err
}

// TestMySQLRights: a user without the table, or without a right on it, learns what an administrator has to run;
// with these rights, and no others, the store works.
func TestMySQLRights(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Users: true})
	db := admin(t, server)
	exec(t, db, "CREATE USER weir@'%' IDENTIFIED BY 'se/cret'; CREATE TABLE weir.nothing (id INT); GRANT SELECT ON weir.nothing TO weir@'%'")
	open := func(parameters string) *weirmysql.Store {
		return openedMySQL(t, "mysql://weir:se%2Fcret@"+server.Addr+"/weir"+parameters, weirkv.Options{Timeout: servers.Patience})
	}
	refused := func(s *weirmysql.Store, wants ...string) {
		t.Helper()
		err := s.Ping(t.Context())
		for _, want := range append(wants, "GRANT SELECT, INSERT, UPDATE, DELETE ON") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	refused(open(""), "denied")
	migrate(t, db)
	migrate(t, db) // it can be carried out again
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		refused(open("?migrate=false"), "denied")
		exec(t, db, "GRANT "+right+" ON weir.weir_states TO weir@'%'")
	}
	for _, name := range []string{"take", "lock", "write"} {
		refused(open("?migrate=false"), "denied", "GRANT EXECUTE ON PROCEDURE")
		exec(t, db, "GRANT EXECUTE ON PROCEDURE weir.weir_"+name+"_1 TO weir@'%'")
	}
	s := open("")
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if ok, err := taken(t, s, "k", weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}); !ok || err != nil {
		t.Error(ok, err)
	}
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	for url, want := range map[string]string{
		"mysql://weir:wrong@" + server.Addr + "/weir": "Access denied for user 'weir'",
		"mysql://root@" + server.Addr + "/none":       "Unknown database 'none': run `CREATE DATABASE`",
	} {
		if err := openedMySQL(t, url, weirkv.Options{}).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%v, want %q", err, want)
		}
	}

	// a server that has become a replica is named, and used again once it may be written
	exec(t, db, "SET GLOBAL read_only = 1")
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "it is a replica, or was made read-only") {
		t.Error(err)
	}
	exec(t, db, "SET GLOBAL read_only = 0")
	servers.Poll(t, "a charge again", func() bool {
		ok, err := taken(t, s, "other", weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1})
		return ok && err == nil
	})

	exec(t, db, "DROP TABLE weir.weir_states")
	if err := open("?migrate=false").Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "weir store sql --dialect mysql") {
		t.Error(err)
	}
}

// TestMySQLSettings: defaults of a server that would lose or mix up writes of other programs change nothing:
// neither autocommit that is off, nor dirty reads, nor texts that are cut off, nor collations.
func TestMySQLSettings(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Config: []string{
		"--autocommit=0", "--transaction-isolation=READ-UNCOMMITTED", "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
		"--character-set-server=latin1", "--collation-server=latin1_swedish_ci", "--default-storage-engine=MyISAM", "--default-time-zone=+05:30", "--lower-case-table-names=1",
		"--log-bin=" + t.TempDir() + "/binlog", "--binlog-format=STATEMENT", "--server-id=1",
	}})
	s := openedMySQL(t, server.URL(), weirkv.Options{Timeout: servers.Patience})
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}
	keys := []string{"", "a", "A", "a ", " a", "a\x00", "ä", "a\u0308", "Ä", "\xff", "'", `\`, `\'`, "%", "_", "a\n", strings.Repeat("k", 128), strings.Repeat("k", 129), strings.Repeat("k", 10_000), strings.Repeat("k", 9_999) + "K", "😀", "1", "01", "1.0"}
	for _, key := range keys {
		if ok, err := taken(t, s, key, limit); !ok || err != nil {
			t.Errorf("%.20q: %v %v", key, ok, err)
		}
	}
	other := openedMySQL(t, server.URL(), weirkv.Options{Timeout: servers.Patience})
	for _, key := range keys {
		if ok, err := taken(t, other, key, limit); ok || err != nil {
			t.Errorf("%.20q by another node: %v %v", key, ok, err)
		}
	}
	if n := count(t, admin(t, server), "SELECT count(*) FROM weir_states WHERE id NOT LIKE '=lane/%'"); n != len(keys) {
		t.Errorf("%d rows for %d keys", n, len(keys))
	}
}

// TestMySQLClock: the server's clock decides also where that of the node is wrong, and the zone of the server
// does not matter.
func TestMySQLClock(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Config: []string{"--default-time-zone=-11:00"}})
	db := admin(t, server)
	kv := weirmysql.NewKV(db)
	defer kv.Close()
	before := time.Now()
	now, err := kv.Now(t.Context())
	if err != nil || now.Before(before.Add(-time.Second)) || now.After(time.Now().Add(time.Second)) {
		t.Errorf("%v, here it is %v: %v", now, time.Now(), err)
	}
}

// TestMySQLSweep: rows that have expired are removed, others are not, and a row that is made anew has none of the
// revisions that it had before.
func TestMySQLSweep(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	migrate(t, db)
	kv := weirmysql.NewKV(db)
	defer kv.Close()
	first, ok, err := kv.CompareAndSwap(t.Context(), "brief", 0, []byte("1"), time.Microsecond)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := kv.CompareAndSwap(t.Context(), "long", 0, []byte("1"), time.Hour); !ok || err != nil {
		t.Fatal(ok, err)
	}
	exec(t, db, "INSERT INTO weir_states SELECT concat('x', seq), 1, 0, '' FROM seq_1_to_2500")
	removed := 0
	servers.Poll(t, "rows are removed", func() bool {
		n, err := kv.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		removed += n
		return removed >= 2501
	})
	if n := count(t, db, "SELECT count(*) FROM weir_states WHERE id NOT LIKE '=lane/%'"); n != 1 || removed != 2501 {
		t.Errorf("%d removed, %d left", removed, n)
	}
	if _, ok, err := kv.CompareAndSwap(t.Context(), "brief", first, []byte("2"), time.Hour); ok || err != nil {
		t.Errorf("a removed row was written: %v", err)
	}
	second, ok, err := kv.CompareAndSwap(t.Context(), "brief", 0, []byte("3"), time.Hour)
	if !ok || err != nil || second == first {
		t.Error(first, second, ok, err)
	}
	if _, ok, err := kv.CompareAndSwap(t.Context(), "brief", first, []byte("4"), time.Hour); ok || err != nil {
		t.Errorf("an old revision was written: %v", err)
	}
	if _, ok, err := kv.CompareAndSwap(t.Context(), "brief", 0, []byte("5"), time.Hour); ok || err != nil {
		t.Errorf("a row was made twice: %v", err)
	}
	item, err := kv.Get(t.Context(), "brief")
	if err != nil || string(item.Value) != "3" || item.Revision != second {
		t.Errorf("%+v %v", item, err)
	}
}

// TestMySQLStandsStill: while the server stands still, calls end by their deadlines; a write that it carries out
// later is a charge that was made at most once.
func TestMySQLStandsStill(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	const burst = 100_000
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}
	s := openedMySQL(t, server.URL(), weirkv.Options{Timeout: 300 * time.Millisecond})
	var admitted, unknown atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				each, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				out := make([]weir.Decision, 1)
				err := s.Do(each, []weir.Charge{{Name: "l", Key: "k", Limit: limit, Cost: 1}}, out)
				cancel()
				switch {
				case err != nil:
					unknown.Add(1)
				case out[0].Allowed:
					admitted.Add(1)
				}
			}
		})
	}
	for round := int64(1); round <= 3; round++ {
		before := admitted.Load()
		servers.Poll(t, "charges", func() bool { return admitted.Load() > before+100 })
		if err := server.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		before = unknown.Load()
		servers.Poll(t, "calls that end", func() bool { return unknown.Load() >= before+16 })
		if err := server.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	before := admitted.Load()
	servers.Poll(t, "charges", func() bool { return admitted.Load() > before+100 })
	stop()
	wg.Wait()
	peek, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Op: weir.OpPeek}}, make([]weir.Decision, 1)
	servers.Poll(t, "a look", func() bool { return s.Do(t.Context(), peek, out) == nil })
	charged := burst - out[0].Remaining
	if charged < admitted.Load() || charged > admitted.Load()+unknown.Load() {
		t.Errorf("%d were admitted, %d failed, and %d were charged", admitted.Load(), unknown.Load(), charged)
	}
}

// TestMySQLLocked: a row that another client has locked for too long is an error of its callers, who may be
// many, and not of other keys.
func TestMySQLLocked(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	s := openedMySQL(t, server.URL(), weirkv.Options{Timeout: 400 * time.Millisecond})
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}
	for _, key := range []string{"locked", "other"} {
		servers.Poll(t, key, func() bool { ok, err := taken(t, s, key, limit); return ok && err == nil })
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it was committed
	if _, err := tx.ExecContext(t.Context(), "SELECT * FROM weir_states WHERE id = 'weir:l/locked' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if ok, err := taken(t, s, "locked", limit); ok || err == nil || errors.Is(err, weir.ErrCharge) {
		t.Error(ok, err)
	}
	servers.Poll(t, "another key", func() bool { ok, err := taken(t, s, "other", limit); return ok && err == nil })
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the key", func() bool { ok, err := taken(t, s, "locked", limit); return ok && err == nil })
}

// TestMySQLTLS: a server is verified by its name and authority; to one without TLS there is no connection.
func TestMySQLTLS(t *testing.T) {
	files, err := servers.NewTLS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Config: []string{"--ssl-cert=" + files.ServerCert, "--ssl-key=" + files.ServerKey}})
	plain := servers.StartMariaDB(t, servers.MariaDBOptions{Config: []string{"--ssl=0"}})
	of := func(s *servers.MariaDBServer, parameters string) string {
		return strings.Replace(s.URL(), "mysql:", "mysql+tls:", 1) + parameters
	}
	for url, want := range map[string]string{
		of(server, "?ca_file="+files.CAFile):                          "",
		of(server, "?ca_file="+files.CAFile+"&server_name=localhost"): "",
		of(server, "?ca_file="+files.CAFile+"&server_name=other"):     "certificate is valid for",
		of(server, ""):                      "unknown authority",
		of(plain, "?ca_file="+files.CAFile): mysql.ErrNoTLS.Error(),
	} {
		err := openedMySQL(t, url, weirkv.Options{}).Ping(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// TestMySQLContended: the sum of what nodes charge one key at the same time is exact, also while the server is
// killed and started again.
func TestMySQLContended(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Persist: true})
	const burst, nodes = 800_000, 8
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}
	var admitted, unknown atomic.Int64
	var all []*weirmysql.Store
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range nodes {
		s := openedMySQL(t, server.URL(), weirkv.Options{Timeout: 5 * time.Second})
		all = append(all, s)
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					switch ok, err := taken(t, s, "k", limit); {
					case err != nil:
						unknown.Add(1)
						<-time.After(time.Millisecond)
					case ok:
						admitted.Add(1)
					}
				}
			})
		}
	}
	servers.Poll(t, "charges", func() bool { return admitted.Load() > 200 })
	server.Kill()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := admitted.Load()
	servers.Poll(t, "charges after", func() bool { return admitted.Load() > before+200 })
	stop()
	wg.Wait()
	peek, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Op: weir.OpPeek}}, make([]weir.Decision, 1)
	servers.Poll(t, "a look", func() bool { return all[0].Do(t.Context(), peek, out) == nil })
	charged := burst - out[0].Remaining
	if charged < admitted.Load() || charged > admitted.Load()+unknown.Load() {
		t.Errorf("%d were admitted, %d failed, and %d were charged", admitted.Load(), unknown.Load(), charged)
	}
}
