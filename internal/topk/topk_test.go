package topk

import (
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir/internal/raced"
)

// hash spreads keys as a seeded hash does, in the same way each time.
func hash[K comparable](key K) (v uint64) {
	switch key := any(key).(type) {
	case uint64:
		v = key
	case int:
		v = uint64(key)
	case byte:
		v = uint64(key)
	case string:
		for i := range len(key) {
			v = (v ^ uint64(key[i])) * 0x100000001b3
		}
	default:
		panic("there is no hash of such a key")
	}
	v = (v + 0x9e3779b97f4a7c15 ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// An exact sketch is a sketch with its model: the true counts, in all and of each stripe.
type exact[K comparable] struct {
	*Sketch[K]
	m      int
	hash   func(K) uint64
	counts map[K]uint64
}

func newExact[K comparable](m int, hash func(K) uint64) *exact[K] {
	return &exact[K]{New[K](m), m, hash, map[K]uint64{}}
}

func (e *exact[K]) add(key K, weight uint64) {
	e.Add(key, e.hash(key), weight)
	e.counts[key] = plus(e.counts[key], weight)
}

// check compares the sketch with its guarantees: for each stripe by that stripe's total, and so for
// all by the whole total.
func (e *exact[K]) check(t *testing.T) {
	t.Helper()
	stripe := func(key K) uint64 { return e.hash(key) >> e.shift }
	totals := map[uint64]uint64{}
	total := uint64(0)
	for key, n := range e.counts {
		totals[stripe(key)] += n
		total += n
	}
	listed := map[K]bool{}
	last := uint64(math.MaxUint64)
	for _, c := range e.Heaviest(math.MaxInt) {
		truth, bound := e.counts[c.Key], totals[stripe(c.Key)]/uint64(e.m)
		if truth > c.Count || truth < c.Count-c.Error || c.Error > bound || bound > total/uint64(e.m) {
			t.Fatalf("%+v of a truth of %d: the error may be %d", c, truth, bound)
		}
		if c.Count > last || listed[c.Key] {
			t.Fatalf("%+v is out of order or listed twice", c)
		}
		last, listed[c.Key] = c.Count, true
	}
	for key, n := range e.counts {
		if n > totals[stripe(key)]/uint64(e.m) && !listed[key] {
			t.Fatalf("%v, counted %d times of %d, is not listed", key, n, totals[stripe(key)])
		}
	}
	e.sound(t)
}

// sound checks the links between the parts of the stripes.
func (s *Sketch[K]) sound(t *testing.T) {
	t.Helper()
	for i := range s.stripes {
		p := &s.stripes[i]
		if len(p.counters) > p.most || len(p.order) != len(p.counters) {
			t.Fatalf("%d counters, %d in order, of %d", len(p.counters), len(p.order), p.most)
		}
		for at, c := range p.order {
			if int(p.counters[c].place) != at || p.count(int32(at)) < p.count(int32(max(at-1, 0)/2)) {
				t.Fatalf("counter %d is out of place", c)
			}
			if p.find(p.counters[c].Key, p.counters[c].hash) != c {
				t.Fatalf("counter %d is not found", c)
			}
		}
		if n := len(p.index) - len(p.counters); n < 0 || slices.Index(p.index, 0) < 0 && n > 0 {
			t.Fatalf("an index of %d for %d", len(p.index), len(p.counters))
		}
	}
}

// withStripes gives sketches a number of stripes, on any machine.
func withStripes(t testing.TB, n int) {
	was := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

// TestBounds compares with exact counts, on usual and on worst-case streams.
func TestBounds(t *testing.T) {
	raced.Skip(t)
	const n = 20_000
	r := rand.New(rand.NewPCG(1, 2))
	streams := map[string]func(add func(key, weight uint64)){
		"zipf": func(add func(key, weight uint64)) {
			z := rand.NewZipf(r, 1.1, 1, 1<<20)
			for range n {
				add(z.Uint64(), 1)
			}
		},
		"zipf with weights": func(add func(key, weight uint64)) {
			z := rand.NewZipf(r, 1.3, 2, 1<<16)
			for range n {
				add(z.Uint64(), r.Uint64N(1000))
			}
		},
		"all alike": func(add func(key, weight uint64)) {
			for range n {
				add(r.Uint64N(5000), 1)
			}
		},
		"rotating": func(add func(key, weight uint64)) { // each comes just after its counter was taken over
			for i := range uint64(n) {
				add(i%1001, 1)
			}
		},
		"never twice": func(add func(key, weight uint64)) {
			for i := range uint64(n) {
				add(i, 1)
			}
		},
		"heavy first, then a flood": func(add func(key, weight uint64)) {
			for i := range uint64(n) {
				if i < n/50 {
					add(i%3, 1)
				} else {
					add(i, 1)
				}
			}
		},
		"a flood, then heavy": func(add func(key, weight uint64)) {
			for i := range uint64(n) {
				if i > n-n/50 {
					add(i%3, 1)
				} else {
					add(i, 1)
				}
			}
		},
		"one heavy blow": func(add func(key, weight uint64)) {
			for i := range uint64(n) {
				add(i%5000, 1)
				if i == n/2 {
					add(7, 1e12)
				}
			}
		},
		"no weight": func(add func(key, weight uint64)) {
			for i := range uint64(n) {
				add(i%200, 0)
			}
		},
	}
	for _, stripes := range []int{1, 64} {
		withStripes(t, stripes)
		for _, name := range slices.Sorted(maps.Keys(streams)) {
			for _, m := range []int{1, 10, 300} {
				for kind, hash := range map[string]func(uint64) uint64{
					"seeded": hash[uint64],
					"clumsy": func(key uint64) uint64 { return key % 3 << 62 }, // most keys share a stripe and a hash
				} {
					if kind == "clumsy" && m > 10 {
						continue // too slow
					}
					e := newExact(m, hash)
					streams[name](e.add)
					e.check(t)
					if len(e.stripes) > mostStripes {
						t.Errorf("%d stripes", len(e.stripes))
					}
				}
			}
		}
	}
}

func TestHeaviest(t *testing.T) {
	s := New[string](100)
	for i, key := range []string{"a", "b", "c"} {
		s.Add(key, hash(key), uint64(10+i))
	}
	want := []Counted[string]{{"c", 12, 0}, {"b", 11, 0}}
	if got := s.Heaviest(2); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(s.Heaviest(0)) != 0 || len(s.Heaviest(-1)) != 0 || len(s.Heaviest(50)) != 3 {
		t.Error("not as many as asked for")
	}
	s.Reset()
	if got := s.Heaviest(5); len(got) != 0 {
		t.Errorf("after a reset: %v", got)
	}
	s.Add("b", hash("b"), 1)
	s.sound(t)
	if got := s.Heaviest(5); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("after a reset: %v", got)
	}
}

func TestCountsStopAtTheLargest(t *testing.T) {
	withStripes(t, 1)
	s := New[int](1)
	for range 3 {
		s.Add(1, hash(1), math.MaxUint64/2)
	}
	s.Add(2, hash(2), 5)
	if got := s.Heaviest(9); len(got) != 1 || got[0] != (Counted[int]{2, math.MaxUint64, math.MaxUint64}) {
		t.Errorf("%+v", got)
	}
}

// TestKnownKeys: AddKnown gives no counter to a key without one, and counts a key with one as Add
// does.
func TestKnownKeys(t *testing.T) {
	withStripes(t, 1)
	s := New[string](2)
	copies := 0
	for _, key := range []string{"a", "a", "b", "a", "b", "c", "a"} {
		if !s.AddKnown(key, hash(key), 1) {
			copies++
			s.Add(key, hash(key), 1)
		}
	}
	want := []Counted[string]{{"a", 4, 0}, {"c", 3, 2}}
	if got := s.Heaviest(5); copies != 3 || !slices.Equal(got, want) {
		t.Errorf("%d copies, %v", copies, got)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	s := New[string](64)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = strings.Repeat("x", i)
	}
	i := 0
	add := func() {
		i++
		key := keys[i*i%len(keys)]
		s.Add(key, hash(key), 1)
	}
	for range 5000 {
		add()
	}
	if n := testing.AllocsPerRun(5000, add); n != 0 {
		t.Errorf("%v allocations", n)
	}
	s.Reset()
	if n := testing.AllocsPerRun(5000, add); n != 0 {
		t.Errorf("%v allocations after a reset", n)
	}
}

// TestTogether: with many goroutines nothing is counted twice or lost. A key that takes over a
// counter takes over its count.
func TestTogether(t *testing.T) {
	withStripes(t, 8)
	s := New[uint64](50)
	const workers, each = 8, 5000
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(w, 1))
			z := rand.NewZipf(r, 1.2, 1, 10_000)
			for i := range each {
				key := z.Uint64()
				s.Add(key, hash(key), 1)
				if i%1000 == 0 {
					s.Heaviest(10)
				}
			}
		})
	}
	wg.Wait()
	s.sound(t)
	sum := uint64(0)
	for _, c := range s.Heaviest(math.MaxInt) {
		sum += c.Count
	}
	if sum != workers*each {
		t.Errorf("%d counted of %d", sum, workers*each)
	}
}

// FuzzBounds: each byte after the first two is a key and a weight.
func FuzzBounds(f *testing.F) {
	f.Add([]byte{3, 2, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255, 254})
	f.Add([]byte("\x01\x00abcabcabcabc"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 2 {
			return
		}
		mask := uint64(math.MaxUint64) << (in[1] % 64) // clumsy to a degree
		e := newExact(1+int(in[0]%40), func(key byte) uint64 { return hash(key) & mask })
		for _, b := range in[2:] {
			e.add(b&63, uint64(b>>6))
		}
		e.check(t)
	})
}

func BenchmarkAdd(b *testing.B) {
	for name, keys := range map[string]int{"one": 1, "kept": 500, "rotating": 1 << 16} {
		b.Run(name, func(b *testing.B) {
			s := New[int](1000)
			hashes := make([]uint64, keys)
			for i := range hashes {
				hashes[i] = hash(i)
			}
			for i := 0; b.Loop(); i++ {
				s.Add(i%keys, hashes[i%keys], 1)
			}
		})
	}
}
