package proof

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// A table is a keyed.Limiter, and one model for each key.
type table struct {
	*keyed.Limiter[string]
	clock  weirtest.Clock
	limit  weir.Limit
	most   int
	full   keyed.Full
	models map[string]*weirtest.Model // of the keys that have used anything, until they are evicted
	lives  map[string]int             // how often each key was evicted
	stats  keyed.Stats
}

func openTable(t *rapid.T, least, most int) *table {
	w := &table{
		limit:  either(t, 1, time.Hour),
		most:   rapid.IntRange(least, most).Draw(t, "max_keys"),
		full:   rapid.SampledFrom([]keyed.Full{keyed.Evict, keyed.Refuse}).Draw(t, "full"),
		models: map[string]*weirtest.Model{},
		lives:  map[string]int{},
	}
	switch l := w.limit.(type) {
	case weir.TokenBucket:
		l.Initial = 0 // such a key is never idle: see TestBucketsThatDoNotStartFull
		w.limit = l
	case weir.SmoothBursty:
		l.MaxBurst = -1 // the same
		w.limit = l
	}
	k, err := keyed.New[string](w.limit, keyed.Options{MaxKeys: w.most, Full: w.full, Clock: w.clock.Now, Timers: w.clock.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	w.Limiter = k
	return w
}

// limited returns how many other keys are limited now, and the soonest time at which one of them is
// not.
func (w *table) limited(but string) (keys int, soonest time.Duration) {
	soonest = weir.Never
	for key, m := range w.models {
		if key == but {
			continue
		}
		if d := m.Peek(w.clock.Now(), 0); d.ResetAfter > 0 {
			if keys++; soonest == weir.Never || d.ResetAfter < soonest {
				soonest = d.ResetAfter
			}
		}
	}
	return keys, soonest
}

// restriction returns the time for which a key refuses a request: 0 if it admits one, and the
// largest int64 if it never will.
func (w *table) restriction(key string) time.Duration {
	switch d := w.models[key].Peek(w.clock.Now(), 1); {
	case d.Allowed:
		return 0
	case d.RetryAfter == weir.Never:
		return math.MaxInt64
	default:
		return d.RetryAfter
	}
}

// leastRestricted reports whether no other key is less restricted. For buckets, a key that resets
// sooner is less restricted; for the others, one that admits a request sooner.
func (w *table) leastRestricted(key, caller string) bool {
	if kind := rules.KindOf(w.limit); kind != nil && kind.ResetRanks {
		_, soonest := w.limited(caller)
		return w.models[key].Peek(w.clock.Now(), 0).ResetAfter <= soonest
	}
	for other, m := range w.models {
		if other != caller && m.Peek(w.clock.Now(), 0).ResetAfter > 0 && w.restriction(other) < w.restriction(key) {
			return false
		}
	}
	return true
}

// drop evicts a key from the model. Older reservations do not act on its next state.
func (w *table) drop(key string) {
	delete(w.models, key)
	w.lives[key]++
}

func (w *table) model(key string) *weirtest.Model {
	if m := w.models[key]; m != nil {
		return m
	}
	return weirtest.NewModel(w.limit, 1)
}

// check compares all keys with their models. A key that the table has evicted must have been the
// least restricted.
func (w *table) check(t *rapid.T, names []string, caller string) {
	now, stats := w.clock.Now(), w.Stats()
	if n := w.Len(); n > w.most || stats.Keys != n {
		t.Fatalf("%d keys are kept, %d by the counters; the ceiling is %d", n, stats.Keys, w.most)
	}
	forgotten := stats.EvictedFull - w.stats.EvictedFull
	w.stats = stats
	for _, key := range names {
		got, want := w.Peek(key, 0), w.model(key).Peek(now, 0)
		if got == want {
			continue
		}
		fresh := weirtest.NewModel(w.limit, 1).Peek(now, 0)
		if got != fresh || forgotten == 0 || key == caller || !w.leastRestricted(key, caller) {
			t.Fatalf("key %s: got %+v, want %+v; %d were forgotten", key, got, want, forgotten)
		}
		w.drop(key)
		forgotten--
	}
	if forgotten != 0 {
		t.Fatalf("%d more were counted as forgotten than are", forgotten)
	}
}

// TestRule7And9EachKeyHasItsOwn: every key of a small table is decided on by its own history alone.
// There are never more keys than MaxKeys. While there is room, only idle keys are evicted. Beyond
// that, the behaviour that Full selects happens and is counted: the least restricted key is
// evicted, or the new key is refused until exactly the time at which there is room.
func TestRule7And9EachKeyHasItsOwn(t *testing.T) {
	raced.Skip(t)
	t.Run("few", func(t *testing.T) {
		eachKeyHasItsOwn(t, []string{"a", "b", "c", "d", "e", "f", "aa", ""}, 1, 4, 40)
	})
	t.Run("many", func(t *testing.T) { // for tables of several segments, which grow and evict
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint("key", i))
		}
		eachKeyHasItsOwn(t, names, 20, 80, 150)
	})
}

