package faces

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// A gate is a way to a Redis whose replies can be held back, and whose connections can be cut.
type gate struct {
	net.Listener
	replies sync.RWMutex // locked while replies are held
	mu      sync.Mutex
	conns   []net.Conn
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				from.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, from, server)
			g.mu.Unlock()
			go func() { _, _ = io.Copy(server, from); server.Close() }()
			go func() {
				defer from.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := server.Read(buf)
					if err != nil {
						return
					}
					g.replies.RLock()
					_, err = from.Write(buf[:n])
					g.replies.RUnlock()
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		g.cut()
	})
	return g
}

// cut ends all connections.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

// TestStalledCalls: while Redis carries calls out and its replies do not come, a call of listen.http that
// is sent again with its Idempotency-Key is charged once, and gets the answer of the first. Nor does a
// call charge twice that the store sends again because its connection was cut.
func TestStalledCalls(t *testing.T) {
	store := servers.StartRedis(t, servers.RedisOptions{})
	g := newGate(t, store.Addr)
	const burst = 1000
	w := start(t, "rate: 1/d, burst: 1000", g.Addr().String(), patient)
	direct := start(t, "rate: 1/d, burst: 1000", store.Addr, patient) // the same states without the gate
	used := func(key string) int64 { return burst - direct.peek(key).Remaining }
	take := func(ctx context.Context, key string) (answer, error) {
		return w.postOnce(ctx, "take", "once-"+key, map[string]any{"limit": "api", "key": []string{key}})
	}
	if a, err := take(t.Context(), "warm"); err != nil || !a.Allowed {
		t.Fatal(a, err)
	}

	g.replies.Lock()
	left, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := take(left, "left")
		first <- err
	}()
	servers.Poll(t, "Redis has charged the call", func() bool { return used("left") == 1 })
	leave()
	if err := <-first; err == nil {
		t.Error("the client has left, and has an answer")
	}
	if n := used("left"); n != 1 {
		t.Errorf("%d were charged", n)
	}
	again := make(chan answer, 1)
	go func() {
		a, err := take(t.Context(), "left")
		if err != nil {
			t.Error(err)
		}
		again <- a
	}()
	g.replies.Unlock()
	if a := <-again; !a.Allowed || used("left") != 1 {
		t.Errorf("the repeated call: %+v, and %d were charged", a, used("left"))
	}

	for name, ask := range map[string]func(context.Context, string, int64) (bool, error){"json": w.json, "resp": w.resp, "rls": w.rls, "gateway": w.gateway} {
		g.replies.Lock()
		done := make(chan bool, 1)
		go func() {
			ok, err := ask(t.Context(), "cut-"+name, 1)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			done <- ok
		}()
		servers.Poll(t, "Redis has charged the call", func() bool { return used("cut-"+name) == 1 })
		g.cut()
		g.replies.Unlock()
		if ok := <-done; used("cut-"+name) != 1 || !ok {
			t.Errorf("%s: after a cut, admitted %v, and %d charged", name, ok, used("cut-"+name))
		}
	}
}
