package weirsql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// server is a Querier that carries calls out as carry_out does, as far as numbers and expiry go: it
// grants every charge.
type server struct {
	mu      sync.Mutex
	down    bool              // replies with an error
	work    time.Duration     // how long one charge takes
	calls   map[string]string // the latest call of each lane, and its reply
	charged int64
	tries   int
}

// set makes calls fail, or no longer.
func (s *server) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *server) Exec(context.Context, string) error { return nil }

func (s *server) Query(ctx context.Context, _ string, args ...string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	now := time.Now().UnixMicro()
	expiry, _ := strconv.ParseInt(args[2], 10, 64)
	if s.down {
		return "", errors.New("the connection was lost")
	}
	if expiry < now {
		return fmt.Sprint("LATE ", now), nil
	}
	if reply, ok := s.calls[args[0]+" "+args[1]]; ok {
		return reply, nil
	}
	numbers := strings.Split(strings.Trim(args[7], "{}"), ",")
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(s.work * time.Duration(len(numbers)/7)):
	}
	reply := fmt.Sprint(now, " 0 0 0")
	for ; len(numbers) > 0; numbers = numbers[7:] {
		cost, _ := strconv.ParseInt(numbers[3], 10, 64)
		early, _ := strconv.ParseInt(numbers[6], 10, 64)
		if now > expiry-1000*early {
			reply += ";LATE"
			continue
		}
		s.charged += cost
		reply += ";0 1 0"
	}
	s.calls[args[0]+" "+args[1]] = reply
	return reply, nil
}

// inBubble runs a test of a store over a server that has been called once, in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, s *Store, p *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &server{calls: map[string]string{}}
		s, err := New(p, Options{RoundTrips: 1, SweepEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Do(t.Context(), costing(0), make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		test(t, s, p)
	})
}

// costing returns a batch of charges with these costs.
func costing(costs ...int64) (batch []weir.Charge) {
	for i, cost := range costs {
		batch = append(batch, weir.Charge{Name: "x", Key: strconv.Itoa(i), Cost: cost, Limit: weir.SlidingCounter{Limit: 100, Window: time.Hour}})
	}
	return batch
}

// TestLeft: a caller that is cancelled, long before its deadline, is charged by no later attempt:
// neither of a call of its own, nor of one that goes on for another caller, nor from the queue.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, with int64 // the costs of callers that stay: in the call that is in flight, and beside the one that leaves
		want         int64
	}{
		{"alone", 0, 0, 0}, {"beside another caller", 0, 1, 1}, {"in the queue", 2, 0, 2}, {"in the queue beside another caller", 2, 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Store, p *server) {
				do := func(ctx context.Context, cost int64, want error) {
					if err := s.Do(ctx, costing(cost), make([]weir.Decision, 1)); !errors.Is(err, want) {
						t.Errorf("the caller with cost %d: %v, want %v", cost, err, want)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var all sync.WaitGroup
				p.set(true)
				if c.before > 0 {
					all.Go(func() { do(ctx, c.before, nil) })
					synctest.Wait()
				}
				gone, leave := context.WithCancel(ctx)
				defer leave()
				s.queue.mu.Lock()
				lanes := s.queue.lanes
				s.queue.lanes = nil // both are in the queue when the next call begins
				s.queue.mu.Unlock()
				all.Go(func() { do(gone, 10, context.Canceled) })
				if c.with > 0 {
					all.Go(func() { do(ctx, c.with, nil) })
				}
				synctest.Wait()
				for _, l := range lanes {
					s.sending.Go(func() { s.send(l) })
				}
				<-time.After(5 * time.Second)
				leave()
				synctest.Wait()
				<-time.After(time.Second)
				p.set(false)
				all.Wait()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if p.charged != c.want {
					t.Errorf("%d charged, want %d", p.charged, c.want)
				}
			})
		})
	}
	// without other callers, attempts end with the last one
	inBubble(t, func(t *testing.T, s *Store, p *server) {
		p.set(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(time.Second, cancel)
		if err := s.Do(ctx, costing(1), make([]weir.Decision, 1)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		tries := p.tries
		<-time.After(time.Minute)
		if n := p.tries - tries; n > 1 {
			t.Errorf("%d attempts for a caller that had left", n)
		}
	})
}

// TestLargeBatch: a batch whose charges together take longer than Options.Timeout is carried out.
func TestLargeBatch(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, p *server) {
		p.work = time.Millisecond
		batch := costing(make([]int64, 4000)...)
		if err := s.Do(t.Context(), batch, make([]weir.Decision, len(batch))); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if err := s.Do(ctx, batch, make([]weir.Decision, len(batch))); err != nil {
			t.Error(err)
		}
	})
}

// TestCause: a caller that leaves while a call is repeated, or before its call begins, learns why.
func TestCause(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, p *server) {
		p.set(true)
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				err := s.Do(ctx, costing(1), make([]weir.Decision, 1))
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the connection was lost") {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		all.Wait()
		p.set(false)
		if err := s.Do(t.Context(), costing(1), make([]weir.Decision, 1)); err != nil {
			t.Error(err)
		}
	})
}

// TestPrefix: a prefix that PostgreSQL cannot keep as text is an error of New, not of Beat alone.
func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]bool{"": true, "shop:": true, "é": true, "é\xff": false, "a\x00b": false} {
		s, err := New(&server{}, Options{Prefix: prefix, SweepEvery: -1})
		if (err == nil) != want {
			t.Errorf("%q: %v", prefix, err)
		}
		if err == nil {
			s.Close()
		}
	}
}
