package resp

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirflow/weir/proof/servers"
)

// serveStore starts weir serve with CL.THROTTLE and named limits in a Redis, with this on_failure and
// further settings of the store.
func serveStore(t *testing.T, store, settings string) *redis.Client {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := fmt.Sprintf("listen: { admin: \"127.0.0.1:0\", resp: { address: \"127.0.0.1:0\", store: shared } }\nstores: { shared: { url: \"redis://%s\", on_failure: %s } }\n", store, settings)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := servers.StartWeir(t.Context(), path, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop() })
	c := redis.NewClient(&redis.Options{Addr: w.ByFace["resp"][0], Protocol: 2, PoolSize: 40, MaxRetries: -1, ReadTimeout: 30 * time.Second})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestSharedInAStore: two servers over one Redis share the keys of CL.THROTTLE and the states of named
// limits, whatever the parameters are.
func TestSharedInAStore(t *testing.T) {
	store, err := servers.Redis(t.Context(), servers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Stop()
	const patient = "deny, deadline: 10s" // on a busy machine too, the store decides
	nodes := []*redis.Client{serveStore(t, store.Addr, patient), serveStore(t, store.Addr, patient)}
	admitted := 0
	for i := range 40 {
		got, err := nodes[i%2].Do(t.Context(), "CL.THROTTLE", "shared", 19, 1, 86400).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		admitted += 1 - int(got[0])
	}
	if admitted != 20 {
		t.Errorf("%d of 40 calls at two servers admitted, want 20", admitted)
	}
	for i := range 1500 { // more parameters than package failover has records of limits
		if got, err := nodes[0].Do(t.Context(), "CL.THROTTLE", "many", 2000+i, 1, 1).Int64Slice(); err != nil || got[0] != 0 {
			t.Fatalf("parameters %d: %v %v", i, got, err)
		}
	}
	for i, n := range nodes {
		if i == 1 {
			if err := n.Do(t.Context(), "WEIR.TAKE", "@mail", 1, "a").Err(); err == nil || err.Error()[:7] != "NOLIMIT" {
				t.Errorf("a server without the parameters: %v", err)
			}
		}
		if created, err := n.Do(t.Context(), "WEIR.INIT", "@mail", "fixed_window", "limit=6", "window=24h").Int(); err != nil || created != 1 {
			t.Fatal(created, err)
		}
		for range 3 {
			if got, err := n.Do(t.Context(), "WEIR.TAKE", "@mail", 1, "a").Slice(); err != nil || got[1] != int64(1) {
				t.Errorf("server %d: %v %v", i, got, err)
			}
		}
	}
	if got, err := nodes[0].Do(t.Context(), "WEIR.TAKE", "@mail", 1, "a").Slice(); err != nil || got[1] != int64(0) {
		t.Errorf("a seventh of 6: %v %v", got, err)
	}
}

// TestStoreOutage: while the store hangs under load, each call gets a reply by the store's on_failure,
// within its deadline of 20 ms; when it is back, it decides again.
func TestStoreOutage(t *testing.T) {
	for onFailure, limited := range map[string]int64{"allow": 0, "deny": 1} {
		t.Run(onFailure, func(t *testing.T) {
			store, err := servers.Redis(t.Context(), servers.RedisOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Stop()
			outage(t, serveStore(t, store.Addr, onFailure), store, limited)
		})
	}
}

func outage(t *testing.T, c *redis.Client, store *servers.RedisServer, limited int64) {
	var hangs atomic.Bool
	var calls, byFallback atomic.Int64
	var mu sync.Mutex
	var took, control []time.Duration // of calls in the outage, and of PING beside them
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				during := hangs.Load()
				began := time.Now()
				// of 2 calls in a day, one is limited, and the other one is not
				got, err := c.Do(t.Context(), "CL.THROTTLE", fmt.Sprint("k", i), 0, 1, 86400, 1).Int64Slice()
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				d := time.Since(began)
				began = time.Now()
				if err := c.Ping(t.Context()).Err(); err != nil {
					t.Errorf("PING failed: %v", err)
					return
				}
				calls.Add(1)
				if !during || !hangs.Load() {
					continue
				}
				if got[0] == limited {
					byFallback.Add(1)
				} else {
					t.Errorf("a call in the outage: %v", got)
					return
				}
				mu.Lock()
				took, control = append(took, d), append(control, time.Since(began))
				mu.Unlock()
			}
		})
	}
	more := func(of *atomic.Int64, n int64) {
		t.Helper()
		for until, end := of.Load()+n, time.Now().Add(time.Minute); of.Load() < until && !t.Failed(); <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%d of %d calls in a minute", of.Load(), until)
			}
		}
	}
	more(&calls, 500)
	if err := store.Pause(); err != nil {
		t.Fatal(err)
	}
	hangs.Store(true)
	more(&byFallback, 2000)
	hangs.Store(false)
	store.Resume()
	back := func() bool { // all keys are used up in the store; a key of its own is admitted by it once
		got, err := c.Do(t.Context(), "CL.THROTTLE", "back", 0, 1, 86400, 1).Int64Slice()
		return err == nil && got[0] == 1-limited
	}
	for end := time.Now().Add(time.Minute); !back(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the store is back, and does not decide")
		}
	}
	stop()
	callers.Wait()
	slices.Sort(took)
	slices.Sort(control)
	// the machine may be busy: what PING takes beside is not the fallback's
	half, beside := took[len(took)/2], control[len(control)/2]
	t.Logf("%d calls in the outage: p50 %v, p99 %v, longest %v; PING: p50 %v, p99 %v, longest %v", len(took), half, took[len(took)*99/100], took[len(took)-1], beside, control[len(control)*99/100], control[len(control)-1])
	if half > 20*time.Millisecond+2*beside {
		t.Errorf("half of the calls in the outage took more than %v", half)
	}
}

// TestTooManyConnections: clients beyond max_connections get an error, those within it are served, and
// there is room again when one leaves.
func TestTooManyConnections(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("listen: { admin: \"127.0.0.1:0\", resp: { address: \"127.0.0.1:0\", max_connections: 3 } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := servers.StartWeir(t.Context(), path, file)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	address := w.ByFace["resp"][0]
	var open []*servers.RedisConn
	for range 3 {
		c, err := servers.DialRedis(t.Context(), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Do(t.Context(), "PING"); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	raw, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	text := make([]byte, 100)
	if n, _ := raw.Read(text); string(text[:n]) != "-ERR max number of clients reached\r\n" {
		t.Errorf("a client too many gets %q", text[:n])
	}
	if _, err := open[0].Do(t.Context(), "PING"); err != nil {
		t.Error(err)
	}
	open[0].Close()
	c := redis.NewClient(&redis.Options{Addr: address, Protocol: 2, MaxRetries: 100, MaxRetryBackoff: 10 * time.Millisecond, PoolSize: 1})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("there is no room again: %v", err)
	}
}
