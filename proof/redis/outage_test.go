package redis

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestOutages stops a server, and kills and restarts it, under callers that go on. Each gets a
// decision, and the store decides again within 2 s after the server responds. That is judged in up to 10
// outages, as the machine may stand still in some. The log says how long callers waited: on a busy
// machine that is more than the deadline.
func TestOutages(t *testing.T) {
	for name, cut := range map[string]struct {
		off, on func(*servers.RedisServer) error
	}{
		"stopped": {
			func(s *servers.RedisServer) error { return s.Pause() },
			func(s *servers.RedisServer) error { s.Resume(); return nil },
		},
		"killed": {
			func(s *servers.RedisServer) error { s.Kill(); return nil },
			func(s *servers.RedisServer) error {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				return s.Start(ctx)
			},
		},
	} {
		for _, direct := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				server := servers.StartRedis(t, servers.RedisOptions{})
				inner, err := weirrueidis.New(connect(t, server.Addr), weirredis.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer inner.Close()
				store, err := failover.New(inner, failover.Options{OnFailure: failover.Local, Nodes: 2, Direct: direct})
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				l, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 1000}, store, weir.Named("api"))
				if err != nil {
					t.Fatal(err)
				}
				for attempt := 1; ; attempt++ {
					u := use(t, l)
					outageUntil(t, "the store decides", func() bool { return u.last() == weir.SourceStore })
					if err := cut.off(server); err != nil {
						t.Fatal(err)
					}
					outageUntil(t, "the share decides", func() bool { return u.last() == weir.SourceShare && store.State() != failover.Closed })
					waited := u.end()
					if err := cut.on(server); err != nil {
						t.Fatal(err)
					}
					u = use(t, l)
					began := time.Now()
					outageUntil(t, "the store decides again", func() bool { return u.last() == weir.SourceStore })
					back := time.Since(began)
					waited = append(waited, u.end()...)
					slices.Sort(waited)
					t.Logf("direct %v: back after %v; of %d calls, the median took %v and the longest %v; %+v",
						direct, back, len(waited), waited[len(waited)/2], waited[len(waited)-1], store.Stats())
					if back <= 2*time.Second {
						break
					}
					if attempt == 10 {
						t.Fatal("the store decides again later than 2 s after each of 10 outages")
					}
				}
			})
		}
	}
}

// users are callers that call until they are ended.
type users struct {
	stop    context.CancelFunc
	callers sync.WaitGroup
	mu      sync.Mutex
	source  weir.Source
	waited  []time.Duration
}

func use(t *testing.T, l *weir.Shared) *users {
	ctx, cancel := context.WithCancel(t.Context())
	u := &users{stop: cancel}
	for range 8 {
		u.callers.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				d, err := l.Take(context.Background(), "a", 1)
				if err != nil {
					t.Errorf("a caller got an error: %v", err)
				}
				u.mu.Lock()
				u.source, u.waited = d.Source, append(u.waited, time.Since(began))
				u.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	return u
}

func (u *users) last() weir.Source {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.source
}

func (u *users) end() []time.Duration {
	u.stop()
	u.callers.Wait()
	return u.waited
}

// outageUntil polls a condition until it is true.
func outageUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(patience)
	for !ok() {
		select {
		case <-late:
			t.Fatalf("%v have gone by, and not: %s", patience, what)
		case <-time.After(time.Millisecond):
		}
	}
}
