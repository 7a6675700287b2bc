package weirtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// storeSubject is a limit in a Store, for Conform.
type storeSubject struct {
	s     *weirtest.Store
	name  string
	limit weir.Limit
	keys  map[string]bool
}

func (s *storeSubject) do(c weir.Charge) (weir.Charge, weir.Decision) {
	c.Name = s.name
	if c.Limit == nil {
		c.Limit = s.limit
	}
	s.keys[c.Key] = true
	batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
	if err := s.s.Do(context.Background(), batch, out); err != nil && !errors.Is(err, weir.ErrExpired) {
		panic(err)
	}
	return batch[0], out[0]
}

func (s *storeSubject) Take(key string, cost int64) weir.Decision {
	_, d := s.do(weir.Charge{Key: key, Cost: cost})
	return d
}

func (s *storeSubject) Peek(key string, cost int64) weir.Decision {
	_, d := s.do(weir.Charge{Key: key, Cost: cost, Op: weir.OpPeek})
	return d
}

// SetLimit changes the limit for all keys at once, as the model does.
func (s *storeSubject) SetLimit(next weir.Limit) error {
	for key := range s.keys {
		if _, d := s.do(weir.Charge{Key: key, Limit: next, Op: weir.OpCarry}); !d.Allowed {
			return fmt.Errorf("carried over: %+v", d)
		}
	}
	s.limit = next
	return nil
}

// Switch makes the following calls those of a process with another version of the limit.
func (s *storeSubject) Switch(l weir.Limit) error {
	s.limit = l
	return nil
}

type storeReservation struct {
	s *storeSubject
	c weir.Charge
	d weir.Decision
}

func (s *storeSubject) TakeKept(key string, cost int64, estimate bool) (weirtest.Reservation, bool) {
	c, d := s.do(weir.Charge{Key: key, Cost: cost, Keep: true, Estimate: estimate})
	return &storeReservation{s, c, d}, d.Allowed
}

func (s *storeSubject) TakeSome(key string, cost int64) (taken int64, d weir.Decision) {
	c, d := s.do(weir.Charge{Key: key, Cost: cost, Op: weir.OpTakeSome})
	return c.Taken, d
}

func (s *storeSubject) Reserve(key string, cost int64, within time.Duration) (weirtest.Reservation, bool) {
	c, d := s.do(weir.Charge{Key: key, Cost: cost, Op: weir.OpReserve, Within: within})
	return &storeReservation{s, c, d}, d.Allowed
}

func (r *storeReservation) Decision() weir.Decision { return r.d }
func (r *storeReservation) Cancel()                 { r.Settle(0) }
func (r *storeReservation) Delay() time.Duration {
	if !r.d.Allowed {
		return r.d.RetryAfter
	}
	return r.c.Delay
}
func (r *storeReservation) Settle(actual int64) { r.SettleInTime(actual) }
func (r *storeReservation) SettleInTime(actual int64) bool {
	used := actual == r.c.Cost && !rules.Lists(weir.Parts(r.c.Limit))
	if actual < 0 || used || !r.d.Allowed || r.c.Receipt == "" { // weir.Shared makes no call either
		return true
	}
	c := r.c
	r.c.Receipt = "" // the first wins
	c.Op, c.Cost = weir.OpSettle, actual
	c, _ = r.s.do(c)
	return c.Err == nil
}

// TestStoreConforms: the models are tested by themselves, so this holds the Store to its batches, keys,
// names and receipts.
func TestStoreConforms(t *testing.T) {
	raced.Skip(t)
	subject := weirtest.Subject{Blind: true, Latest: 1 << 61, Seed: seeds.Seed(), Walks: *walks}
	subject.Open = func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		return &storeSubject{weirtest.NewStore(c.Now), weir.Algorithm(l), l, map[string]bool{}}, nil
	}
	weirtest.Conform(t, subject)
}

// convertingStore is a store that changes the limit of a key with each call, in place of keeping a
// state for each version.
type convertingStore struct{ storeSubject }

func (s *convertingStore) Switch(l weir.Limit) error { return s.SetLimit(l) }

