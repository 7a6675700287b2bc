package weirkv

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// TestCallerLeaves: a caller whose context ends before its charge is written is charged nothing, and the
// others are decided as if it had not come.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := new(slow)
		s := open(t, kv, Options{})
		var wg sync.WaitGroup
		wg.Go(func() { do(t, s, weir.Charge{Limit: perHour(10), Cost: 1}) })
		synctest.Wait() // it reads the key
		for range 5 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
				defer cancel()
				err := s.Do(ctx, []weir.Charge{{Name: "limit", Key: "k", Limit: perHour(10), Cost: 1}}, make([]weir.Decision, 1))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a caller that left: %v", err)
				}
			})
		}
		wg.Go(func() { do(t, s, weir.Charge{Limit: perHour(10), Cost: 1}) })
		wg.Wait()
		if _, d := do(t, s, weir.Charge{Limit: perHour(10), Op: weir.OpPeek}); d.Remaining != 8 {
			t.Errorf("%d are left of 10, want 8", d.Remaining)
		}
	})
}

// TestCallerLeavesReading: a caller that leaves while the key is read is charged nothing.
func TestCallerLeavesReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, new(slow), Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
		defer cancel()
		if err := s.Do(ctx, []weir.Charge{{Name: "limit", Key: "k", Limit: perHour(10), Cost: 1}}, make([]weir.Decision, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that left: %v", err)
		}
		<-time.After(time.Second) // the read ends meanwhile
		if _, d := do(t, s, weir.Charge{Limit: perHour(10), Op: weir.OpPeek}); d.Remaining != 10 {
			t.Errorf("%d are left of 10", d.Remaining)
		}
	})
}

// lostSecond is a KV that loses the reply to the second write.
type lostSecond struct {
	slow
	then func()
}

func (k *lostSecond) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (uint64, bool, error) {
	next, swapped, err := k.slow.CompareAndSwap(ctx, key, revision, value, ttl)
	if k.swaps.Load() == 2 {
		k.then()
		return 0, false, errLost
	}
	return next, swapped, err
}

// TestCallerLeavesLostReply: of callers that share a write without a reply, one leaves before the key is
// read again. Its charge was made; the others have their decisions, of one charge each.
func TestCallerLeavesLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		kv := &lostSecond{then: func() {
			cancel()
			synctest.Wait() // the caller has left
		}}
		s := open(t, kv, Options{})
		var wg sync.WaitGroup
		wg.Go(func() { do(t, s, weir.Charge{Limit: perHour(10), Cost: 1}) })
		synctest.Wait() // it reads the key: the others share the second write
		wg.Go(func() {
			if err := s.Do(ctx, []weir.Charge{{Name: "limit", Key: "k", Limit: perHour(10), Cost: 1}}, make([]weir.Decision, 1)); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that left: %v", err)
			}
		})
		for range 3 {
			wg.Go(func() { do(t, s, weir.Charge{Limit: perHour(10), Cost: 1}) })
		}
		wg.Wait()
		if _, d := do(t, s, weir.Charge{Limit: perHour(10), Op: weir.OpPeek}); d.Remaining != 5 || kv.swaps.Load() != 2 {
			t.Errorf("%d are left of 10 after %d writes, want 5 after 2", d.Remaining, kv.swaps.Load())
		}
	})
}

// unwritable is a KV that can be read, and whose writes fail as with a full disk.
type unwritable struct{ *Memory }

var errFull = errors.New("the disk is full")

func (unwritable) CompareAndSwap(ctx context.Context, _ string, _ uint64, _ []byte, _ time.Duration) (uint64, bool, error) {
	if <-time.After(time.Millisecond); ctx.Err() != nil {
		return 0, false, ctx.Err()
	}
	return 0, false, errFull
}

// TestFullDisk: a store that can be read and not written says why, also to callers whose deadlines end while a
// key has just been read. They used to learn of their deadlines only.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 40 {
			s := open(t, unwritable{new(Memory)}, Options{Timeout: 50*time.Millisecond + time.Duration(i)*127*time.Microsecond})
			batch := []weir.Charge{{Name: "limit", Key: "k", Limit: perHour(1), Cost: 1}}
			if err := s.Do(t.Context(), batch, make([]weir.Decision, 1)); !errors.Is(err, errFull) {
				t.Fatalf("%v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond+time.Duration(i)*127*time.Microsecond)
			if err := s.Do(ctx, batch, make([]weir.Decision, 1)); !errors.Is(err, errFull) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
			cancel()
		}
	})
}
