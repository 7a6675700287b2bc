package keyed

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// once is a limit that shows when two keys share a state: the second is refused.
var once = weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}

// hashed returns a limiter with the test's hash function.
func hashed[K comparable](t testing.TB, o Options, hash func(K) uint64) *Limiter[K] {
	t.Helper()
	o.Clock = func() int64 { return 0 }
	k, err := New[K](once, o)
	if err != nil {
		t.Fatal(err)
	}
	k.hasher = hash
	return k
}

// mix is a hash without a seed, and without collisions: splitmix64.
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// TestKeysShareAStateAsOftenAsPredicted: each of the n*(n-1)/2 pairs of n keys with hashes of b
// bits shares a state with a chance of 1 in 2^b. The table's hash has 64 bits: with 10 million
// keys, the chance that any two share one is 2.7 in a million.
func TestKeysShareAStateAsOftenAsPredicted(t *testing.T) {
	raced.Skip(t)
	const n, rounds, bits = 2000, 100, 20
	found := 0
	for round := range uint64(rounds) {
		k := hashed(t, Options{}, func(key uint64) uint64 { return mix(mix(key^round<<32) & (1<<bits - 1)) })
		for key := range uint64(n) {
			if !k.Take(key, 1).Allowed {
				found++
			}
		}
		k.Close()
	}
	expected := float64(rounds) * n * (n - 1) / 2 / (1 << bits)
	if math.Abs(float64(found)-expected) > 5*math.Sqrt(expected) {
		t.Errorf("%d keys shared a state, and %.0f were expected", found, expected)
	}
}

// TestAllBitsTellKeysApart: two keys of a large table whose hashes differ by any one bit have
// different states.
func TestAllBitsTellKeysApart(t *testing.T) {
	raced.Skip(t)
	k := hashed(t, Options{}, func(key uint64) uint64 { return key })
	defer k.Close()
	k.mostLines = 16
	for i := range uint64(30_000) { // more than 256 segments
		k.Take(mix(i), 1)
	}
	if k.segments <= 256 {
		t.Fatalf("%d segments", k.segments)
	}
	for i := range uint64(1000) {
		for bit := range 64 {
			if d := k.Take(mix(i)^1<<bit, 1); !d.Allowed {
				t.Fatalf("%x with bit %d turned: %+v", mix(i), bit, d)
			}
		}
	}
}

// TestStoredKeysNeverShareAState: whatever their hashes, while the table grows, the limit changes,
// and single keys are reset and overridden.
func TestStoredKeysNeverShareAState(t *testing.T) {
	for name, hash := range map[string]func(int) uint64{
		"one":     func(int) uint64 { return 7 },
		"few":     func(key int) uint64 { return uint64(key % 3) },
		"low":     func(key int) uint64 { return uint64(key) },
		"high":    func(key int) uint64 { return uint64(key) << 56 },
		"extreme": func(key int) uint64 { return -uint64(key % 2) },
	} {
		t.Run(name, func(t *testing.T) {
			k := hashed(t, Options{Keys: true}, hash)
			defer k.Close()
			const n = 600
			for key := range n {
				if d := k.Take(key, 1); !d.Allowed {
					t.Fatalf("%d: %+v", key, d)
				}
			}
			if err := k.SetLimit(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 2}); err != nil {
				t.Fatal(err)
			}
			for key := range n {
				switch key % 3 {
				case 0:
					k.Reset(key)
				case 1:
					if r, ok := k.Reserve(key, 1, 0); !ok {
						t.Fatalf("%d: %+v", key, r.Decision())
					}
				}
			}
			for key := range n {
				if d := k.Peek(key, 0); d.Remaining != []int64{2, 0, 1}[key%3] {
					t.Fatalf("%d: %+v", key, d)
				}
			}
			if k.Len() != n-n/3 {
				t.Errorf("%d keys", k.Len())
			}
			if k.segments > 8 {
				t.Errorf("a bad hash made %d segments of %d keys", k.segments, n)
			}
		})
	}
}

// address is a key of several fields.
type address struct {
	ip   netip.Addr
	port uint16
	name string
	more any
}

// FuzzKeys: keys of any type have a state each, and invalid keys are refused.
func FuzzKeys(f *testing.F) {
	f.Add("a", "b", uint64(1), 1.5, []byte("10.0.0.1"))
	f.Add("", "\x00", uint64(math.MaxUint64), math.NaN(), []byte{})
	f.Fuzz(func(t *testing.T, a, b string, n uint64, x float64, raw []byte) {
		ip, _ := netip.ParseAddr(string(raw))
		keys := []any{a, b, n, int64(n), x, ip, raw, [2]string{a, b}, [2]string{b, a}, address{ip, uint16(n), a, b}, address{ip, uint16(n), b, a},
			address{ip, uint16(n), a, raw}, address{ip, uint16(n), a, x}, nil, &n, struct{}{}, math.Inf(1), complex(x, 1), func() {}}
		k, err := New[any](once, Options{Clock: func() int64 { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		seen := map[any]bool{}
		for _, key := range keys {
			is := equalsItself(key)
			for range 2 {
				d := k.Take(key, 1)
				if want := is && !seen[key]; d.Allowed != want || !is && d.RetryAfter != weir.Never {
					t.Fatalf("%#v: %+v", key, d)
				}
				if is {
					seen[key] = true
				}
			}
		}
		if k.Len() != len(seen) {
			t.Fatalf("%d keys, and %d states", len(seen), k.Len())
		}
		texts, err := New[string](once, Options{Clock: func() int64 { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		defer texts.Close()
		if texts.Take(a, 1); TakeText(texts, []byte(a), 1).Allowed || TakeText(texts, []byte(b), 1).Allowed != (a != b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

// equalsItself reports whether a key is valid: it equals itself and can be hashed.
func equalsItself(key any) (is bool) {
	defer func() { _ = recover() }()
	_, is = map[any]bool{key: true}[key]
	return is
}

// TestAnAttackerWithoutTheSeed: keys that are close in one table are not close in another.
func TestAnAttackerWithoutTheSeed(t *testing.T) {
	a, b := hashed[string](t, Options{}, nil), hashed[string](t, Options{}, nil)
	defer a.Close()
	defer b.Close()
	same, random := 0, seeds.Of(t.Name())
	for range 10_000 {
		key := fmt.Sprint(random.Uint64())
		x, _ := a.Fingerprint(key)
		y, _ := b.Fingerprint(key)
		if x>>56 == y>>56 {
			same++
		}
	}
	if same > 100 { // 39 are expected
		t.Errorf("%d of 10000 keys lie in the same part of both tables", same)
	}
}

// TestLimitsOfEveryLayout: one word, several, and none.
func TestLimitsOfEveryLayout(t *testing.T) {
	for want, l := range map[int]weir.Limit{
		1: once,
		2: weir.TokenBucket{Rate: weir.Rate{N: math.MaxInt64 / 3, Per: 7 * time.Hour}, Burst: math.MaxInt64 / 2},
		4: weir.WarmUp{Rate: weir.PerSecond(1), Period: time.Second},
		8: weir.All(once, weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3}),
		9: weir.SlidingWindow{Limit: 1, Window: time.Second, Slots: 4},
	} {
		k, err := New[int](l, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := k.version.Load().words; got != want {
			t.Errorf("%+v: %d words, want %d", l, got, want)
		}
		for key := range 10_000 {
			if d := k.Take(key, 1); !d.Allowed {
				t.Fatalf("%T, key %d: %+v", l, key, d)
			}
		}
		k.Close()
	}
}
