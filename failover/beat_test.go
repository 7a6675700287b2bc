package failover

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// beating is a store that keeps heartbeats.
type beating struct {
	*fake
	nodes int
}

func (b *beating) Beat(ctx context.Context, id string, ttl time.Duration) (int, error) {
	b.mu.Lock()
	act, n := b.act, b.nodes
	b.mu.Unlock()
	if id == "" || ttl != DefaultBeatTTL {
		return 0, fmt.Errorf("beat of %q for %v", id, ttl)
	}
	if act != nil {
		return 0, act(ctx)
	}
	return n, nil
}

func (b *beating) are(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = n
}

func TestNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &beating{fake: newFake()} // it reports no nodes, which cannot be
		s := open(t, f, Options{OnFailure: Local, Nodes: 4})
		is := func(n int, when string) {
			t.Helper()
			if synctest.Wait(); s.Nodes() != n {
				t.Errorf("%d nodes %s, want %d", s.Nodes(), when, n)
			}
		}
		is(4, "before a heartbeat has a number")
		f.are(8)
		<-time.After(DefaultBeatEvery)
		is(8, "after one")
		f.are(9)
		wait(time.Second)
		is(9, "when one has come")
		f.are(3)
		wait(5 * time.Second)
		is(9, "while those that left may come back")
		f.are(5)
		wait(2 * time.Second)
		is(5, "when they have not")
		breakIt(t, s, f.fake)
		f.are(1)
		wait(time.Minute)
		is(5, "while the store is out")
		mend(t, s, f.fake)
		wait(2 * time.Second)
		is(5, "while the others come back")
		f.are(5)
		wait(time.Minute)
		is(5, "when they are there")
	})
}

// TestOutageWithoutRequests: heartbeats that fail open no breaker, and keep the number of nodes. The
// requests that come then do.
func TestOutageWithoutRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &beating{fake: newFake(), nodes: 2}
		s := open(t, f, Options{OnFailure: Local, Nodes: 1})
		synctest.Wait()
		f.set(down)
		wait(time.Minute)
		if s.State() != Closed || s.Nodes() != 2 {
			t.Errorf("without requests: %v, %d nodes", s.State(), s.Nodes())
		}
		breakIt(t, s, f.fake)
	})
}
