package keyed_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

func table(t testing.TB, c *weirtest.Clock, name string, l weir.Limit) *keyed.Limiter[string] {
	t.Helper()
	k, err := keyed.New[string](l, keyed.Options{Name: name, Clock: c.Now, Timers: c.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func group(t testing.TB, limiters ...*keyed.Limiter[string]) *keyed.Group[string] {
	t.Helper()
	g, err := keyed.NewGroup(limiters...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGroupChargesAllOrNone(t *testing.T) {
	c := new(weirtest.Clock)
	user := table(t, c, "user", weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5})
	item := table(t, c, "item", weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2})
	g := group(t, user, item)
	take := func(cost int64) (weir.Decision, []keyed.Charge[string]) {
		t.Helper()
		charges := []keyed.Charge[string]{{Key: "u", Cost: cost}, {Key: "i", Cost: 1}}
		d, err := g.Take(charges)
		if err != nil {
			t.Fatal(err)
		}
		return d, charges
	}
	if d, charges := take(1); !d.Allowed || d.By != "item" || d.Remaining != 1 || charges[0].Decision.Remaining != 4 {
		t.Errorf("the least remaining speaks for all: %+v, %+v", d, charges)
	}
	take(1)
	if d, _ := take(1); d.Allowed || d.By != "item" || d.RetryAfter != time.Minute {
		t.Errorf("%+v", d)
	}
	if d := user.Peek("u", 0); d.Remaining != 3 {
		t.Errorf("a refusal by one charged the other: %+v", d)
	}
	user.Take("u", 3)
	if d, _ := take(1); d.By != "item" || d.RetryAfter != time.Minute {
		t.Errorf("the longest wait speaks for all: %+v", d)
	}
	if d, _ := take(9); d.By != "user" || d.RetryAfter != weir.Never {
		t.Errorf("never comes before all: %+v", d)
	}
	if d, err := g.Take(nil); !errors.Is(err, keyed.ErrCharges) || d.Allowed {
		t.Errorf("no charges: %+v, %v", d, err)
	}
	skipped := []keyed.Charge[string]{{Key: "v", Cost: 1}, {Skip: true}}
	if d, _ := g.Take(skipped); !d.Allowed || d.By != "user" {
		t.Errorf("%+v", d)
	}
	if d, _ := g.Take([]keyed.Charge[string]{{Skip: true}, {Skip: true}}); !d.Allowed {
		t.Errorf("nobody was asked: %+v", d)
	}
	if _, err := keyed.NewGroup(user, user); err == nil {
		t.Error("a group of twins was accepted")
	}
}

func TestGroupWaitsInOrder(t *testing.T) {
	c := new(weirtest.Clock)
	user := table(t, c, "user", weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5})
	door := table(t, c, "door", weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 1})
	g := group(t, user, door)
	take := func() (weir.Decision, []keyed.Charge[string]) {
		charges := []keyed.Charge[string]{{Key: "u", Cost: 1}, {Key: "d", Cost: 1, Wait: true}}
		d, err := g.Take(charges)
		if err != nil {
			t.Fatal(err)
		}
		return d, charges
	}
	if d, charges := take(); !d.Allowed || charges[1].Place != nil {
		t.Errorf("%+v", d)
	}
	d, waiting := take()
	if !d.Allowed || waiting[1].Place == nil || waiting[1].Place.Delay() != sec {
		t.Fatalf("%+v", d)
	}
	if d, _ := take(); d.Allowed || d.By != "door" || d.RetryAfter != sec {
		t.Errorf("a full queue: %+v", d)
	}
	if d := user.Peek("u", 0); d.Remaining != 3 {
		t.Errorf("%+v", d)
	}
	for i := range waiting { // the client has disconnected
		waiting[i].Cancel()
	}
	if d := user.Peek("u", 0); d.Remaining != 4 || door.Waiting() != 0 {
		t.Errorf("what was given up: %+v, %d wait", d, door.Waiting())
	}
	if d, again := take(); !d.Allowed || again[1].Place == nil {
		t.Errorf("the place was not given back: %+v", d)
	}
}

func TestGroupKeepsWhatIsSettledLater(t *testing.T) {
	c := new(weirtest.Clock)
	bytes := table(t, c, "bytes", weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 1000})
	g := group(t, bytes)
	charges := []keyed.Charge[string]{{Key: "u", Cost: 100, Keep: true}}
	if d, _ := g.Take(charges); !d.Allowed || d.Remaining != 900 {
		t.Fatalf("%+v", d)
	}
	charges[0].Settle(300)
	charges[0].Cancel()
	if d := bytes.Peek("u", 0); d.Remaining != 700 {
		t.Errorf("%+v", d)
	}
}

