package keyed

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/cell"
	"github.com/weirflow/weir/internal/seeds"
)

// redisCell is what redis-cell does, by its description: a theoretical arrival time (tat) for each key.
type redisCell struct{ tat map[string]int64 }

func (r redisCell) throttle(now int64, key string, burst, count, period, quantity int64) cell.Reply {
	emission := int64(float64(period*1e9) / float64(count))
	tolerance := emission * (burst + 1)
	tat, ok := r.tat[key]
	if !ok || tat < now {
		tat = now
	}
	next := tat + emission*quantity
	reply := cell.Reply{Limit: burst + 1, RetryAfter: -1}
	up := func(ns int64) int64 { return ns/1e9 + min(1, ns%1e9/1e6) }
	ttl := next - now
	if over := next - tolerance - now; over > 0 {
		if reply.Limited, ttl = true, tat-now; emission*quantity <= tolerance {
			reply.RetryAfter = up(over)
		}
	} else {
		r.tat[key] = next
	}
	if left := tolerance - ttl; left > -emission {
		reply.Remaining = int64(float64(left/1000) / float64(emission/1000))
	}
	reply.ResetAfter = up(ttl)
	return reply
}

// throttle is CL.THROTTLE by Backlogs.
func throttle(t *testing.T, b *Backlogs, key string, burst, count, period, quantity int64) cell.Reply {
	t.Helper()
	l, err := cell.Compile(burst, count, period)
	if err != nil {
		t.Fatal(err)
	}
	work, err := l.Work(quantity)
	if err != nil {
		t.Fatal(err)
	}
	backlog, added, _ := b.Add([]byte(key), work, l.Longest)
	return l.Reply(added, backlog, work)
}

// TestRedisCellCases: the published cases of redis-cell's own tests, and those of its README.
func TestRedisCellCases(t *testing.T) {
	var now int64
	b, err := NewBacklogs(Options{Clock: func() int64 { return now }, Timers: noTimers})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, c := range []struct {
		ms, quantity, remaining, reset, retry int64
		limited                               bool
	}{
		{0, 6, 5, 0, -1, true}, {0, 1, 4, 1, -1, false}, {0, 1, 3, 2, -1, false}, {0, 1, 2, 3, -1, false}, {0, 1, 1, 4, -1, false},
		{0, 1, 0, 5, -1, false}, {0, 1, 0, 5, 1, true}, {3000, 1, 2, 3, -1, false}, {3100, 1, 1, 4, -1, false}, {4000, 1, 1, 4, -1, false},
		{8000, 1, 4, 1, -1, false}, {9500, 1, 4, 1, -1, false}, {9500, 0, 4, 1, -1, false}, {9500, 2, 2, 3, -1, false}, {9500, 5, 2, 3, 3, true},
	} {
		now = c.ms * 1e6
		if got, want := throttle(t, b, "foo", 4, 1, 1, c.quantity), (cell.Reply{Limited: c.limited, Limit: 5, Remaining: c.remaining, RetryAfter: c.retry, ResetAfter: c.reset}); got != want {
			t.Errorf("case %d: %+v, want %+v", i, got, want)
		}
	}
	for _, c := range []struct {
		key                  string
		burst, count, period int64
		want                 cell.Reply
	}{
		{"user123", 15, 30, 60, cell.Reply{Limit: 16, Remaining: 15, RetryAfter: -1, ResetAfter: 2}},
		{"e2e", 0, 1, 2, cell.Reply{Limit: 1, RetryAfter: -1, ResetAfter: 2}},
		{"e2e", 0, 1, 2, cell.Reply{Limited: true, Limit: 1, RetryAfter: 2, ResetAfter: 2}},
	} {
		if got := throttle(t, b, c.key, c.burst, c.count, c.period, 1); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.key, got, c.want)
		}
	}
}

// TestBesideRedisCell: random calls, also with other parameters for the same key, are replied to as by
// redis-cell, to the digit.
func TestBesideRedisCell(t *testing.T) {
	random := rand.New(rand.NewPCG(seeds.Seed(), 0))
	for range 200 {
		var now int64
		b, err := NewBacklogs(Options{Clock: func() int64 { return now }, Timers: noTimers})
		if err != nil {
			t.Fatal(err)
		}
		model := redisCell{map[string]int64{}}
		for step := range 200 {
			now += random.Int64N(int64(1) << random.IntN(34))
			key := string(rune('a' + random.IntN(3)))
			burst, count, period, quantity := random.Int64N(12)-2, 1+random.Int64N(1<<random.IntN(14)), 1+random.Int64N(100), random.Int64N(4)
			got, want := throttle(t, b, key, burst, count, period, quantity), model.throttle(now, key, burst, count, period, quantity)
			if got != want {
				t.Fatalf("step %d: %d %d %d %d of %s: %+v, want %+v", step, burst, count, period, quantity, key, got, want)
			}
		}
		b.Close()
	}
}

// TestBacklogsTogether: callers side by side never add more than the longest backlog.
func TestBacklogsTogether(t *testing.T) {
	b, err := NewBacklogs(Options{Clock: func() int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var added atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 2000 {
				if _, ok, _ := b.Add(fmt.Appendf(nil, "key%d", i%20), 7, 700); ok {
					added.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if added.Load() != 20*100 {
		t.Errorf("%d additions, want 2000", added.Load())
	}
}

// TestBacklogsFull: without room, a new key evicts the one with the shortest backlog, or is refused.
func TestBacklogsFull(t *testing.T) {
	for _, full := range []Full{Evict, Refuse} {
		var now int64
		b, err := NewBacklogs(Options{MaxKeys: 10, Full: full, Clock: func() int64 { return now }, Timers: noTimers})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			b.Add(fmt.Appendf(nil, "key%d", i), time.Duration(1+i)*time.Second, time.Hour)
		}
		_, added, wait := b.Add([]byte("another"), time.Minute, time.Hour)
		if evicts := full == Evict; added != evicts || (wait == 0) != evicts {
			t.Errorf("%d: added %v, wait %v", full, added, wait)
		}
		if first, _, _ := b.Add([]byte("key0"), 0, time.Hour); full == Evict && first != 0 {
			t.Errorf("the key with the shortest backlog was not evicted")
		}
		if last, _, _ := b.Add([]byte("key9"), 0, time.Hour); last != 10*time.Second {
			t.Errorf("the key with the longest backlog has %v", last)
		}
		b.Reset([]byte("key9"))
		if last, _, _ := b.Add([]byte("key9"), 0, time.Hour); last != 0 {
			t.Errorf("a key that was reset has %v", last)
		}
		now = int64(time.Hour)
		if _, added, wait := b.Add([]byte("later"), time.Minute, time.Hour); !added || wait != 0 {
			t.Errorf("after all are idle: %v %v", added, wait)
		}
		b.Close()
	}
}

func TestBacklogsAllocateNothing(t *testing.T) {
	b, err := NewBacklogs(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	key := []byte("some key")
	b.Add(key, time.Hour, MaxBacklog)
	if n := testing.AllocsPerRun(1000, func() { b.Add(key, 1, MaxBacklog) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
