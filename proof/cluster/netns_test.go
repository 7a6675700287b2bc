package cluster

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// A machine is a network namespace with two networks, as a machine of a data center has: nodes reach each other by
// one of them, and clients reach the nodes by the other.
type machine struct {
	name   string
	plug   string // the end of the nodes' network that can be pulled
	bridge string
	addr   string // among nodes
	front  string // for clients
}

// networkCommand runs a command of iproute2.
func networkCommand(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// pull takes a machine from the nodes' network, or puts it back. Packets are lost then, without any sign of it:
// connections stay open.
func (m *machine) pull(t *testing.T, out bool) {
	t.Helper()
	args := []string{"link", "set", m.plug, "master", m.bridge}
	if out {
		args = []string{"link", "set", m.plug, "nomaster"}
	}
	if err := networkCommand(args...); err != nil {
		t.Fatal(err)
	}
}

// machines makes n of them until the test ends. It needs root, the command ip (Debian: iproute2), and a kernel with
// network namespaces, bridges and veth.
func machines(t *testing.T, n int) (all []*machine) {
	t.Helper()
	id := os.Getpid() % 10000
	subnet := fmt.Sprintf("10.%d", 200+id%50)
	var undo [][]string
	t.Cleanup(func() {
		for i := len(undo) - 1; i >= 0; i-- {
			if err := networkCommand(undo[i]...); err != nil {
				t.Error(err)
			}
		}
	})
	run := func(args ...string) {
		t.Helper()
		if err := networkCommand(args...); err != nil {
			if len(undo) == 0 {
				t.Skip("this machine has no network namespaces to try it in: it takes root and iproute2:", err)
			}
			t.Fatal(err)
		}
	}
	bridge := func(name, addr string) string {
		run("link", "add", name, "type", "bridge")
		undo = append(undo, []string{"link", "del", name})
		run("addr", "add", addr, "dev", name)
		run("link", "set", name, "up")
		return name
	}
	nodes, clients := bridge(fmt.Sprintf("wn%d", id), subnet+".1.1/24"), bridge(fmt.Sprintf("wc%d", id), subnet+".2.1/24")
	for i := range n {
		m := &machine{name: fmt.Sprintf("weir%d-%d", id, i), plug: fmt.Sprintf("wn%dx%d", id, i), bridge: nodes, addr: fmt.Sprintf("%s.1.%d", subnet, 11+i), front: fmt.Sprintf("%s.2.%d", subnet, 11+i)}
		run("netns", "add", m.name)
		undo = append(undo, []string{"netns", "del", m.name}) // its ends of the networks go with it
		run("-n", m.name, "link", "set", "lo", "up")
		for _, end := range []struct{ plug, bridge, inside, addr string }{{m.plug, nodes, "nodes", m.addr}, {fmt.Sprintf("wc%dx%d", id, i), clients, "clients", m.front}} {
			run("link", "add", end.plug, "type", "veth", "peer", "name", end.inside, "netns", m.name)
			run("-n", m.name, "addr", "add", end.addr+"/24", "dev", end.inside)
			run("-n", m.name, "link", "set", end.inside, "up")
			run("link", "set", end.plug, "master", end.bridge)
			run("link", "set", end.plug, "up")
		}
		all = append(all, m)
	}
	return all
}

// startApart starts a gateway on each machine. They share limits without a server.
func startApart(t *testing.T, all []*machine) *fleet {
	t.Helper()
	dir := t.TempDir()
	secretFile := filepath.Join(dir, "secret")
	if err := os.WriteFile(secretFile, []byte(strings.Repeat("5ecret", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	var peers []string
	for _, m := range all {
		peers = append(peers, m.addr+":6222")
	}
	url := fmt.Sprintf("cluster://%s?folder=%s&secret_file=%s", strings.Join(peers, ","), dir, secretFile)
	f := &fleet{running: make([]atomic.Pointer[servers.Weir], len(all))}
	for i, m := range all {
		policy, run := filepath.Join(dir, m.name+".yaml"), filepath.Join(dir, m.name+".sh")
		text := fmt.Sprintf(`
listen: { gateway: "%s:0", admin: "127.0.0.1:0" }
stores:
  shared: { url: %q, deadline: %v }
limits:
  exact: { fixed_window: { limit: %d, window: 1000h, align: first }, store: shared, on_failure: deny }
  local: { token_bucket: { rate: %d/s, burst: %d }, store: shared }
routes:
  - { match: /exact, limits: [exact], respond: { status: 200 } }
  - { match: /local, limits: [local], respond: { status: 200 } }
`, m.front, url, deadline, exactBurst, localRate, localBurst)
		for file, content := range map[string]string{policy: text, run: fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s \"$@\"\n", m.name, binary)} {
			if err := os.WriteFile(file, []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		w, err := servers.StartWeirApart(t.Context(), run, policy, "--node", peers[i])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Stop() })
		f.running[i].Store(w)
	}
	return f
}

// TestApart: of five nodes on machines of their own, two lose the network between nodes, so that packets vanish and
// no connection is closed; then one is slow: it stands still most of the time. The others go on; the two
// decide by their shares; all share the limits again afterwards. No charge is lost, none is made twice, and a
// limit that falls back to shares stays within its bound.
func TestApart(t *testing.T) {
	all := machines(t, 5)
	f := startApart(t, all)
	shares := func(nodes ...int) {
		t.Helper()
		for _, i := range nodes {
			servers.Poll(t, fmt.Sprint("decisions by the store at node ", i), func() bool {
				status, _ := f.get(i, "/exact")
				return status == http.StatusOK
			})
		}
	}
	shares(0, 1, 2, 3, 4)
	began := time.Now()
	var local [5]atomic.Int64
	var ends sync.WaitGroup
	stop := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(stop)
		ends.Wait()
	})
	defer end() // also when the test has failed
	for i := range all {
		for _, path := range []string{"/exact", "/local"} {
			ends.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
						if status, _ := f.get(i, path); status == http.StatusOK && path == "/local" {
							local[i].Add(1)
						}
					}
				}
			})
		}
	}

	for _, i := range []int{0, 1} {
		all[i].pull(t, true)
	}
	for _, i := range []int{0, 1} {
		servers.Poll(t, fmt.Sprint("the refusals of node ", i, ", which is cut off"), func() bool {
			status, _ := f.get(i, "/exact")
			return status == http.StatusTooManyRequests
		})
		there := local[i].Load()
		servers.Poll(t, fmt.Sprint("decisions by the share of node ", i), func() bool { return local[i].Load() > there+20 })
	}
	shares(2, 3, 4)
	for _, i := range []int{0, 1} {
		all[i].pull(t, false)
	}
	shares(0, 1, 2, 3, 4)
	t.Logf("two were cut off, and are back after %v", time.Since(began))

	slow := f.running[2].Load()
	before := f.exact.Load()
	for range 20 {
		if err := slow.Pause(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // it stands still: nothing is waited for
		slow.Resume()
		time.Sleep(50 * time.Millisecond)
	}
	shares(0, 1, 2, 3, 4)
	t.Logf("one was slow, %d were admitted meanwhile; %v", f.exact.Load()-before, time.Since(began))

	end()
	took := time.Since(began)
	left := int64(-1)
	servers.Poll(t, "what is left", func() bool {
		var status int
		status, left = f.get(4, "/exact")
		return status == http.StatusOK && left >= 0
	})
	charged, admitted, unknown := exactBurst-left, f.exact.Load(), f.unknown.Load()
	t.Logf("exact: %d admitted, %d unknown, %d charged", admitted, unknown, charged)
	if charged < admitted || charged > admitted+unknown {
		t.Errorf("%d admitted, %d unknown, and %d were charged", admitted, unknown, charged)
	}
	sum := int64(0)
	for i := range local {
		sum += local[i].Load()
	}
	bound := 2 * (localBurst + int64(localRate*took.Seconds()+1)) // the store's, and the shares of all nodes
	t.Logf("local: %d admitted in %v, bound %d, the limit alone %d", sum, took, bound, localBurst+int64(localRate*took.Seconds()))
	if sum > bound {
		t.Errorf("%d admitted, bound %d", sum, bound)
	}
}