// TestGroupsThatShareLimiters: groups with the same limiters in different orders run on all cores.
// None deadlocks, and both limits hold exactly.
func TestGroupsThatShareLimiters(t *testing.T) {
	c := new(weirtest.Clock)
	a := table(t, c, "a", weir.TokenBucket{Rate: weir.PerDay(1), Burst: 700})
	b := table(t, c, "b", weir.TokenBucket{Rate: weir.PerDay(1), Burst: 500})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for _, g := range []*keyed.Group[string]{group(t, a, b), group(t, b, a), group(t, a, b), group(t, b, a)} {
		wg.Go(func() {
			for range 1000 {
				if d, _ := g.Take([]keyed.Charge[string]{{Key: "k", Cost: 1}, {Key: "k", Cost: 1}}); d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 500 || a.Peek("k", 0).Remaining != 200 || b.Peek("k", 0).Remaining != 0 {
		t.Errorf("%d admitted, %d and %d left", admitted.Load(), a.Peek("k", 0).Remaining, b.Peek("k", 0).Remaining)
	}
}

// TestGroupPeek: Peek returns what Take would, and charges nothing.
func TestGroupPeek(t *testing.T) {
	limits := map[string]weir.Limit{"a": bucketOf(2), "b": bucketOf(1), "door": weir.LeakyBucket{Rate: weir.PerHour(1), Queue: 1}}
	var limiters []*keyed.Limiter[string]
	for _, name := range []string{"a", "b", "door"} {
		l, err := keyed.New[string](limits[name], keyed.Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		limiters = append(limiters, l)
	}
	g, err := keyed.NewGroup(limiters...)
	if err != nil {
		t.Fatal(err)
	}
	charges := func() []keyed.Charge[string] {
		return []keyed.Charge[string]{{Key: "k", Cost: 1, Keep: true}, {Key: "k", Cost: 1, Keep: true}, {Key: "k", Cost: 1, Wait: true, Keep: true}}
	}
	for range 2 {
		if d, err := g.Peek(charges()); !d.Allowed || d.Remaining != 1 || err != nil {
			t.Errorf("%+v, %v", d, err)
		}
	}
	first := charges()
	if d, _ := g.Take(first); !d.Allowed || first[2].Place != nil {
		t.Errorf("%+v", d)
	}
	if d, _ := g.Peek(charges()); d.Allowed || d.By != "b" {
		t.Errorf("%+v", d)
	}
	for i := range first { // also that of the queue, which let the caller go at once
		first[i].Cancel()
	}
	again := charges()
	if d, _ := g.Take(again); !d.Allowed || again[0].Decision.Remaining != 1 || again[2].Place != nil {
		t.Errorf("%+v", again)
	}
	if d, err := g.Peek(again[:2]); d.Allowed || err != keyed.ErrCharges {
		t.Errorf("%+v, %v", d, err)
	}
}

func bucketOf(burst int64) weir.Limit { return weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst} }

// TestGroupFirstCall: a key of a limit that does not start full fills from its first call on, also if a
// group refuses that call, and if room has to be made for it. Such a key was refused for ever.
func TestGroupFirstCall(t *testing.T) {
	for _, keep := range []bool{false, true} {
		bucket := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty}
		empty, c := onClock[string](t, bucket, keyed.Options{Name: "empty", MaxKeys: 2})
		full, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}, keyed.Options{Name: "full", Clock: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		g, err := keyed.NewGroup(full, empty)
		if err != nil {
			t.Fatal(err)
		}
		c.Set(int64(sec))
		empty.Take("a", 1)
		c.Set(int64(2 * sec))
		empty.Take("b", 1) // the table is full
		take := func(cost int64) weir.Decision {
			d, err := g.Take([]keyed.Charge[string]{{Key: "k", Cost: 1, Keep: keep}, {Key: "k", Cost: cost, Keep: keep}})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if d := take(6); d.RetryAfter != weir.Never || empty.Stats().EvictedFull != 0 {
			t.Errorf("it can never go, and evicts no key: %+v", d)
		}
		if d := take(2); d.Allowed || d.RetryAfter != 2*sec || full.Peek("k", 0).Remaining != 5 {
			t.Errorf("%+v", d)
		}
		c.Set(int64(4*sec) - 1)
		if d := take(2); d.Allowed || d.RetryAfter != 1 {
			t.Errorf("%+v", d)
		}
		c.Set(int64(4 * sec))
		if d := take(2); !d.Allowed {
			t.Errorf("%+v", d)
		}
		if s := empty.Stats(); s.Keys != 2 {
			t.Errorf("%+v", s)
		}
	}
}
