package resp

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirflow/weir/proof/servers"
)

// A load is callers with real clients, until stop. Each call that fails is an error of the test.
type load struct {
	calls   atomic.Int64 // of go-redis and rueidis
	lost    atomic.Int64 // calls of rueidis whose connection ended under them
	ctx     context.Context
	stop    context.CancelFunc
	callers sync.WaitGroup
}

// call has callers call one after the other, each with a pause of its own: so connections are idle now and
// then.
func (l *load) call(t *testing.T, callers int, do func(i int) error) {
	for i := range callers {
		l.callers.Go(func() {
			for l.ctx.Err() == nil {
				if err := do(i); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				l.calls.Add(1)
				select {
				case <-l.ctx.Done():
				case <-time.After(time.Duration(i*10) * time.Millisecond):
				}
			}
		})
	}
}

// more waits until there were n calls more.
func (l *load) more(t *testing.T, n int64) {
	for until := l.calls.Load() + n; l.calls.Load() < until && !t.Failed(); {
		<-time.After(5 * time.Millisecond)
	}
}

// goClients has go-redis and rueidis call. rueidis repeats no call by itself whose connection ends before
// the reply: its callers do, and count them.
func (l *load) goClients(t *testing.T, address string) {
	clients := make([]*redis.Client, 8)
	for i := range clients {
		clients[i] = redis.NewClient(&redis.Options{Addr: address, MaxRetries: 3})
		t.Cleanup(func() { clients[i].Close() })
	}
	l.call(t, len(clients), func(i int) error {
		return clients[i].Do(t.Context(), "CL.THROTTLE", fmt.Sprint("key", i), 1000, 1000, 1).Err()
	})
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l.call(t, 4, func(i int) error {
		for {
			err := c.Do(t.Context(), c.B().Arbitrary("CL.THROTTLE").Keys(fmt.Sprint("rueidis", i)).Args("1000", "1000", "1").Build()).Error()
			if _, reply := rueidis.IsRedisErr(err); err == nil || reply {
				return err
			}
			l.lost.Add(1)
		}
	})
}

// redisCLI runs redis-cli again and again: each run is a new connection.
func (l *load) redisCLI(t *testing.T, address string) {
	_, port, _ := net.SplitHostPort(address)
	l.callers.Go(func() {
		for l.ctx.Err() == nil {
			out, err := exec.CommandContext(l.ctx, "redis-cli", "-p", port, "CL.THROTTLE", "cli", "1000", "1000", "1").CombinedOutput()
			if l.ctx.Err() == nil && (err != nil || !strings.HasPrefix(string(out), "0\n1001\n")) {
				t.Errorf("redis-cli: %q %v", out, err)
				return
			}
		}
	})
}

// ioredis has ioredis call, which connects again and repeats calls by itself.
func (l *load) ioredis(t *testing.T, address string) {
	if _, err := os.Stat("node_modules/ioredis"); err != nil {
		t.Fatalf("the clients are not installed: make needs, or npm ci --ignore-scripts in proof/resp (%v)", err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "clients.mjs")
	cmd.Env = append(os.Environ(), "ADDRESS="+address, "CALL=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.callers.Go(func() {
		<-l.ctx.Done()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v", err)
		}
		var got struct {
			Ioredis  int
			Failures []string
		}
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Ioredis == 0 || len(got.Failures) > 0 {
			t.Errorf("ioredis: %d calls, failures %q: %v", got.Ioredis, got.Failures, err)
		}
	})
}

// TestReloadAndRestart: callers side by side, with clients that connect again by themselves, get a reply
// to each call through reloads and a SIGUSR2.
func TestReloadAndRestart(t *testing.T) {
	w, address := serve(t)
	l := &load{}
	l.ctx, l.stop = context.WithCancel(t.Context())
	defer l.stop()
	l.ioredis(t, address)
	l.goClients(t, address)
	l.redisCLI(t, address)
	l.more(t, 500)
	for range 3 {
		if err := w.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		l.more(t, 300)
	}
	if n := l.lost.Load(); n > 0 {
		t.Errorf("reloads ended connections under %d calls", n)
	}
	restart(t, w)
	l.more(t, 2000)
	l.stop()
	l.callers.Wait()
	if n := l.lost.Load(); n > 4 { // one for each caller on the connection, at the one moment at which it ended
		t.Errorf("%d calls of rueidis had to be repeated", n)
	}
}

// restart has the server replace itself, and waits until the old process ends.
func restart(t *testing.T, w *servers.Weir) {
	t.Helper()
	if err := w.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(40 * time.Second); !strings.Contains(w.Output(), "shutting down"); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not restarted:\n%s", w.Output())
		}
	}
	for line := range strings.Lines(w.Output()) {
		var l struct{ Pid int }
		if json.Unmarshal([]byte(line), &l) == nil && l.Pid != 0 {
			t.Cleanup(func() { _ = syscall.Kill(l.Pid, syscall.SIGTERM) })
		}
	}
}
