package weirkv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

func open(t *testing.T, kv KV, o Options) *Store {
	t.Helper()
	s, err := New(kv, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// do carries out one charge of the limit "limit" and the key "k".
func do(t *testing.T, s *Store, c weir.Charge) (weir.Charge, weir.Decision) {
	t.Helper()
	if c.Name == "" {
		c.Name = "limit"
	}
	if c.Key == "" {
		c.Key = "k"
	}
	batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
	if err := s.Do(t.Context(), batch, out); err != nil {
		t.Fatalf("%v: %v", c.Op, err)
	}
	return batch[0], out[0]
}

func perHour(burst int64) weir.Limit { return weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst} }

// slow is a KV whose calls take a millisecond, and that counts its writes.
type slow struct {
	Memory
	gets, swaps atomic.Int64
}

func (k *slow) Get(ctx context.Context, key string) (Item, error) {
	k.gets.Add(1)
	<-time.After(time.Millisecond)
	return k.Memory.Get(ctx, key)
}

func (k *slow) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (uint64, bool, error) {
	k.swaps.Add(1)
	<-time.After(time.Millisecond)
	return k.Memory.CompareAndSwap(ctx, key, revision, value, ttl)
}

// TestCombining: callers of one key that come while it is read or written share the next write, and each
// has its own decision. With a store for each caller, each needs a write of its own, and most of these fail
// because of the others.
func TestCombining(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			kv := new(slow)
			s := open(t, kv, Options{})
			const callers, burst = 64, 40
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				s := s
				if alone {
					s = open(t, kv, Options{Timeout: time.Hour, Attempts: 1 << 20})
				}
				wg.Go(func() {
					if _, d := do(t, s, weir.Charge{Limit: perHour(burst), Cost: 1}); d.Allowed {
						admitted.Add(1)
					}
				})
			}
			wg.Wait()
			if n := admitted.Load(); n != burst {
				t.Errorf("%d admitted, want %d", n, burst)
			}
			tried, _ := s.Writes()
			if n := kv.swaps.Load(); alone && n < 4*burst || !alone && (n > 3 || uint64(n) != tried) {
				t.Errorf("alone %v: %d writes of %d callers", alone, n, callers)
			}
		})
	}
}

// TestOrder: of callers that are decided together, those that came first are charged first.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, new(slow), Options{})
		var out [20]weir.Decision
		var wg sync.WaitGroup
		for i := range out {
			wg.Go(func() { _, out[i] = do(t, s, weir.Charge{Limit: perHour(10), Cost: 1}) })
			synctest.Wait()
		}
		wg.Wait()
		for i, d := range out {
			if want := int64(max(9-i, 0)); d.Allowed != (i < 10) || d.Remaining != want {
				t.Errorf("caller %d: %+v", i, d)
			}
		}
	})
}

// lossy is a KV whose replies are lost at random, and whose writes are then carried out at once, later, or
// never.
type lossy struct {
	Memory
	mu     sync.Mutex
	random *rand.Rand
	late   sync.WaitGroup
	off    atomic.Bool
}

var errLost = errors.New("the reply was lost")

func (k *lossy) draw(n int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.random.IntN(n)
}

func (k *lossy) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (uint64, bool, error) {
	if k.off.Load() {
		return k.Memory.CompareAndSwap(ctx, key, revision, value, ttl)
	}
	switch k.draw(6) {
	case 0:
		return 0, false, errLost
	case 1:
		_, _, _ = k.Memory.CompareAndSwap(ctx, key, revision, value, ttl)
		return 0, false, errLost
	case 2:
		after := time.Duration(k.draw(5)) * time.Millisecond
		k.late.Go(func() {
			<-time.After(after)
			_, _, _ = k.Memory.CompareAndSwap(context.WithoutCancel(ctx), key, revision, value, ttl)
		})
		return 0, false, errLost
	}
	<-time.After(time.Duration(k.draw(500)) * time.Microsecond)
	return k.Memory.CompareAndSwap(ctx, key, revision, value, ttl)
}

// wrongClock is a KV that loses the reply to the first write. Before the key is read again, another node
// writes it.
type wrongClock struct {
	*Memory
	lost  bool
	other func()
}

func (k *wrongClock) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (uint64, bool, error) {
	next, swapped, err := k.Memory.CompareAndSwap(ctx, key, revision, value, ttl)
	if !k.lost {
		k.lost = true
		k.other()
		return 0, false, errLost
	}
	return next, swapped, err
}