func eachKeyHasItsOwn(t *testing.T, names []string, least, most, calls int) {
	rapid.Check(t, func(t *rapid.T) {
		w := openTable(t, least, most)
		defer w.Close()
		type open struct {
			key  string
			r    keyed.Reservation[string]
			id   int
			life int
		}
		var reserved []open
		from := &walker{limit: w.limit, tick: 1, floor: 0}
		for i := range rapid.IntRange(1, calls).Draw(t, "calls") {
			w.clock.Set(from.move(t))
			now := w.clock.Now()
			key := rapid.SampledFrom(names).Draw(t, "key")
			c := call{now: now, verb: rapid.SampledFrom([]verb{take, take, peek, reserve, settle}).Draw(t, "verb"), cost: from.cost(t), within: -1}
			step := fmt.Sprintf("call %d, %s: %v", i, key, c)
			if c.verb == settle {
				if len(reserved) > 0 {
					o := reserved[rapid.IntRange(0, len(reserved)-1).Draw(t, "which")]
					o.r.Cancel()
					if m := w.models[o.key]; m != nil && o.life == w.lives[o.key] {
						m.Cancel(now, o.id)
					}
				}
				w.check(t, names, "nobody")
				continue
			}
			keys, soonest := w.limited(key)
			m, known := w.models[key]
			if known && m.Peek(now, 0).ResetAfter == 0 {
				w.drop(key) // it was idle
				known = false
			}
			fits := c.cost > 0 && c.cost <= largestOf(w.limit, 1)
			if !known && fits && keys >= w.most && w.full == keyed.Refuse {
				var d weir.Decision
				switch c.verb {
				case take:
					d = w.Take(key, c.cost)
				case peek:
					d = w.Peek(key, c.cost)
				case reserve:
					r, _ := w.Reserve(key, c.cost, -1)
					d = r.Decision()
				}
				if want := (weir.Decision{Limit: sizeOf(w.limit), RetryAfter: soonest}); d != want {
					t.Fatalf("%s: there is no room: got %+v, want %+v", step, d, want)
				}
				from.retry = soonest
				w.check(t, names, "nobody")
				continue
			}
			m = w.model(key).Clone()
			var got, want weir.Decision
			switch c.verb {
			case take:
				got, want = w.Take(key, c.cost), m.Take(now, c.cost)
			case peek:
				got, want = w.Peek(key, c.cost), m.Peek(now, c.cost)
			case reserve:
				r, ok := w.Reserve(key, c.cost, -1)
				id, _, d := m.Reserve(now, c.cost, -1)
				if got, want = r.Decision(), d; ok && c.cost > 0 {
					reserved = append(reserved, open{key, r, id, w.lives[key]})
				}
			}
			if got != want {
				t.Fatalf("%s: got %+v, want %+v", step, got, want)
			}
			if m.Touched() {
				w.models[key] = m
			}
			if want.RetryAfter > 0 {
				from.retry = want.RetryAfter
			}
			w.check(t, names, key)
		}
	})
}
