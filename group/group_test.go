package group_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// fixture is one limit of each kind, each with room for 10, in two stores. Nothing refills: the
// clock stands still.
type fixture struct {
	clock    weirtest.Clock
	one      *weir.Limiter
	keyed    *keyed.Limiter[string]
	places   *weir.ConcurrencyLimiter
	perKey   *keyed.Concurrency[string]
	stores   [2]*store
	shared   [3]*weir.Shared // the first two are in the first store
	held     holder
	inStores weir.Concurrency
}

// store counts its calls. It fails while err is set.
type store struct {
	weir.Store
	mu    sync.Mutex
	calls int
	err   error
}

func (s *store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	s.mu.Lock()
	s.calls++
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Store.Do(ctx, batch, out)
}

// holder keeps places in a limiter of this process.
type holder struct{ *weir.ConcurrencyLimiter }

func (h *holder) Enter(ctx context.Context, c weir.Charge) (func(weir.Outcome), weir.Decision, error) {
	if c.Within == 0 {
		hold, d := h.TryEnterCost(c.Cost)
		return hold.Done, d, nil
	}
	hold, err := h.EnterCost(ctx, c.Cost)
	return hold.Done, weir.Decision{Allowed: err == nil}, err
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{inStores: weir.Concurrency{Limit: 10, Queue: 10, MaxHold: time.Hour}}
	ten := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	clock := []weir.Option{weir.WithClock(f.clock.Now), weir.WithTimers(f.clock.AfterFunc)}
	named := func(name string) []weir.Option { return append([]weir.Option{weir.Named(name)}, clock...) }
	f.one = must(weir.New(ten, named("one")...))(t)
	f.keyed = must(keyed.New[string](ten, keyed.Options{Name: "keyed", Clock: f.clock.Now}))(t)
	f.places = must(weir.NewConcurrency(weir.Concurrency{Limit: 10, Queue: 10}, named("places")...))(t)
	f.perKey = must(keyed.NewConcurrency[string](weir.Concurrency{Limit: 10, Queue: 10}, keyed.Options{Name: "perKey", Clock: f.clock.Now}))(t)
	f.held = holder{must(weir.NewConcurrency(f.inStores, named("held")...))(t)}
	for i := range f.stores {
		f.stores[i] = &store{Store: weirtest.NewStore(f.clock.Now)}
	}
	for i, name := range []string{"shared 0", "shared 1", "shared 2"} {
		f.shared[i] = must(weir.NewShared(ten, f.stores[i/2], weir.Named(name)))(t)
	}
	return f
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// charges returns a charge of each kind, in the reverse of the order in which they are made.
func (f *fixture) charges(cost ...int64) []group.Charge {
	return []group.Charge{
		group.Shared(f.shared[0], "k", cost[0]), group.Shared(f.shared[2], "k", cost[1]), group.Shared(f.shared[1], "k", cost[2]),
		group.SharedInFlight(&f.held, "held", f.inStores, "k", cost[3]),
		group.KeyedInFlight(f.perKey, "k", cost[4]), group.InFlight(f.places, cost[5]),
		group.Keyed(f.keyed, "k", cost[6]), group.One(f.one, cost[7]),
	}
}

var kindNames = []string{"shared 0", "shared 2", "shared 1", "held", "perKey", "places", "keyed", "one"}

// left is what is left of each limit, in the order of charges.
func (f *fixture) left(t *testing.T) (all []int64) {
	t.Helper()
	for _, i := range []int{0, 2, 1} {
		all = append(all, must(f.shared[i].Peek(context.Background(), "k", 0))(t).Remaining)
	}
	return append(all, f.held.Peek(0).Remaining, f.perKey.Peek("k", 0).Remaining, f.places.Peek(0).Remaining, f.keyed.Peek("k", 0).Remaining, f.one.Peek(0).Remaining)
}

func (f *fixture) expect(t *testing.T, when string, want ...int64) {
	t.Helper()
	for i, n := range f.left(t) {
		if n != want[i] {
			t.Errorf("%s: %d are left of %s, want %d", when, n, kindNames[i], want[i])
		}
	}
}

var (
	ones = []int64{1, 1, 1, 1, 1, 1, 1, 1}
	full = []int64{10, 10, 10, 10, 10, 10, 10, 10}
)

// TestTakesAllOrNothing: with one limit short, nothing is charged anywhere, and the decision names it.
func TestTakesAllOrNothing(t *testing.T) {
	for i, name := range kindNames {
		f := newFixture(t)
		costs := append([]int64(nil), ones...)
		costs[i] = 11
		r, d, err := group.Take(t.Context(), f.charges(costs...)...)
		if err != nil || d.Allowed || d.By != name || d.RetryAfter != weir.Never {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if r.Decisions() != nil || r.Cancel(t.Context()) != nil || r.Settle(t.Context(), 1) != nil {
			t.Errorf("%s: the reservation of a refused caller does something", name)
		}
		r.Done(weir.OK)
		f.expect(t, name+" refuses", full...)
	}
}

// TestTakeAdmits: all are charged, and the decision has the least remaining.
func TestTakeAdmits(t *testing.T) {
	f := newFixture(t)
	r, d, err := group.Take(t.Context(), f.charges(1, 2, 3, 4, 5, 6, 7, 8)...)
	if err != nil || !d.Allowed || d.By != "one" || d.Remaining != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	f.expect(t, "after Take", 9, 8, 7, 6, 5, 4, 3, 2)
	for i, d := range r.Decisions() {
		if d.By != kindNames[i] || d.Remaining != int64(9-i) {
			t.Errorf("%s: %+v", kindNames[i], d)
		}
	}
	if f.stores[0].calls != 3 || f.stores[1].calls != 2 { // one of Take, the others of expect
		t.Errorf("%d and %d calls", f.stores[0].calls, f.stores[1].calls)
	}
}

// TestOrder: a limit that refuses keeps those after it from being called.
func TestOrder(t *testing.T) {
	for i, calls := range [][2]int{{1, 0}, {2, 1}, {1, 0}, {}, {}, {}, {}, {}} {
		f := newFixture(t)
		costs := append([]int64(nil), ones...)
		costs[i] = 11
		group.Take(t.Context(), f.charges(costs...)...)
		if got := [2]int{f.stores[0].calls, f.stores[1].calls}; got != calls {
			t.Errorf("%s refuses: %v calls, want %v", kindNames[i], got, calls)
		}
	}
}

// TestLongestWait: of several limits of this process that refuse, the one with the longest wait
// decides. Never is the longest.
func TestLongestWait(t *testing.T) {
	f := newFixture(t)
	f.one.Take(10)
	f.keyed.Take("k", 10)
	if _, d, _ := group.Take(t.Context(), group.One(f.one, 1), group.Keyed(f.keyed, "k", 2)); d.By != "keyed" || d.RetryAfter != 2*time.Hour {
		t.Errorf("%+v", d)
	}
	if _, d, _ := group.Take(t.Context(), group.Keyed(f.keyed, "k", 2), group.One(f.one, 11)); d.By != "one" || d.RetryAfter != weir.Never {
		t.Errorf("%+v", d)
	}
}

var errDown = errors.New("down")

// TestStoreFails: if a store fails, all others get back what they were charged, and the error says
// which store it is.
func TestStoreFails(t *testing.T) {
	for i := range 2 {
		f := newFixture(t)
		f.stores[i].err = errDown
		_, d, err := group.Take(t.Context(), f.charges(ones...)...)
		if !errors.Is(err, errDown) || !strings.Contains(err.Error(), "group: the store of the limit") || d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		f.stores[i].err = nil
		f.expect(t, "a store has failed", full...)
	}
}

// TestFallbackDecides: a store behind package failover does not fail.
func TestFallbackDecides(t *testing.T) {
	f := newFixture(t)
	f.stores[0].err = errDown
	over := must(failover.New(f.stores[0], failover.Options{OnFailure: failover.Local, Nodes: 2, StartFull: true}))(t)
	defer over.Close()
	s := must(weir.NewShared(weir.FixedWindow{Limit: 10, Window: time.Hour}, over, weir.Named("per-key")))(t)
	admitted := 0
	for range 10 {
		_, d, err := group.Take(t.Context(), group.One(f.one, 1), group.Shared(s, "k", 1))
		if err != nil || d.By == "per-key" && d.Source != weir.SourceShare {
			t.Fatalf("%+v, %v", d, err)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 5 {
		t.Errorf("%d were admitted, and the share is 5", admitted)
	}
	if left := f.one.Peek(0).Remaining; left != 5 {
		t.Errorf("%d are left", left)
	}
}

// TestEnds: what the first of Settle, Cancel and Done did stays, whatever is called afterwards.
func TestEnds(t *testing.T) {
	type end = func(*group.Reservation) error
	settle := func(r *group.Reservation) error { return r.Settle(context.Background(), 1, 2, 3, 9, 9, 9, 4, 5) }
	cancel := func(r *group.Reservation) error { return r.Cancel(context.Background()) }
	done := func(r *group.Reservation) error { r.Done(weir.OK); return nil }
	for name, c := range map[string]struct {
		ends []end
		left []int64
	}{
		"settle":        {[]end{settle, done}, []int64{9, 8, 7, 10, 10, 10, 6, 5}},
		"settle alone":  {[]end{settle}, []int64{9, 8, 7, 6, 6, 6, 6, 5}},
		"settle twice":  {[]end{settle, settle, cancel, done}, []int64{9, 8, 7, 10, 10, 10, 6, 5}},
		"cancel":        {[]end{cancel, settle, done}, full},
		"done":          {[]end{done, settle, cancel}, []int64{6, 6, 6, 10, 10, 10, 6, 6}},
		"nothing":       {nil, []int64{6, 6, 6, 6, 6, 6, 6, 6}},
		"settle, after": {[]end{done, settle}, []int64{6, 6, 6, 10, 10, 10, 6, 6}},
	} {
		f := newFixture(t)
		r, d, err := group.Take(t.Context(), f.charges(4, 4, 4, 4, 4, 4, 4, 4)...)
		if err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		for _, end := range c.ends {
			if err := end(r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		f.expect(t, name, c.left...)
	}
}

// TestSettleErrors: invalid costs change nothing, and a store that fails does not keep the others
// from settling.
func TestSettleErrors(t *testing.T) {
	f := newFixture(t)
	r, _, _ := group.Take(t.Context(), f.charges(4, 4, 4, 4, 4, 4, 4, 4)...)
	if err := r.Settle(t.Context(), 1, 2); !errors.Is(err, weir.ErrCosts) {
		t.Error(err)
	}
	if err := r.Settle(t.Context(), 1, 1, 1, 1, 1, 1, 1, -1); !errors.Is(err, weir.ErrCost) {
		t.Error(err)
	}
	f.expect(t, "invalid costs", 6, 6, 6, 6, 6, 6, 6, 6)
	zero, _, _ := group.Take(t.Context(), group.Shared(f.shared[0], "k", 0))
	if err := zero.Settle(t.Context(), 1); err == nil {
		t.Error("what was not charged was settled")
	}
	f.stores[0].err = errDown
	if err := r.Cancel(t.Context()); !errors.Is(err, errDown) {
		t.Error(err)
	}
	f.stores[0].err = nil
	f.expect(t, "one store lost its call", 6, 10, 6, 10, 10, 10, 10, 10)
}

// TestCosts: a cost below 0 is an error, a cost of 0 charges nothing, and the costs of one state are
// added, also beyond what can be counted.
func TestCosts(t *testing.T) {
	f := newFixture(t)
	if _, d, err := group.Take(t.Context(), group.One(f.one, 1), group.Keyed(f.keyed, "k", -1)); !errors.Is(err, weir.ErrCost) || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if _, d, err := group.Take(t.Context(), f.charges(0, 0, 0, 0, 0, 0, 0, 0)...); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	f.expect(t, "nothing was charged", full...)
	twice := append(f.charges(6, 6, 6, 6, 6, 6, 6, 6), f.charges(5, 4, 4, 4, 4, 4, 4, 4)...)
	if _, d, _ := group.Take(t.Context(), twice...); d.Allowed || d.By != "shared 0" || d.RetryAfter != weir.Never {
		t.Errorf("11 of 10 in two charges of one key: %+v", d)
	}
	f.expect(t, "11 of 10", full...)
	twice = append(f.charges(6, 6, 6, 6, 6, 6, 6, 6), f.charges(4, 4, 4, 4, 4, 4, 4, 4)...)
	r, d, _ := group.Take(t.Context(), twice...)
	if !d.Allowed {
		t.Errorf("10 of 10 in two charges of one key: %+v", d)
	}
	if err := r.Settle(t.Context(), 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2); err != nil {
		t.Error(err)
	}
	r.Done(weir.OK)
	f.expect(t, "settled to 3", 7, 7, 7, 10, 10, 10, 7, 7)
	if _, d, _ := group.Take(t.Context(), group.One(f.one, math.MaxInt64), group.One(f.one, math.MaxInt64)); d.Allowed {
		t.Error("a sum that overflows was admitted")
	}
	if _, d, err := group.Take(t.Context()); !d.Allowed || err != nil {
		t.Errorf("no charges: %+v, %v", d, err)
	}
}

// TestOddKeys: keys that are not equal to themselves or cannot be compared are refused, not charged
// and not taken for one another.
func TestOddKeys(t *testing.T) {
	l := must(keyed.New[any](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}, keyed.Options{}))(t)
	c := must(keyed.NewConcurrency[any](weir.Concurrency{Limit: 10}, keyed.Options{}))(t)
	for _, key := range []any{math.NaN(), []int{1}} {
		_, d, err := group.Take(t.Context(), group.Keyed[any](l, "fine", 1), group.Keyed(l, key, 1), group.Keyed(l, key, 1))
		if err != nil || d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("%v: %+v, %v", key, d, err)
		}
		if _, d, _ := group.Take(t.Context(), group.KeyedInFlight(c, key, 1), group.KeyedInFlight(c, key, 1)); d.Allowed {
			t.Errorf("%v: %+v", key, d)
		}
	}
	if left := l.Peek("fine", 0).Remaining; left != 10 {
		t.Errorf("%d are left", left)
	}
}

// TestEmptyBucketFills: a bucket that starts empty starts to fill with the first refused call.
func TestEmptyBucketFills(t *testing.T) {
	var clock weirtest.Clock
	l := must(weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10, Initial: weir.InitialEmpty}, weir.WithClock(clock.Now)))(t)
	if _, d, _ := group.Take(t.Context(), group.One(l, 1)); d.Allowed || d.RetryAfter != time.Second {
		t.Fatalf("%+v", d)
	}
	clock.Set(int64(time.Second))
	if _, d, _ := group.Take(t.Context(), group.One(l, 1)); !d.Allowed {
		t.Errorf("%+v", d)
	}
}
