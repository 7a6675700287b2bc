package weirkv

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// TestLimits: every limit that can be kept is read as it was written.
func TestLimits(t *testing.T) {
	random := seeds.Of("limits")
	var l, other limits
	for _, draw := range weirtest.StoredLimits() {
		for range 50 {
			limit := draw(random)
			c, err := l.of(limit)
			if err != nil {
				continue // too fast for the clock unit, or too large
			}
			read, err := other.read([]byte(c.text))
			if err != nil || read.Limit() != limit || !read.is(c) {
				t.Fatalf("%+v was read as %+v: %v", limit, read, err)
			}
		}
	}
	for _, limit := range []weir.Limit{nil, weir.TokenBucket{}, weir.NginxBucket{Rate: weir.PerSecond(1)}, weir.Concurrency{Limit: 1}, weir.SlidingLog{Limit: 1 << 40, Window: time.Hour, MaxEntries: 1 << 30}} {
		if Check(limit) == nil {
			t.Errorf("%+v is kept", limit)
		}
	}
}

// walked returns values of keys after random calls, of each algorithm.
func walked(tb testing.TB) (values [][]byte) {
	random := seeds.Of("walked")
	for _, draw := range weirtest.StoredLimits() {
		for range 4 {
			first, second := draw(random), draw(random)
			if Check(first) != nil || Check(second) != nil {
				continue
			}
			kv, clock := new(Memory), new(weirtest.Clock)
			clock.Set(int64(time.Hour))
			s, err := New(kv, Options{Clock: clock.Now})
			if err != nil {
				tb.Fatal(err)
			}
			for range 30 {
				clock.Set(clock.Now() + random.Int64N(int64(time.Second)))
				c := weir.Charge{Name: "l", Key: "k", Limit: first, Cost: 1 + random.Int64N(2), Op: []weir.Op{weir.OpTake, weir.OpReserve}[random.IntN(2)], Within: -1, Keep: true, Estimate: random.IntN(2) == 0}
				if random.IntN(8) == 0 {
					c.Limit = second
				}
				if err := s.Do(context.Background(), []weir.Charge{c}, make([]weir.Decision, 1)); err != nil {
					tb.Fatal(err)
				}
			}
			if item, _ := kv.Get(context.Background(), s.key("l", "k")); len(item.Value) > 0 {
				values = append(values, item.Value)
			}
			_ = s.Close()
		}
	}
	return values
}

// TestValues: a value is read and written again without a change, and whatever is cut off or changed in it,
// reading it gives an error or a state that can be used.
func TestValues(t *testing.T) {
	random := seeds.Of("values")
	var l limits
	longest, read := 0, 0
	for _, value := range walked(t) {
		longest = max(longest, len(value))
		e, err := l.readEntry(value, 8<<10)
		if err != nil {
			t.Fatal(err)
		}
		if again := e.value(); !bytes.Equal(again, value) {
			t.Fatalf("%x became %x", value, again)
		}
		if again := e.copied().value(); !bytes.Equal(again, value) {
			t.Fatalf("a copy of %x is %x", value, again)
		}
		for n := range value {
			if _, err := l.readEntry(value[:n], 8<<10); err == nil && n > 0 {
				t.Fatalf("%x is read, although cut off", value[:n])
			}
		}
		for range 200 {
			changed := slices.Clone(value)
			for range 1 + random.IntN(4) {
				changed[3+random.IntN(len(changed)-3)] = byte(random.IntN(256))
			}
			if useValue(&l, changed) {
				read++
			}
		}
	}
	t.Logf("the longest value has %d bytes; %d changed ones were read", longest, read)
	if read == 0 {
		t.Error("no changed value was read: the checks after reading were not tested")
	}
}

// useValue reads a value, and carries out each operation on it. It reports whether it could be read.
func useValue(l *limits, value []byte) bool {
	e, err := l.readEntry(value, 8<<10)
	if err != nil {
		return false
	}
	if len(e.versions) == 0 {
		return true
	}
	limit := e.versions[0].limit.Limit()
	for _, now := range []int64{0, 1 << 50, e.clock.last, e.clock.last + 1_000_000} {
		on := &turn{entry: e.copied(), limits: l, remember: 8 << 10, now: now}
		var made weir.Receipt
		for _, op := range []weir.Op{weir.OpPeek, weir.OpTake, weir.OpReserve, weir.OpTakeSome, weir.OpSettle, weir.OpGiveBack, weir.OpCarry} {
			c := weir.Charge{Limit: limit, Cost: 1, Op: op, Within: -1, Keep: true, Estimate: true, Receipt: made}
			if op == weir.OpSettle {
				c.Cost = 0
			}
			_, _ = on.one(&c) // an error is fine, and a panic is not
			if op == weir.OpReserve {
				made = c.Receipt
			}
		}
		for _, b := range on.brief {
			on.endBrief(b)
		}
		on.endsBrief = true
		on.written(1, 1, now)
		if on.ttl(now, 0) <= 0 {
			panic("a state is kept for no time")
		}
		if _, err := l.readEntry(on.value(), 8<<10); err != nil && on.valid() {
			panic(err)
		}
	}
	return true
}

