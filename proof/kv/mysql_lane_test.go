package kv

import (
	"context"
	"errors"
	"fmt"
	osexec "os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirmysql"
)

// charge carries out one charge.
func charge(t *testing.T, s weir.Store, c weir.Charge) (weir.Charge, weir.Decision) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
	if err := s.Do(ctx, batch, out); err != nil {
		t.Fatal(err)
	}
	return batch[0], out[0]
}

// TestMySQLSharedKV: Stores over one driver, one after another, and at the same time, do not take each other's replies.
func TestMySQLSharedKV(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	migrate(t, db)
	kv := weirmysql.NewKV(db)
	defer kv.Close()
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	for _, p := range []string{"a:", "b:", "c:"} {
		s, err := weirkv.New(counted{kv, new([5]atomic.Int64), nil, nil}, weirkv.Options{Prefix: p, Timeout: servers.Patience})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			if ok, err := taken(t, s, fmt.Sprint("k", i), limit); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		for i := range 20 {
			if _, d := charge(t, s, weir.Charge{Name: "l", Key: "one", Limit: limit, Cost: 1}); d.Allowed != (i < 10) || d.Remaining != int64(max(9-i, 0)) {
				t.Errorf("%s %d: %+v", p, i, d)
			}
		}
		if p != "a:" { // that one goes on beside the others
			s.Close()
		} else {
			defer s.Close()
		}
	}
}

// TestMySQLOtherFormat: a key whose value the procedure cannot read is decided by the nodes: while a reservation is
// outstanding, and while some nodes have another rate than others.
func TestMySQLOtherFormat(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	migrate(t, admin(t, server))
	o := weirkv.Options{Timeout: servers.Patience}
	a, b := openedMySQL(t, server.URL(), o), openedMySQL(t, server.URL(), o)
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	reserved, _ := charge(t, a, weir.Charge{Name: "l", Key: "reserved", Limit: limit, Op: weir.OpReserve, Cost: 4, Estimate: true})
	if _, d := charge(t, b, weir.Charge{Name: "l", Key: "reserved", Limit: limit, Cost: 1}); !d.Allowed || d.Remaining != 5 {
		t.Errorf("beside a reservation: %+v", d)
	}
	reserved.Op, reserved.Cost = weir.OpSettle, 0
	charge(t, b, reserved)
	if _, d := charge(t, a, weir.Charge{Name: "l", Key: "reserved", Limit: limit, Cost: 1}); !d.Allowed || d.Remaining != 8 {
		t.Errorf("after its settlement: %+v", d)
	}

	next := weir.TokenBucket{Rate: weir.PerHour(2), Burst: 100}
	limit.Burst = 100
	for i := range 20 {
		if _, d := charge(t, a, weir.Charge{Name: "l", Key: "k", Limit: limit, Cost: 1}); !d.Allowed {
			t.Errorf("the old rate, %d: %+v", i, d)
		}
		if _, d := charge(t, b, weir.Charge{Name: "l", Key: "k", Limit: next, Cost: 1}); !d.Allowed || d.Remaining > int64(98-2*i) {
			t.Errorf("the new rate, %d: %+v", i, d)
		}
	}
	third := openedMySQL(t, server.URL(), o)
	if _, d := charge(t, third, weir.Charge{Name: "l", Key: "k", Limit: next, Cost: 1}); !d.Allowed || d.Remaining > 59 {
		t.Errorf("a node that has just started: %+v", d)
	}
}

// TestMySQLForgedNumbers: numbers that no node has written are not the store's failure.
func TestMySQLForgedNumbers(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	migrate(t, db)
	s := openedMySQL(t, server.URL(), weirkv.Options{Timeout: servers.Patience})
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	for _, at := range []string{"4", "12", "20"} {
		if ok, err := taken(t, s, "good", limit); !ok || err != nil {
			t.Fatal(ok, err)
		}
		exec(t, db, "INSERT INTO weir_states SELECT CONCAT(id, '"+at+"'), 7, expires, INSERT(state, "+at+", 8, 0xFFFFFFFFFFFFFFFF) FROM weir_states WHERE id = 'weir:l/good'")
		if ok, err := taken(t, s, "good"+at, limit); ok || !errors.Is(err, weir.ErrCharge) {
			t.Errorf("%s: %v %v", at, ok, err)
		}
	}
}

// TestMySQLTableEmptied: who empties the table, or fails over to a server that does not have all of it, loses what was
// charged, and nothing else: no call fails, unless an earlier one may have been carried out.
func TestMySQLTableEmptied(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	migrate(t, db)
	kv := weirmysql.NewKV(db)
	defer kv.Close()
	var outcomes [5]atomic.Int64
	var lose atomic.Bool
	s, err := weirkv.New(counted{kv, &outcomes, nil, func() bool {
		if !lose.CompareAndSwap(true, false) {
			return false
		}
		exec(t, db, "DELETE FROM weir_states")
		return true
	}}, weirkv.Options{Timeout: servers.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	for i := range 5 {
		if ok, err := taken(t, s, fmt.Sprint("k", i), limit); !ok || err != nil {
			t.Fatal(ok, err)
		}
		exec(t, db, "DELETE FROM weir_states")
	}
	if outcomes[weirkv.TakeNoLane].Load() == 0 {
		t.Error("no call has found that its lane was gone")
	}
	lose.Store(true) // the reply, and then the table
	if ok, err := taken(t, s, "k", limit); ok || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that may have been carried out: %v %v", ok, err)
	}
	if ok, err := taken(t, s, "k", limit); !ok || err != nil {
		t.Error(ok, err)
	}
}

// TestMySQLScriptAgain: the script of weir store sql can be carried out again while nodes work: rights to what it makes
// stay.
func TestMySQLScriptAgain(t *testing.T) {
	client, err := osexec.LookPath("mariadb")
	if err != nil {
		t.Fatal(err)
	}
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Users: true})
	db := admin(t, server)
	script := func() {
		t.Helper()
		c := osexec.CommandContext(t.Context(), client, "--host=127.0.0.1", "--port="+server.Addr[strings.LastIndex(server.Addr, ":")+1:], "--user=root", "weir")
		c.Stdin = strings.NewReader(weirmysql.Schema{}.Script())
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	script()
	exec(t, db, "CREATE USER weir@'%' IDENTIFIED BY 'x'; GRANT SELECT, INSERT, UPDATE, DELETE ON weir.weir_states TO weir@'%'")
	for _, name := range []string{"take", "lock", "write"} {
		exec(t, db, "GRANT EXECUTE ON PROCEDURE weir.weir_"+name+"_1 TO weir@'%'")
	}
	s := openedMySQL(t, "mysql://weir:x@"+server.Addr+"/weir?migrate=false", weirkv.Options{Timeout: servers.Patience})
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	for i := range 3 {
		if ok, err := taken(t, s, fmt.Sprint("k", i), limit); !ok || err != nil {
			t.Error(ok, err)
		}
		script()
	}
	// a right that is taken away is found by Ping, which would otherwise report a store that is back
	exec(t, db, "REVOKE EXECUTE ON PROCEDURE weir.weir_take_1 FROM weir@'%'")
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "GRANT EXECUTE ON PROCEDURE") {
		t.Error(err)
	}
	exec(t, db, "GRANT EXECUTE ON PROCEDURE weir.weir_take_1 TO weir@'%'")
	servers.Poll(t, "the store", func() bool { return s.Ping(t.Context()) == nil })
}