// TestConformHoldsStoresToVersions: a store that converts between versions of a limit does not
// conform, and neither does one that has no versions.
func TestConformHoldsStoresToVersions(t *testing.T) {
	raced.Skip(t)
	for name, open := range map[string]func(storeSubject) weirtest.Taker{
		"converts":    func(s storeSubject) weirtest.Taker { return &convertingStore{s} },
		"no versions": func(s storeSubject) weirtest.Taker { return takerOnly{&s} },
	} {
		found := new(failures)
		subject := weirtest.Subject{Blind: true, Latest: 1 << 61, Seed: 1, Walks: 20, Limits: weirtest.StoredLimits()[:4]}
		subject.Open = func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
			return open(storeSubject{weirtest.NewStore(c.Now), weir.Algorithm(l), l, map[string]bool{}}), nil
		}
		weirtest.Conform(found, subject)
		if found.n == 0 {
			t.Errorf("%s: the store conforms", name)
		}
	}
}

// takerOnly hides all other methods of a subject.
type takerOnly struct{ weirtest.Taker }

// failures counts what Conform reports.
type failures struct{ n int }

func (f *failures) Helper()               {}
func (f *failures) Logf(string, ...any)   {}
func (f *failures) Errorf(string, ...any) { f.n++ }

const ms = time.Millisecond

// newStore returns a store on a clock.
func newStore() (*weirtest.Store, *weirtest.Clock) {
	c := new(weirtest.Clock)
	return weirtest.NewStore(c.Now), c
}

// ask is a batch of one.
func ask(t *testing.T, s weir.Store, c *weir.Charge) weir.Decision {
	t.Helper()
	batch, out := []weir.Charge{*c}, make([]weir.Decision, 1)
	if err := s.Do(t.Context(), batch, out); err != nil || batch[0].Err != nil {
		t.Fatal(err, batch[0].Err)
	}
	*c = batch[0]
	return out[0]
}

var bucket = weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 5}

// TestStoreUsage: a peek says what is used, also beyond the limit; and the test of that finds a store that
// returns none.
func TestStoreUsage(t *testing.T) {
	s, _ := newStore()
	weirtest.Usage(t, s, "usage")
	var found failures
	weirtest.Usage(&found, unaware{s}, "other")
	if found.n == 0 {
		t.Error("a store that returns nothing as used was not found")
	}
}

// unaware is a store that does not return what is used.
type unaware struct{ weir.Store }

func (u unaware) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	err := u.Store.Do(ctx, batch, out)
	for i := range batch {
		batch[i].Used = 0
	}
	return err
}

func TestStoreTakesSome(t *testing.T) {
	s, clock := newStore()
	some := weir.Charge{Name: "a", Key: "k", Limit: bucket, Cost: 3, Op: weir.OpTakeSome}
	for i, want := range []int64{3, 2, 0} {
		if d := ask(t, s, &some); some.Taken != want || d.Allowed != (want > 0) || (some.Receipt != "") != d.Allowed || d.Source != weir.SourceStore || d.By != "a" {
			t.Errorf("%d: took %d, want %d: %+v, receipt %q", i, some.Taken, want, d, some.Receipt)
		}
		if i == 0 {
			clock.Set(int64(50 * ms))
			back := some
			back.Op, back.Cost = weir.OpSettle, 2
			if d := ask(t, s, &back); d.Remaining != 3 { // half a token refilled meanwhile
				t.Errorf("%+v", d)
			}
			some.Cost = 2
			ask(t, s, &some)
			some.Cost = 3
			clock.Set(int64(150 * ms)) // 2 left
		}
	}
	if d := ask(t, s, &some); d.RetryAfter != 100*ms && d.RetryAfter != 50*ms {
		t.Errorf("%+v", d)
	}
	for _, cost := range []int64{0, -1} {
		some.Cost = cost
		if d := ask(t, s, &some); some.Taken != 0 || d.Allowed != (cost == 0) {
			t.Errorf("%d: %+v, took %d", cost, d, some.Taken)
		}
	}
}

func TestStoreGroups(t *testing.T) {
	s, _ := newStore()
	small := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 2}
	batch := []weir.Charge{
		{Name: "a", Key: "k", Limit: bucket, Cost: 2, Group: 1},
		{Name: "a", Key: "x", Limit: bucket, Cost: 1}, // alone, and in between
		{Name: "b", Key: "k", Limit: small, Cost: 2, Group: 1},
		{Name: "a", Key: "k", Limit: bucket, Cost: 3, Group: 2},
		{Name: "a", Key: "k", Limit: bucket, Cost: 1, Group: 2}, // which is too much after the one before it
	}
	out := make([]weir.Decision, len(batch))
	if err := s.Do(t.Context(), batch, out); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		allowed   bool
		remaining int64
	}{{true, 3}, {true, 4}, {true, 0}, {true, 3}, {false, 0}} {
		if out[i].Allowed != want.allowed || i < 4 && out[i].Remaining != want.remaining {
			t.Errorf("%d: %+v, want %+v", i, out[i], want)
		}
	}
	if d := ask(t, s, &weir.Charge{Name: "a", Key: "k", Limit: bucket, Op: weir.OpPeek}); d.Remaining != 3 {
		t.Errorf("a group that was refused has charged: %+v", d)
	}
	batch = []weir.Charge{
		{Name: "a", Key: "k", Limit: bucket, Cost: 1, Group: 1},
		{Name: "a", Key: "k", Limit: bucket, Cost: 1, Group: 1, Op: weir.OpReserve},
	}
	if err := s.Do(t.Context(), batch, out); err == nil || batch[0].Err == nil || batch[1].Err == nil {
		t.Error("a group reserves")
	}
}

