package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/weirhttp"
)

// TestUnavailableStore: without its store, a node enforces its share of the limit, in time.
func TestUnavailableStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{}
		shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(40), Burst: 40}, store, weir.Named("all"))
		if err != nil {
			t.Fatal(err)
		}
		h := weirhttp.Limit(shared, weirhttp.Global(), weirhttp.Fallback(failover.Options{OnFailure: failover.Local, Nodes: 4}))(ok)
		began, admitted := time.Now(), 0
		for range 2000 {
			if status(h, from("192.0.2.1:1")) == 200 {
				admitted++
			}
			<-time.After(5 * time.Millisecond)
		}
		took := time.Since(began)
		if share := int(took.Seconds() * 10); admitted > share+10 || admitted < share-10 {
			t.Errorf("%d admitted in %v, want a quarter of 40/s", admitted, took)
		}
		store.back.Store(true)
		<-time.After(2 * time.Second)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, from("192.0.2.1:1"))
		if store.calls.Load() == 0 || rec.Code != 200 {
			t.Errorf("the store was not called again: %d", rec.Code)
		}
	})
}

// TestOneFallback: while the store is unavailable, several middlewares of a limit admit as much as
// one, also if they are made at the same time.
func TestOneFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{}
		routes := routesOf(t, store)
		admitted := 0
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); <-time.After(time.Millisecond) {
			for _, h := range routes {
				if status(h, from("192.0.2.1:1")) == 200 {
					admitted++
				}
			}
		}
		if admitted > 200 || admitted < 150 { // of 100/s
			t.Errorf("by default: %d admitted in 2 s, want at most 200", admitted)
		}
		store.back.Store(true)
		<-time.After(2 * time.Second)
	})
	full := failover.Options{OnFailure: failover.Local, Nodes: 2, StartFull: true, ByName: map[string]failover.OnFailure{"other": failover.Deny},
		OnTransition: func(string, failover.State, failover.State, error) {}, Probe: time.Hour}
	routes := routesOf(t, broken{}, weirhttp.Fallback(full))
	began, admitted := time.Now(), 0
	for i := range 200 {
		if status(routes[i%len(routes)], from("192.0.2.1:1")) == 200 {
			admitted++
		}
	}
	if most := 50 + int(time.Since(began).Seconds()*50) + 1; admitted < 50 || admitted > most {
		t.Errorf("of half a burst of 100: %d admitted, want 50 to %d", admitted, most)
	}
}

// routesOf returns five middlewares of one limit of 100/s in a store.
func routesOf(t *testing.T, store weir.Store, options ...weirhttp.Option) (routes [5]http.Handler) {
	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 100}, store, weir.Named("all"))
	if err != nil {
		t.Fatal(err)
	}
	var made sync.WaitGroup
	for i := range routes {
		made.Go(func() { routes[i] = weirhttp.Limit(shared, weirhttp.Global(), options...)(ok) })
	}
	made.Wait()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, `the limit "all" has another fallback`) {
			t.Errorf("a different fallback: %s", text)
		}
	}()
	weirhttp.Limit(shared, weirhttp.Global(), weirhttp.Fallback(failover.Options{OnFailure: failover.Local, Nodes: 3}))
	return routes
}

// broken is a store that always fails.
type broken struct{}

func (broken) Do(context.Context, []weir.Charge, []weir.Decision) error { return errors.New("down") }
func (broken) Close() error                                             { return nil }

// hanging is a store that answers nothing until it is back, and then admits everything.
type hanging struct {
	back  atomic.Bool
	calls atomic.Int64
}

func (s *hanging) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if !s.back.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	for i := range batch {
		if out[i] = (weir.Decision{Allowed: true, Limit: 40, Remaining: 39}); batch[i].Op == weir.OpTake {
			s.calls.Add(1)
		}
	}
	return nil
}

func (*hanging) Close() error { return errors.New("the store is not the middleware's to close") }