// TestLostReplyWrongClock: a write without a reply is recognised although another node, with a clock that is
// wrong, has written the key since.
func TestLostReplyWrongClock(t *testing.T) {
	perWindow := weir.FixedWindow{Limit: 10_000, Window: 10_000 * time.Hour} // which no clock here ends
	for _, ahead := range []time.Duration{-2 * time.Minute, 30 * time.Second, 2 * time.Minute, 100 * time.Hour} {
		var clock weirtest.Clock
		clock.Set(int64(1000 * time.Hour))
		kv := &wrongClock{Memory: new(Memory)}
		other := open(t, kv.Memory, Options{Clock: func() int64 { return clock.Now() + int64(ahead) }})
		kv.other = func() {
			for range 3 {
				do(t, other, weir.Charge{Limit: perWindow, Cost: 1})
			}
		}
		_, d := do(t, open(t, kv, Options{Clock: clock.Now}), weir.Charge{Limit: perWindow, Cost: 100})
		if _, now := do(t, other, weir.Charge{Limit: perWindow, Op: weir.OpPeek}); !d.Allowed || now.Remaining != 10_000-103 {
			t.Errorf("a clock %v ahead: %+v, and then %+v", ahead, d, now)
		}
	}
}

// TestLostReplies: where replies of writes are lost, whether they were carried out at once, later or never,
// each charge that has a decision was made exactly once.
func TestLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &lossy{random: seeds.Of("lost replies")}
		const burst = 100_000
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			s := open(t, kv, Options{Timeout: time.Hour, Attempts: 1 << 30})
			for range 8 {
				wg.Go(func() {
					for range 50 {
						if _, d := do(t, s, weir.Charge{Limit: perHour(burst), Cost: 1}); d.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
		}
		wg.Wait()
		kv.late.Wait()
		kv.off.Store(true)
		_, d := do(t, open(t, kv, Options{}), weir.Charge{Limit: perHour(burst), Op: weir.OpPeek})
		if n := admitted.Load(); n != 4*8*50 || burst-d.Remaining != n {
			t.Errorf("%d were admitted, %d were charged, want %d", n, burst-d.Remaining, 4*8*50)
		}
	})
}

// TestContended: a key that others write again and again is given up after so many attempts.
func TestContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, always{new(Memory)}, Options{Attempts: 5})
		batch := []weir.Charge{{Name: "limit", Key: "k", Limit: perHour(1), Cost: 1}}
		if err := s.Do(t.Context(), batch, make([]weir.Decision, 1)); !errors.Is(err, ErrContended) || errors.Is(err, weir.ErrCharge) {
			t.Errorf("%v", err)
		}
		if tried, conflicts := s.Writes(); tried != 5 || conflicts != 5 {
			t.Errorf("%d writes, %d conflicts", tried, conflicts)
		}
	})
}

// always is a KV that somebody else has always just written.
type always struct{ *Memory }

func (always) CompareAndSwap(context.Context, string, uint64, []byte, time.Duration) (uint64, bool, error) {
	return 0, false, nil
}

// TestForeign: a value that is not ours, or of a later format, is left alone; the error is about the charge.
func TestForeign(t *testing.T) {
	kv := new(Memory)
	s := open(t, kv, Options{})
	for _, value := range []string{"17", "wk", "wk\x02later", "wk\x01", "wk\x01\x00\x00\x00\x00\x01\xff", string(make([]byte, 100))} {
		key := s.key("limit", value)
		if _, ok, err := kv.CompareAndSwap(t.Context(), key, 0, []byte(value), time.Hour); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for _, op := range []weir.Op{weir.OpTake, weir.OpPeek, weir.OpReserve, weir.OpReset} {
			batch := []weir.Charge{{Name: "limit", Key: value, Limit: perHour(1), Cost: 1, Op: op}, {Name: "limit", Key: "mine", Limit: perHour(100), Cost: 1}}
			out := make([]weir.Decision, 2)
			if err := s.Do(t.Context(), batch, out); !errors.Is(err, weir.ErrCharge) || batch[1].Err != nil || !out[1].Allowed {
				t.Errorf("%q: %v, %+v", value, err, out)
			}
		}
		if item, _ := kv.Get(t.Context(), key); string(item.Value) != value {
			t.Errorf("%q was overwritten", value)
		}
	}
}

