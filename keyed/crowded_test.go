package keyed

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

func noTimers(time.Duration, func()) weir.Timer { return noTimer{} }

// with makes a limiter for a test, which ends with it.
func with[K comparable](t *testing.T, l weir.Limit, o Options) *Limiter[K] {
	t.Helper()
	if o.Timers == nil {
		o.Timers = noTimers
	}
	k, err := New[K](l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

var hourly = weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}

// TestRestoreByTwoCallers: where a key has to wait for room, another call can restore it meanwhile.
func TestRestoreByTwoCallers(t *testing.T) {
	for round := range 3000 {
		k := with[string](t, hourly, Options{MaxKeys: 3, Keys: true, Clock: func() int64 { return 0 }})
		for i := range 3 {
			k.Take("old"+strconv.Itoa(i), 5)
		}
		var saved Saved
		for _, s := range k.States() {
			saved = s
		}
		var both sync.WaitGroup
		var failed atomic.Int64
		for range 2 {
			both.Go(func() {
				if k.Restore("new", saved) != nil {
					failed.Add(1)
				}
			})
		}
		both.Wait()
		if failed.Load() == 2 {
			t.Fatalf("round %d: both calls failed", round)
		}
		kept := 0
		for s := range k.all {
			kept += s.count
			for _, m := range s.mistakes(0) {
				t.Fatalf("round %d: %s", round, m)
			}
			for slot := 0; slot < len(s.array.slots); slot += s.array.size {
				if s.array.slots[slot] < 0 {
					t.Fatalf("round %d: slot %d stays locked", round, slot)
				}
			}
			s.mu.Unlock()
		}
		if n := k.count.Load(); n != int64(kept) {
			t.Fatalf("round %d: %d keys, counted %d", round, kept, n)
		}
	}
}

// TestAReadingOfAnotherClock: a caller that waits for room has read a clock that is no longer the limit's when its turn
// comes.
func TestAReadingOfAnotherClock(t *testing.T) {
	k := with[int](t, weir.FixedWindow{Limit: 10, Window: 24 * time.Hour}, Options{MaxKeys: 1000})
	for i := range 1000 {
		k.Take(i, 10)
	}
	if err := k.SetLimit(hourly); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.makeRoom(0, k.reading(true), true); !ok {
		t.Error("no room")
	}
	if got := k.Stats(); got.EvictedIdle != 0 || got.EvictedFull != 1 {
		t.Errorf("keys that are used up were evicted as idle: %+v", got)
	}
	for s := range k.all {
		for _, m := range s.mistakes(k.reading(false)) {
			t.Error(m)
		}
		s.mu.Unlock()
	}
}

// TestResetKeepsABan: the room of the key stays its own, however many others want room.
func TestResetKeepsABan(t *testing.T) {
	k := with[int](t, hourly, Options{MaxKeys: 1, Full: Refuse})
	if err := k.Override(-1, Override{Deny: true}); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var crowd sync.WaitGroup
	for range 3 {
		crowd.Go(func() {
			for i := 0; !over.Load(); i++ {
				k.Take(i, 1)
			}
		})
	}
	defer crowd.Wait()
	defer over.Store(true)
	for i := range 30_000 {
		if !k.Reset(-1) {
			t.Fatalf("call %d: the ban is gone", i)
		}
		if d := k.Peek(-1, 1); d.Allowed || d.RetryAfter != weir.Never {
			t.Fatalf("call %d: %+v", i, d)
		}
	}
	if k.limiters.Load() != 1 || k.count.Load() > 2 {
		t.Errorf("%d limiters, %d keys", k.limiters.Load(), k.count.Load())
	}
}

// TestEndedOverridesLeaveRoom: a key whose ban has ended can be evicted, though nobody has asked for it since.
func TestEndedOverridesLeaveRoom(t *testing.T) {
	var now int64
	k := with[string](t, hourly, Options{MaxKeys: 2, Clock: func() int64 { return now }})
	for _, key := range []string{"a", "b"} {
		k.Take(key, 5)
		if err := k.Override(key, Override{Deny: true, For: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if d := k.Take("c", 1); d.Allowed {
		t.Errorf("a banned key was evicted: %+v", d)
	}
	now = int64(time.Minute)
	if d := k.Take("c", 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestRoomForOne: callers that bring new keys at once take turns in a table for one key.
func TestRoomForOne(t *testing.T) {
	k := with[int](t, hourly, Options{MaxKeys: 1})
	var crowd sync.WaitGroup
	var refused atomic.Int64
	for g := range 4 {
		crowd.Go(func() {
			for i := range 5000 {
				if !k.Take(g*5000+i, 1).Allowed {
					refused.Add(1)
				}
			}
		})
	}
	crowd.Wait()
	if n := refused.Load(); n > 200 { // before, one in six; a goroutine that the system stops for long may cause some
		t.Errorf("%d of 20000 new keys were refused", n)
	}
}

// TestBacklogsDoNotOverflow: work that no backlog can have is refused.
func TestBacklogsDoNotOverflow(t *testing.T) {
	b, err := NewBacklogs(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.Add([]byte("a"), time.Hour, MaxBacklog)
	for _, key := range []string{"a", "new"} {
		if backlog, added, _ := b.AddTo(time.Hour, []byte(key), math.MaxInt64, MaxBacklog); added || backlog < 0 {
			t.Errorf("%s: a backlog of %v, added: %v", key, backlog, added)
		}
	}
}

// TestTheJanitorComesEarlier: its timer is set for the first key that may be idle, also if that is not the first that
// came.
func TestTheJanitorComesEarlier(t *testing.T) {
	var now int64
	var set []time.Duration
	k := with[int](t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 100_000}, Options{Clock: func() int64 { return now },
		Timers: func(d time.Duration, f func()) weir.Timer { set = append(set, d); return recordedTimer{&set} }})
	k.Take(0, 86400)
	k.Take(1, 10)
	k.Take(2, 20)
	k.Take(3, 5)
	if want := []time.Duration{24 * time.Hour, 10 * time.Second, 5 * time.Second}; len(set) != 3 || set[0] != want[0] || set[1] != want[1] || set[2] != want[2] {
		t.Errorf("the timer was set for %v instead of %v", set, want)
	}
	now = int64(6 * time.Second)
	k.sweep()
	if n := k.Stats().Keys; n != 3 || set[len(set)-1] != 4*time.Second {
		t.Errorf("%d keys; the timer was set for %v", n, set)
	}
	k.Close()
	before := len(set)
	if k.Take(4, 1); len(set) != before {
		t.Error("the timer was set after Close")
	}
}

// recordedTimer records for when it is set.
type recordedTimer struct{ set *[]time.Duration }

func (recordedTimer) Stop() bool { return true }
func (r recordedTimer) Reset(d time.Duration) bool {
	*r.set = append(*r.set, d)
	return true
}

// TestAStepBackOverAWindowsBegin: the states of a table stay in their words where its clock steps back over the begin of
// the one window that they are about, and decide as those of a limiter.
func TestAStepBackOverAWindowsBegin(t *testing.T) {
	day := int64(24 * time.Hour)
	for _, l := range []weir.Limit{weir.FixedWindow{Limit: 1e9, Window: 24 * time.Hour}, weir.FixedWindow{Limit: 1e9, Align: "day"}} {
		now := 20_000*day + int64(5*time.Second)
		clock := func() int64 { return now }
		k := with[int](t, l, Options{Clock: clock})
		alone, err := weir.New(l, weir.WithClock(clock))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			k.Take(i, 10)
		}
		alone.Take(10)
		for _, at := range []int64{20_000*day - int64(5*time.Second), 20_000*day - 1, 20_000*day + 1, 20_001 * day} {
			now = at
			want := alone.Take(7)
			for i := range 2000 {
				if d := k.Take(i, 7); d != want {
					t.Fatalf("%+v, key %d at %d: %+v instead of %+v", l, i, at, d, want)
				}
			}
			for s := range k.all {
				if n := len(s.entries) - len(s.unused); n > 0 {
					t.Errorf("%+v at %d: %d states are not in their words", l, at, n)
				}
				s.mu.Unlock()
			}
		}
	}
}
