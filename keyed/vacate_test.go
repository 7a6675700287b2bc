package keyed

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

// mistakes reports what is wrong in a segment: a key that no search finds, a block whose bound is above a key of
// it, or a wrong count.
func (s *segment[K]) mistakes(now int64) (all []string) {
	a := s.array
	n := 0
	for slot := 0; slot < len(a.slots); slot += a.size {
		head := a.slots[slot]
		if head&used == 0 {
			continue
		}
		n++
		home, line := a.home(a.hash(slot, head, s.prefix)), slot/(perLine*a.size)
		for at, lines := home, 0; at != line; at = (at + 1) % int(a.lines) {
			if lines++; !a.full(at) || lines > int(a.far.Load()) {
				all = append(all, fmt.Sprintf("the key in line %d of %d, of home %d, is behind line %d", line, a.lines, home, at))
				break
			}
		}
		if free, bound := s.freeAt(slot, head, now), s.idle.blocks[s.block(slot)]; bound > free {
			all = append(all, fmt.Sprintf("the key in line %d is idle at %d, and the bound is %d", line, free, bound))
		}
	}
	if n != s.count {
		all = append(all, fmt.Sprintf("%d keys, counted %d", n, s.count))
	}
	return all
}

// TestEveryKeyIsFoundAfterOthersLeft: keys come and go in tables of few lines, where some have their place
// behind the last line.
func TestEveryKeyIsFoundAfterOthersLeft(t *testing.T) {
	r := seeds.Of(t.Name())
	wrapped := 0
	for range 60 {
		var now int64
		limit := weir.Limit(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 60})
		if r.IntN(3) == 0 {
			limit = weir.SlidingWindow{Limit: 60, Window: time.Minute, Slots: 3} // ranks, and more words
		}
		most := 1 + r.IntN(120)
		k := with[string](t, limit, Options{MaxKeys: most, Keys: r.IntN(2) == 0, Clock: func() int64 { return now }})
		k.mostLines = 8
		model := map[string]int64{} // when each key is idle, for buckets
		for step := range 1500 {
			key := strconv.Itoa(r.IntN(2 * most))
			switch r.IntN(10) {
			case 0:
				k.Reset(key)
				delete(model, key)
			case 1:
				now += int64(r.IntN(20_000_000_000))
			default:
				cost := 1 + r.Int64N(30)
				if k.Take(key, cost).Allowed {
					model[key] = max(model[key], now) + cost*1e9
				}
			}
			for s := range k.all {
				for _, m := range s.mistakes(now) {
					t.Fatalf("step %d, %d keys at most: %s", step, most, m)
				}
				for slot := 0; slot < len(s.array.slots); slot += s.array.size {
					if head := s.array.slots[slot]; head&used != 0 && slot/(perLine*s.array.size) < s.array.home(s.array.hash(slot, head, s.prefix)) {
						wrapped++
					}
				}
				s.mu.Unlock()
			}
			if n := k.count.Load(); n > int64(most) {
				t.Fatalf("step %d: %d keys of %d", step, n, most)
			}
			if _, ok := limit.(weir.TokenBucket); !ok || len(model) > most {
				continue
			}
			// No key was evicted while it was limited, if there was room for all.
			if stats := k.Stats(); stats.EvictedFull == 0 {
				for key, free := range model {
					if got, want := k.Peek(key, 0).ResetAfter, time.Duration(max(free-now, 0)); got != want {
						t.Fatalf("step %d: the key %s resets after %v instead of %v", step, key, got, want)
					}
				}
			}
		}
	}
	if wrapped == 0 {
		t.Error("no key was behind the last line")
	}
}

type noTimer struct{}

func (noTimer) Stop() bool               { return true }
func (noTimer) Reset(time.Duration) bool { return true }

// TestKeysAreFoundWhileOthersLeave: a search without a lock never misses a key that moves meanwhile, or that is
// in an array that is replaced.
func TestKeysAreFoundWhileOthersLeave(t *testing.T) {
	b, err := NewBacklogs(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.table.mostLines = 16
	const kept = 200
	for i := range kept {
		b.Add([]byte("kept"+strconv.Itoa(i)), time.Hour, math.MaxInt64)
	}
	var over atomic.Bool
	var churn sync.WaitGroup
	for g := range 2 {
		churn.Go(func() {
			for i := 0; !over.Load(); i++ {
				key := []byte(strconv.Itoa(g*1000 + i%97))
				if b.Add(key, time.Hour, math.MaxInt64); i%2 == 0 {
					b.Reset(key)
				}
				if i%10_000 == 0 {
					for s := range b.table.all {
						s.rebuild(int(s.array.lines), s.array.version)
						s.mu.Unlock()
					}
				}
			}
		})
	}
	defer churn.Wait()
	defer over.Store(true)
	for i := range 300_000 {
		key := []byte("kept" + strconv.Itoa(i%kept))
		if backlog, _, _ := b.Add(key, 0, math.MaxInt64); backlog == 0 {
			t.Fatalf("call %d: %s has no backlog", i, key)
		}
	}
}