// TestGroups: charges of a group over several keys are all made or none, also where callers use the same
// keys in another order at the same time.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := new(slow)
		stores := []*Store{open(t, kv, Options{}), open(t, kv, Options{})}
		var admitted [2]atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			random := seeds.Of(fmt.Sprint("groups", i))
			wg.Go(func() {
				for range 20 {
					names := []string{"a", "b", "c"}
					if random.IntN(3) == 0 {
						names[2] = "scarce"
					}
					random.Shuffle(3, func(i, j int) { names[i], names[j] = names[j], names[i] })
					var batch []weir.Charge
					for _, name := range names {
						burst := int64(1000)
						if name == "scarce" {
							burst = 5
						}
						batch = append(batch, weir.Charge{Name: name, Key: "k", Limit: perHour(burst), Cost: 1, Group: 3})
					}
					out := make([]weir.Decision, 3)
					if err := stores[i%2].Do(t.Context(), batch, out); err != nil {
						t.Error(err)
					}
					if out[0].Allowed && out[1].Allowed && out[2].Allowed {
						if admitted[0].Add(1); names[0] == "scarce" || names[1] == "scarce" || names[2] == "scarce" {
							admitted[1].Add(1)
						}
					}
				}
			})
		}
		wg.Wait()
		used := func(name string, burst int64) int64 {
			_, d := do(t, stores[0], weir.Charge{Name: name, Limit: perHour(burst), Op: weir.OpPeek})
			return burst - d.Remaining
		}
		all, scarce := admitted[0].Load(), admitted[1].Load()
		if a, c, s := used("a", 1000), used("c", 1000), used("scarce", 5); a != all || s != scarce || s != 5 || c != all-scarce {
			t.Errorf("%d groups admitted, %d of them with the scarce limit; charged: a %d, c %d, scarce %d", all, scarce, a, c, s)
		}
	})
}

// TestGroupOfOneKey: charges of a group that are of one key are made in one write, and a refused group leaves
// decisions as without a charge.
func TestGroupOfOneKey(t *testing.T) {
	s := open(t, new(Memory), Options{})
	batch := []weir.Charge{
		{Name: "x", Key: "k", Limit: perHour(5), Cost: 4, Group: 1},
		{Name: "x", Key: "k", Limit: perHour(5), Cost: 2, Group: 1},
		{Name: "x", Key: "k", Limit: perHour(5), Cost: 1},
	}
	out := make([]weir.Decision, 3)
	if err := s.Do(t.Context(), batch, out); err != nil || !out[0].Allowed || out[0].Remaining != 5 || out[1].Allowed || !out[2].Allowed || out[2].Remaining != 4 {
		t.Errorf("%+v %v", out, err)
	}
	batch[2].Op = weir.OpPeek
	batch[1].Cost = 0
	if err := s.Do(t.Context(), batch, out); err != nil || !out[0].Allowed || out[0].Remaining != 0 || out[2].Allowed {
		t.Errorf("%+v %v", out, err)
	}
	if tried, _ := s.Writes(); tried != 2 {
		t.Errorf("%d writes, want 2", tried)
	}
}

// TestTwoVersions: while callers have two versions of a limit, each decides by its own, and what one admits is
// used in the other.
func TestTwoVersions(t *testing.T) {
	clock := new(weirtest.Clock)
	s := open(t, new(Memory), Options{Clock: clock.Now})
	strict, loose := perHour(5), weir.SlidingLog{Limit: 20, Window: time.Hour}
	take := func(l weir.Limit, cost int64) weir.Decision {
		_, d := do(t, s, weir.Charge{Limit: l, Cost: cost})
		return d
	}
	take(strict, 3)
	if d := take(loose, 10); !d.Allowed || d.Remaining != 7 {
		t.Errorf("a new version does not begin with what was used: %+v", d)
	}
	if d := take(strict, 1); d.Allowed || d.RetryAfter > 6*time.Hour {
		t.Errorf("filled by at most one capacity beyond full: %+v", d)
	}
	if d := take(loose, 1); !d.Allowed || d.Remaining != 6 {
		t.Errorf("a refused call of the other version is charged: %+v", d)
	}
	for i := range 10 { // in turn: nothing is lost and nothing is created
		take(strict, 1)
		if d := take(loose, 0); d.Remaining != 6 {
			t.Fatalf("%d: %+v", i, d)
		}
	}
	third := weir.FixedWindow{Limit: 100, Window: time.Hour}
	if d := take(third, 2); d.Allowed || d.Limit != 100 {
		t.Errorf("a third version admits what the strict one refuses: %+v", d)
	}
	c, _ := do(t, s, weir.Charge{Limit: loose, Cost: 4, Keep: true, Estimate: true})
	c.Op, c.Cost = weir.OpSettle, 1
	if _, d := do(t, s, c); d.Remaining != 5 {
		t.Errorf("settled: %+v", d)
	}
	clock.Set(int64(40 * time.Hour))
	if d := take(strict, 5); !d.Allowed {
		t.Errorf("all came back, and yet: %+v", d)
	}
}

