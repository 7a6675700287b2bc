package weirredis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// scriptedServer is an Evaler that has the scripts it was sent, separately for each slot.
type scriptedServer struct {
	mu         sync.Mutex // a probe makes two calls at the same time
	has        map[string]bool
	calls      int
	roundTrips int
	err        error
}

func (e *scriptedServer) Eval(_ context.Context, c Call) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.roundTrips++
	return e.eval(c)
}

func (e *scriptedServer) EvalAll(_ context.Context, calls []Call, replies []Reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.roundTrips++
	for i, c := range calls {
		replies[i].Text, replies[i].Err = e.eval(c)
	}
}

func (e *scriptedServer) eval(c Call) (string, error) {
	e.calls++
	if e.err != nil {
		return "", e.err
	}
	at := c.Script.SHA + string(rune('a'+slotOf(c.Keys[0])/(slots/parts)%3)) // three nodes, with alternating ranges of slots
	if !e.has[at] && !c.Send {
		return "", errors.New("NOSCRIPT No matching script.")
	}
	e.has[at] = true
	if c.Script.Source == lua("ping") {
		return "pong", nil
	}
	return "", errors.New("WEIRLATE 1700000000000000")
}

var bucketAndWindow = []weir.Limit{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, weir.SlidingLog{Limit: 5, Window: time.Second}}

// TestWarm: each missing script is sent to where it will be needed, and the clock is known, after
// two round trips.
func TestWarm(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		e := &scriptedServer{has: map[string]bool{}}
		s, err := New(e, Options{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Warm(t.Context(), bucketAndWindow, nil, bucketAndWindow[:1]); err != nil {
			t.Fatal(err)
		}
		nodes := 1
		if cluster {
			nodes = 3
		}
		if scripts := 4; len(e.has) != scripts*nodes || e.roundTrips != 2 { // the short one, that of each kind, and that of both
			t.Errorf("%d scripts in %d round trips", len(e.has), e.roundTrips)
		}
		for i := range s.queues.parts {
			if _, known := s.queues.parts[i].clock.now(); !known {
				t.Errorf("the clock of part %d is not known", i)
			}
		}
		e.roundTrips = 0
		if err := s.Warm(t.Context(), bucketAndWindow); err != nil || e.roundTrips != 1 {
			t.Errorf("the second time takes %d round trips, %v", e.roundTrips, err)
		}
		e.has, e.roundTrips = map[string]bool{}, 0 // it was restarted
		scripts, roundTrips := 5, 4                // those, and the one of the probe, which writes
		if cluster {
			scripts, roundTrips = 1, 2
		}
		if err := s.Ping(t.Context()); err != nil || len(e.has) != scripts || e.roundTrips != roundTrips {
			t.Errorf("after a ping of a server that was restarted: %d scripts in %d round trips, %v", len(e.has), e.roundTrips, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Warm(t.Context(), bucketAndWindow); !errors.Is(err, errClosed) {
			t.Errorf("%v", err)
		}
	}
}

// TestWarmFails: Warm returns the server's error about scripts, and an error for a limit that Redis
// cannot keep.
func TestWarmFails(t *testing.T) {
	s, err := New(&scriptedServer{err: errors.New("NOPERM this user may not run evalsha")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Warm(t.Context(), bucketAndWindow); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("%v", err)
	}
	if err := s.Warm(t.Context(), []weir.Limit{weir.NginxBucket{}}); !errors.Is(err, ErrCharge) {
		t.Errorf("%v", err)
	}
	if err := s.Warm(t.Context()); err != nil {
		t.Errorf("nothing to do: %v", err)
	}
}