// FuzzValue: any bytes are an error or a state that can be used.
func FuzzValue(f *testing.F) {
	for _, v := range walked(f) {
		f.Add(v)
	}
	f.Fuzz(func(_ *testing.T, value []byte) {
		var l limits
		useValue(&l, value)
	})
}

// TestTTL: a key is kept until its state is idle, and for the grace time.
func TestTTL(t *testing.T) {
	clock := new(weirtest.Clock)
	clock.Set(int64(time.Hour))
	for _, c := range []struct {
		limit weir.Limit
		want  time.Duration
	}{
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 100}, 50 * time.Second},
		{weir.FixedWindow{Limit: 100, Window: time.Hour}, time.Hour},
		{weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 100}, 0},
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 100, Initial: weir.InitialEmpty}, 24 * time.Hour},
	} {
		kv := &lastTTL{}
		s := open(t, kv, Options{Clock: clock.Now, Grace: time.Minute})
		do(t, s, weir.Charge{Limit: c.limit, Cost: 50})
		if want := max(c.want+time.Minute, 10*time.Second); kv.ttl < want || kv.ttl > want+time.Second {
			t.Errorf("%+v is kept for %v, want %v", c.limit, kv.ttl, want)
		}
	}
}

type lastTTL struct {
	Memory
	ttl time.Duration
}

func (k *lastTTL) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (uint64, bool, error) {
	k.ttl = ttl
	return k.Memory.CompareAndSwap(ctx, key, revision, value, ttl)
}

// TestRemember: however many reservations of a key are outstanding, its value stays short, and giving them back
// never admits too much. Takes that are mostly not given back are forgotten after a while.
func TestRemember(t *testing.T) {
	for _, estimate := range []bool{true, false} {
		clock, kv := new(weirtest.Clock), new(Memory)
		s := open(t, kv, Options{Clock: clock.Now})
		limit := weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 5000}
		var made []weir.Charge
		longest := 0
		for i := range 3000 {
			clock.Set(int64(i) * int64(700*time.Microsecond) * int64(1+i%3))
			c, d := do(t, s, weir.Charge{Limit: limit, Cost: 1 + int64(i%4), Keep: true, Estimate: estimate})
			if d.Allowed {
				made = append(made, c)
			}
			item, _ := kv.Get(t.Context(), s.key("limit", "k"))
			longest = max(longest, len(item.Value))
		}
		if most := map[bool]int{true: 6000, false: 2600}[estimate]; longest > most {
			t.Errorf("estimate %v: a value has %d bytes", estimate, longest)
		}
		t.Logf("estimate %v: the longest value has %d bytes", estimate, longest)
		_, before := do(t, s, weir.Charge{Limit: limit, Op: weir.OpPeek})
		for _, c := range made[len(made)-10:] {
			c.Op, c.Cost = weir.OpSettle, 0
			do(t, s, c)
		}
		if _, d := do(t, s, weir.Charge{Limit: limit, Op: weir.OpPeek}); d.Remaining <= before.Remaining || d.Remaining > before.Remaining+40 {
			t.Errorf("estimate %v: %d left, and %d after 10 were given back", estimate, before.Remaining, d.Remaining)
		}
	}
}

// TestNodes: heartbeats count the nodes that are alive.
func TestNodes(t *testing.T) {
	clock, kv := new(weirtest.Clock), new(Memory)
	a, b := open(t, kv, Options{Clock: clock.Now}), open(t, kv, Options{Clock: clock.Now})
	beat := func(s *Store, id string, ttl time.Duration, want int) {
		t.Helper()
		if n, err := s.Beat(t.Context(), id, ttl); n != want || err != nil {
			t.Errorf("%d nodes, want %d: %v", n, want, err)
		}
	}
	beat(a, "a", time.Second, 1)
	beat(b, "b", time.Second, 2)
	beat(a, "a", time.Second, 2)
	clock.Set(int64(2 * time.Second))
	beat(b, "b", time.Second, 1)
	beat(a, "a", time.Second, 2)
	beat(b, "b", 0, 1)
	if _, err := a.Beat(t.Context(), "", time.Second); err == nil {
		t.Error("a node without an id")
	}
	if err := a.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestEntries: that a log has more entries than a value has room for is told before the first call, by how many
// it may have.
func TestEntries(t *testing.T) {
	s := open(t, new(Memory), Options{})
	over, err := failover.New(s, failover.Options{Deadline: time.Second, Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	log := func(entries int) weir.Limit {
		return weir.SlidingLog{Limit: 1 << 20, Window: time.Hour, MaxEntries: entries}
	}
	for _, c := range []struct {
		limit weir.Limit
		most  string
	}{{log(4096), ""}, {log(0), ""}, {log(4097), "at most 4096"}, {log(1 << 20), "at most 4096"}, {weir.All(log(3000), log(3001)), "at most 1096"}} {
		for _, store := range []weir.Store{s, over} {
			_, err := weir.NewShared(c.limit, store, weir.Named("l"))
			if c.most == "" && err != nil || c.most != "" && (err == nil || !strings.Contains(err.Error(), "MaxEntries") || !strings.HasSuffix(err.Error(), c.most)) {
				t.Errorf("%+v: %v", c.limit, err)
			}
		}
	}
}