// TestFaster: a caller that was refused by a new version is told its wait, and admitted after it, although its
// refusal charged nothing: the state goes on at the new rate.
func TestFaster(t *testing.T) {
	clock := new(weirtest.Clock)
	s := open(t, new(Memory), Options{Clock: clock.Now})
	do(t, s, weir.Charge{Limit: perHour(5), Cost: 5})
	fast := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}
	_, d := do(t, s, weir.Charge{Limit: fast, Cost: 1})
	if d.Allowed || d.RetryAfter != time.Second {
		t.Fatalf("%+v", d)
	}
	clock.Set(int64(d.RetryAfter))
	if _, d = do(t, s, weir.Charge{Limit: fast, Cost: 1}); !d.Allowed {
		t.Errorf("after the wait that was told: %+v", d)
	}
}

// TestReceipts: a receipt that was changed, or is of another state, gives nothing back and breaks nothing.
func TestReceipts(t *testing.T) {
	random := seeds.Of("receipts")
	for _, l := range []weir.Limit{perHour(10), weir.IntervalBucket{Burst: 10, Refill: 1, Every: time.Hour}, weir.WarmUp{Rate: weir.PerSecond(10), Period: time.Minute},
		weir.SlidingLog{Limit: 10, Window: time.Hour}, weir.All(perHour(10), weir.FixedWindow{Limit: 10, Window: time.Hour, Align: weir.AlignFirst})} {
		s := open(t, new(Memory), Options{})
		c, d := do(t, s, weir.Charge{Limit: l, Cost: 1, Keep: true, Estimate: true})
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		for range 300 {
			b := []byte(c.Receipt)
			for range 1 + random.IntN(3) {
				b[random.IntN(len(b))] = byte(random.IntN(256))
			}
			batch := []weir.Charge{{Name: "limit", Key: "k", Limit: l, Op: weir.OpSettle, Receipt: weir.Receipt(b[:1+random.IntN(len(b))])}}
			if err := s.Do(t.Context(), batch, make([]weir.Decision, 1)); err != nil && !errors.Is(err, weir.ErrCharge) {
				t.Errorf("%T: %v", l, err)
			}
			do(t, s, weir.Charge{Limit: l, Op: weir.OpPeek, Cost: 1})
		}
		do(t, s, weir.Charge{Limit: l, Op: weir.OpReset})
		c.Op, c.Cost = weir.OpSettle, 0
		if _, d := do(t, s, c); d.ResetAfter != 0 && l != (weir.Limit)(weir.WarmUp{}) {
			t.Errorf("%T: settled after a reset: %+v", l, d)
		}
	}
}

// TestKeys: no two pairs of a name and a key are kept in one place, and all places are accepted by every store.
func TestKeys(t *testing.T) {
	s := open(t, new(Memory), Options{})
	long := string(make([]byte, 1000))
	parts := []string{"", "a", "b", "a/b", "/", "=", "=2F", "=.", ".", "a.b", "a b", "ä", "A", "\x00", "=00", long, long + "x", long[:42], long[:43]}
	seen := map[string]string{}
	for _, name := range parts {
		for _, key := range parts {
			at := s.key(name, key)
			if other, ok := seen[at]; ok || len(at) > 250 || at[len(at)-1] == '.' {
				t.Errorf("%.10q %.10q: %q, as %q", name, key, at, other)
			}
			seen[at] = name + " " + key
			for _, c := range []byte(at) {
				if !isPlain(c) && c != '/' && c != '=' && c != '.' && c != ':' {
					t.Errorf("%q has a %q", at, c)
				}
			}
		}
	}
	for _, prefix := range []string{"a b", "ü", ".a", "a\n", string(make([]byte, 33)), "a=b", "a.b"} {
		if _, err := New(new(Memory), Options{Prefix: prefix}); err == nil {
			t.Errorf("the prefix %q is accepted", prefix)
		}
	}
}