// TestStoreGroupFirstCall: a bucket that starts empty fills from its first call on, also if that call is
// refused in a group.
func TestStoreGroupFirstCall(t *testing.T) {
	s, clock := newStore()
	empty := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty}
	take := func() (out [2]weir.Decision) {
		batch := []weir.Charge{{Name: "full", Key: "k", Limit: bucket, Cost: 1, Group: 1}, {Name: "empty", Key: "k", Limit: empty, Cost: 2, Group: 1}}
		if err := s.Do(t.Context(), batch, out[:]); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := take(); !out[0].Allowed || out[1].Allowed || out[1].RetryAfter != 2*time.Second {
		t.Errorf("%+v", out)
	}
	clock.Set(clock.Now() + int64(2*time.Second))
	if out := take(); !out[1].Allowed || out[0].Remaining != 4 {
		t.Errorf("%+v", out)
	}
}

func TestStoreSettles(t *testing.T) {
	s, clock := newStore()
	take := weir.Charge{Name: "a", Key: "k", Limit: bucket, Cost: 4, Keep: true}
	if ask(t, s, &take); take.Receipt == "" {
		t.Fatal("no receipt")
	}
	settle := func(c weir.Charge, actual int64) weir.Decision {
		c.Op, c.Cost = weir.OpSettle, actual
		return ask(t, s, &c)
	}
	if d := settle(take, 1); d.Remaining != 4 {
		t.Errorf("%+v", d)
	}
	if d := settle(take, 0); d.Remaining != 4 {
		t.Errorf("settled twice: %+v", d)
	}
	late := take
	ask(t, s, &late)
	clock.Set(int64(10 * time.Second)) // full again, so nothing can be given back
	if d := settle(late, 0); d.Remaining != 5 {
		t.Errorf("%+v", d)
	}
	ask(t, s, &late)
	clock.Set(int64(20 * time.Second))
	if d := settle(late, 9); d.Remaining != 0 {
		t.Errorf("what was too little is not charged: %+v", d)
	}
	clock.Set(int64(30 * time.Second))
	ask(t, s, &late)
	wider := weir.TokenBucket{Rate: weir.PerSecond(20), Burst: 10}
	if d := ask(t, s, &weir.Charge{Name: "a", Key: "k", Limit: wider, Op: weir.OpCarry}); d.Remaining != 6 {
		t.Errorf("%+v", d)
	}
	late.Limit = wider
	if d := settle(late, 0); d.Remaining != 6 {
		t.Errorf("a charge at another rate was given back: %+v", d)
	}
	if d := ask(t, s, &weir.Charge{Name: "a", Key: "k", Limit: wider, Op: weir.OpReset}); d.Remaining != 10 || s.Len() != 0 {
		t.Errorf("%+v, %d keys", d, s.Len())
	}
	bad := []weir.Charge{{Name: "a", Key: "k", Limit: wider, Op: weir.OpSettle, Receipt: "of another"}}
	if err := s.Do(t.Context(), bad, make([]weir.Decision, 1)); err == nil {
		t.Error("any receipt is settled")
	}
}

