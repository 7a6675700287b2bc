package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// commands returns how often the server carried out each command, failed ones included.
func commands(t *testing.T, server *servers.RedisServer) map[string]int {
	t.Helper()
	info, err := server.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for name, text := range info {
		var calls int
		if _, err := fmt.Sscanf(text, "calls=%d,", &calls); err == nil {
			n[strings.TrimPrefix(name, "cmdstat_")] = calls
		}
	}
	return n
}

// until polls a condition until it is true.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !so() {
		if !pass(ctx, 5*time.Millisecond) {
			t.Fatalf("it is not so that %s", what)
		}
	}
}

// used returns what the server says was charged to a key of a limit that never refills.
func used(t *testing.T, store weir.Store, name, key string, l weir.Limit) int64 {
	t.Helper()
	d := do(t, store, weir.Charge{Name: name, Key: key, Limit: l, Op: weir.OpPeek}).decision
	return d.Limit - d.Remaining
}

// TestLateCallsAreNotCharged: while the server is stopped, calls arrive in its socket, and their
// callers leave. When it continues, it carries out none of them.
func TestLateCallsAreNotCharged(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	limit := slow(10_000)
	for name, keep := range map[string]bool{"short": false, "long": true} {
		t.Run(name, func(t *testing.T) {
			store := lateStore(t, connect(t, server.Addr))
			before := do(t, store.Store, weir.Charge{Name: name, Key: "k", Limit: limit, Cost: 1, Keep: keep}) // the server has the scripts, and the clock is known
			if !before.decision.Allowed {
				t.Fatal(before)
			}
			had := commands(t, server)["evalsha"]
			if err := server.Pause(); err != nil {
				t.Fatal(err)
			}
			store.abandon(t, weir.Charge{Name: name, Key: "k", Limit: limit, Cost: 1, Keep: keep})
			server.Resume()
			until(t, "what was in the socket is carried out", func() bool { return commands(t, server)["evalsha"] > had })
			if n := used(t, open(t, connect(t, server.Addr), weirredis.Options{}), name, "k", limit); n != 1 {
				t.Errorf("%d was charged, and 1 was admitted", n)
			}
			if n := used(t, store.Store, name, "k", limit); n != 1 { // after all that were sent before
				t.Errorf("%d was charged after all, and 1 was admitted", n)
			}
			t.Logf("%d calls came late", commands(t, server)["evalsha"]-had-2)
		})
	}
}

// An abandoningStore has a client that sends each call, also if the caller left before.
type abandoningStore struct {
	*weirredis.Store
	weirredis.Evaler
	sent atomic.Int64
}

func lateStore(t *testing.T, client rueidis.Client) *abandoningStore {
	t.Helper()
	s := &abandoningStore{Evaler: weirrueidis.Evaler(client)}
	var err error
	if s.Store, err = weirredis.New(s, patiently(weirredis.Options{})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Store.Close() })
	return s
}

func (s *abandoningStore) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	s.sent.Add(1)
	answer := make(chan weirredis.Reply, 1)
	go func() {
		text, err := s.Evaler.Eval(context.WithoutCancel(ctx), c)
		answer <- weirredis.Reply{Text: text, Err: err}
	}()
	select {
	case r := <-answer:
		return r.Text, r.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// abandon has 64 callers, who leave before the server responds, until a call of one of them was
// sent: on a busy machine they may all leave before that.
func (s *abandoningStore) abandon(t *testing.T, c weir.Charge) {
	t.Helper()
	had := s.sent.Load()
	for within := 100 * time.Millisecond; s.sent.Load() == had; within *= 2 {
		if within > patience {
			t.Fatal("no call was sent")
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if err := s.Do(ctx, []weir.Charge{c}, make([]weir.Decision, 1)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a server that stands answered: %v", err)
				}
			})
		}
		wg.Wait()
		cancel()
	}
}

// TestLateReplyAfterTheCallerLeft: two callers share a call, and one has left when it arrives. Only
// the other one is charged.
func TestLateReplyAfterTheCallerLeft(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	for name, keep := range map[string]bool{"short": false, "long": true} {
		t.Run(name, func(t *testing.T) {
			g := &barrier{Evaler: weirrueidis.Evaler(connect(t, server.Addr)), held: make(chan heldCall)}
			store, err := weirredis.New(g, patiently(weirredis.Options{RoundTrips: 1}))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			take := func(key string, within time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				batch := []weir.Charge{{Name: name, Key: key, Limit: slow(5), Cost: 1, Keep: keep}}
				return store.Do(ctx, batch, make([]weir.Decision, 1))
			}
			if err := take("first", patience); err != nil { // the clock is known after it
				t.Fatal(err)
			}
			try := 0
			for ; !g.shared(t, take, try); try++ {
				if try == 100 {
					t.Fatal("the two never shared a call")
				}
			}
			for key, want := range map[string]int64{fmt.Sprint("stays", try): 1, fmt.Sprint("leaves", try): 0} {
				if n := used(t, store, name, key, slow(5)); n != want {
					t.Errorf("%s: %d was charged, not %d", key, n, want)
				}
			}
		})
	}
}

// shared has one call in flight, and then two callers that share the next one, which arrives after
// one of them has left. It reports false if they did not share it: then neither has been charged,
// and two others have to try.
func (g *barrier) shared(t *testing.T, take func(string, time.Duration) error, n int) bool {
	g.shut.Store(true)
	var wg sync.WaitGroup
	call := func(key string, within time.Duration) {
		wg.Go(func() {
			if err := take(key, within); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
	call(fmt.Sprint("before", n), patience)
	first := <-g.held
	left := make(chan struct{})
	wg.Go(func() {
		if err := take(fmt.Sprint("leaves", n), 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who was to leave was answered: %v", err)
		}
		close(left)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call(fmt.Sprint("stays", n), patience)
	pass(ctx, time.Duration(n)*time.Millisecond) // until both have come
	close(first.on)
	second := <-g.held
	<-left
	g.shut.Store(false)
	close(second.on)
	wg.Wait()
	return len(second.call.Keys) == 3
}

// barrier is an Evaler whose calls are held up while it is shut.
type barrier struct {
	weirredis.Evaler
	shut atomic.Bool
	held chan heldCall
}

type heldCall struct {
	call weirredis.Call
	on   chan struct{}
}

func (g *barrier) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	if g.shut.Load() {
		h := heldCall{c, make(chan struct{})}
		g.held <- h
		<-h.on
	}
	return g.Evaler.Eval(ctx, c)
}
