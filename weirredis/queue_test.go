package weirredis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// node is an Evaler of a cluster in which one node, that of the slots below 5461, does not respond.
type node struct{ calls atomic.Int64 }

func (n *node) Eval(ctx context.Context, c Call) (string, error) {
	n.calls.Add(1)
	if slotOf(c.Keys[1]) < 5461 {
		<-ctx.Done()
		return "", ctx.Err()
	}
	select {
	case <-time.After(time.Millisecond):
		return yesTo(c, 1e15), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// EvalAll returns when the last of its calls does, because several nodes have to respond.
func (n *node) EvalAll(ctx context.Context, calls []Call, replies []Reply) {
	var wg sync.WaitGroup
	for i, c := range calls {
		wg.Go(func() { replies[i].Text, replies[i].Err = n.Eval(ctx, c) })
	}
	wg.Wait()
}

// TestANodeThatDoesNotRespondDelaysNoOther: callers use all keys, and one node does not respond. Callers of the other
// nodes are delayed until that is known, and not after; and their requests still share round trips.
func TestANodeThatDoesNotRespondDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(node)
		s, err := New(n, Options{Cluster: true, Prefix: "p:"})
		if err != nil {
			t.Fatal(err)
		}
		s.clock.set(1e15)
		var wg sync.WaitGroup
		var asked, answered atomic.Int64
		began := time.Now()
		for i := range 20_000 { // one every 500 us, for 10 s
			<-time.After(500 * time.Microsecond)
			wg.Go(func() {
				within := 50 * time.Millisecond
				if i%100 == 0 {
					within = 20 * time.Second // a caller with a long deadline does not delay the others
				}
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				key := fmt.Sprint("k", i%5000)
				err := take(ctx, s, key)
				switch {
				case slotOf(s.key("api", key)) < 5461 || time.Since(began) < 4*time.Second:
				default:
					if asked.Add(1); err == nil {
						answered.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got, of := answered.Load(), asked.Load(); got < of*99/100 {
			t.Errorf("%d of %d were answered", got, of)
		}
		t.Logf("%d of %d were answered, after 4 s", answered.Load(), asked.Load())
		s.Close()
	})
}