// TestStoreSettlesAfterItsVersionIsGone: nothing is given back to a version that begins without a state.
func TestStoreSettlesAfterItsVersionIsGone(t *testing.T) {
	for name, l := range map[string]weir.Limit{
		"one": weir.FixedWindow{Limit: 9, Window: time.Minute},
		"all": weir.All(weir.FixedWindow{Limit: 9, Window: time.Minute}, weir.SlidingLog{Limit: 9, Window: time.Minute}),
	} {
		s, clock := newStore()
		take := weir.Charge{Name: "a", Key: "k", Limit: l, Cost: 4, Keep: true}
		ask(t, s, &take)
		clock.Set(int64(2 * time.Minute))
		ask(t, s, &weir.Charge{Name: "a", Key: "k", Limit: bucket, Cost: 1})
		clock.Set(int64(4 * time.Minute))
		take.Op, take.Cost = weir.OpSettle, 1
		if d := ask(t, s, &take); d.Remaining != 9 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestStoreSaysWhatIsWrong(t *testing.T) {
	s, _ := newStore()
	out := make([]weir.Decision, 2)
	batch := []weir.Charge{{Limit: weir.TokenBucket{}, Cost: 1}, {Limit: bucket, Cost: 1}}
	if err := s.Do(t.Context(), batch, out); err == nil || batch[0].Err == nil || batch[1].Err != nil || !out[1].Allowed {
		t.Errorf("%v, %v, %v, %+v", err, batch[0].Err, batch[1].Err, out[1])
	}
	if err := s.Do(t.Context(), []weir.Charge{{Limit: weir.Concurrency{Limit: 1}, Cost: 1}}, out); err == nil {
		t.Error("Concurrency is taken")
	}
	if err := s.Do(t.Context(), []weir.Charge{{Limit: bucket, Op: 99}}, out); err == nil {
		t.Error("any operation is known")
	}
	if err := s.Do(t.Context(), batch, out[:1]); err == nil {
		t.Error("there was no room for a decision")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Do(ended, batch, out); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Close()
	if err := s.Do(t.Context(), batch, out); !errors.Is(err, weirtest.ErrClosed) {
		t.Error(err)
	}
}

// TestStoreIsBounded: idle keys are dropped for new ones. If there is none, a new key is an error,
// and no other is dropped.
func TestStoreIsBounded(t *testing.T) {
	raced.Skip(t)
	s, clock := newStore()
	day := weir.FixedWindow{Limit: 1, Window: 24 * time.Hour}
	for i := range 70_000 {
		clock.Set(int64(i) * int64(ms))
		ask(t, s, &weir.Charge{Key: strconv.Itoa(i), Limit: bucket, Cost: 1, Keep: true})
	}
	if n := s.Len(); n > 4096 {
		t.Errorf("%d keys, of which 100 are limited", n)
	}
	var full error
	n := 0
	for i := 0; full == nil && i < 70_000; i++ {
		c := []weir.Charge{{Name: "day", Key: strconv.Itoa(i), Limit: day, Cost: 1}}
		full = s.Do(t.Context(), c, make([]weir.Decision, 1))
		n = i
	}
	if !errors.Is(full, weirtest.ErrFull) || !errors.Is(full, weir.ErrCharge) || n < 65_000 || s.Len() > 1<<16 {
		t.Errorf("%v after %d, %d kept", full, n, s.Len())
	}
	if d := ask(t, s, &weir.Charge{Name: "day", Key: "0", Limit: day, Cost: 1}); d.Allowed {
		t.Error("a limited key was forgotten")
	}
	if d := ask(t, s, &weir.Charge{Name: "day", Key: "new", Limit: day, Cost: 1, Op: weir.OpPeek}); !d.Allowed {
		t.Error("to look at a key takes room")
	}
}

func TestStoreFromManyGoroutines(t *testing.T) {
	s := weirtest.NewStore(nil)
	hour := weir.FixedWindow{Limit: 500, Window: 1000 * time.Hour, Align: weir.AlignFirst}
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				c := weir.Charge{Name: "a", Key: "k", Limit: hour, Cost: 3, Op: weir.OpTakeSome}
				ask(t, s, &c)
				taken.Add(c.Taken)
			}
		})
	}
	wg.Wait()
	if n := taken.Load(); n != 500 {
		t.Errorf("%d of 500", n)
	}
}

// TestSharedOverStore: the verbs of a Shared.
func TestSharedOverStore(t *testing.T) {
	s, clock := newStore()
	l, err := weir.NewShared(bucket, s, weir.Named("a"))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := l.Take(t.Context(), "k", 5); err != nil || !d.Allowed || d.By != "a" || d.Source != weir.SourceStore {
		t.Errorf("%+v, %v", d, err)
	}
	r, ok, err := l.Reserve(t.Context(), "k", 2, time.Second)
	if err != nil || !ok || r.Delay() != 200*ms {
		t.Errorf("%v, %v, %v", r.Delay(), ok, err)
	}
	if err := r.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	clock.Set(int64(100 * ms))
	if ok, err := l.Allow(t.Context(), "k"); !ok || err != nil {
		t.Error(ok, err)
	}
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if d, err := l.Peek(t.Context(), "k", math.MaxInt64); err != nil || d.Remaining != 5 || d.RetryAfter != weir.Never {
		t.Errorf("%+v, %v", d, err)
	}
}
