package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirnats"
)

// natsVariable has the natsNode that this program is, in place of running tests.
const natsVariable = "WEIR_TEST_NATS_NODE"

// natsNode is one of several NATS servers, each a process of its own.
type natsNode struct {
	Clients string // the address for clients, and the server's name
	Route   string
	Routes  []string // of all
	Folder  string
}

// serveNATS runs a server until it is killed, or until the test process has ended.
func serveNATS(config string) int {
	var n natsNode
	if err := json.Unmarshal([]byte(config), &n); err != nil {
		return 2
	}
	o := &server.Options{ServerName: n.Clients, JetStream: true, StoreDir: n.Folder, NoSigs: true, NoLog: true}
	o.Host, o.Port = address(n.Clients)
	o.Cluster.Name = "test"
	o.Cluster.Host, o.Cluster.Port = address(n.Route)
	for _, r := range n.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: r})
	}
	s, err := server.NewServer(o)
	if err != nil {
		return 1
	}
	s.Start()
	_, _ = os.Stdin.Read(make([]byte, 1)) // it ends with the test process
	return 0
}

func address(of string) (host string, port int) {
	host, text, _ := net.SplitHostPort(of)
	port, _ = strconv.Atoi(text)
	return host, port
}

// startNATS starts a server; the function that it returns kills it.
func startNATS(t *testing.T, n natsNode) (kill func()) {
	t.Helper()
	config, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), natsVariable+"="+string(config))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = stdin.Close()
	})
	t.Cleanup(kill)
	return kill
}

// TestNATSConflicts: a write that fails because another one of the same key is in flight is a conflict, as one that
// comes after it. It was an error, for which callers waited until their deadlines.
func TestNATSConflicts(t *testing.T) {
	t.Parallel() // they mostly wait for elections
	clients, routes, dir := addresses(t, 3), addresses(t, 3), t.TempDir()
	for i := range clients {
		startNATS(t, natsNode{clients[i], routes[i], routes, filepath.Join(dir, strconv.Itoa(i))})
	}
	conn, err := nats.Connect("nats://"+strings.Join(clients, ","), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	kv, err := weirnats.NewKV(conn, weirnats.Bucket{Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "a first write", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		item, err := kv.Get(ctx, "k")
		if err != nil {
			return false
		}
		_, swapped, err := kv.CompareAndSwap(ctx, "k", item.Revision, []byte("x"), time.Hour)
		return err == nil && swapped
	})
	var swaps, conflicts atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
				item, err := kv.Get(ctx, "k")
				if err == nil {
					var swapped bool
					if _, swapped, err = kv.CompareAndSwap(ctx, "k", item.Revision, []byte("x"), time.Hour); swapped {
						swaps.Add(1)
					} else {
						conflicts.Add(1)
					}
				}
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d writes, %d conflicts", swaps.Load(), conflicts.Load())
}

// TestNATSLeaderKilled: weirnats over three NATS servers, while the one that leads the states is killed and started
// again, twice: each charge that was admitted was made, and none twice.
func TestNATSLeaderKilled(t *testing.T) {
	t.Parallel() // they mostly wait for elections
	clients, routes, dir := addresses(t, 3), addresses(t, 3), t.TempDir()
	nodes, kills := make([]natsNode, 3), make([]func(), 3)
	for i := range nodes {
		nodes[i] = natsNode{clients[i], routes[i], routes, filepath.Join(dir, strconv.Itoa(i))}
		kills[i] = startNATS(t, nodes[i])
	}
	conn, err := nats.Connect("nats://"+strings.Join(clients, ","), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	leads := func() (leader string) { // with all replicas in place
		servers.Poll(t, "a leader and two other servers with all states", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s, err := js.Stream(ctx, "KV_weir")
			if err != nil || s.CachedInfo().Cluster == nil {
				return false
			}
			current := 0
			for _, r := range s.CachedInfo().Cluster.Replicas {
				if r.Current && !r.Offline {
					current++
				}
			}
			leader = s.CachedInfo().Cluster.Leader
			return current == 2 && leader != ""
		})
		return leader
	}

	const burst = 1_000_000
	limit := weir.FixedWindow{Limit: burst, Window: 1000 * time.Hour, Align: weir.AlignFirst}
	var admitted, unknown atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var stores []*weirnats.Store
	for range 2 {
		s, err := weirnats.Open(fmt.Sprintf("nats://%s/weir?replicas=3", strings.Join(clients, ",")), weirkv.Options{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		stores = append(stores, s)
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					batch, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Cost: 1}}, make([]weir.Decision, 1)
					if err := s.Do(t.Context(), batch, out); err != nil {
						unknown.Add(1)
						<-time.After(time.Millisecond)
					} else if out[0].Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	progress := func() {
		before := admitted.Load()
		servers.Poll(t, "decisions", func() bool { return admitted.Load() > before+200 })
	}
	progress()
	for range 2 {
		leader := leads()
		for i, n := range nodes {
			if n.Clients == leader {
				kills[i]()
				progress()
				kills[i] = startNATS(t, n)
			}
		}
	}
	leads()
	progress()
	stop()
	wg.Wait()
	batch, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Op: weir.OpPeek}}, make([]weir.Decision, 1)
	servers.Poll(t, "a call in time", func() bool { return stores[0].Do(t.Context(), batch, out) == nil })
	charged := burst - out[0].Remaining
	t.Logf("%d admitted, %d failed, %d charged", admitted.Load(), unknown.Load(), charged)
	if charged < admitted.Load() || charged > admitted.Load()+unknown.Load() {
		t.Errorf("%d admitted, %d failed, and %d were charged", admitted.Load(), unknown.Load(), charged)
	}
}
