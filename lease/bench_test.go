package lease_test

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirtest"
)

// plenty is a limit that no benchmark reaches.
var plenty = weir.TokenBucket{Rate: weir.PerSecond(1_000_000_000), Burst: 1_000_000_000}

// bench takes a key's tokens, one at a time or from all processors at once.
func bench(b *testing.B, l weir.Limit, parallel bool) {
	s, err := lease.New(weirtest.NewStore(nil), lease.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ctx := b.Context()
	take := func(more func() bool) {
		batch, out := []weir.Charge{{Name: "l", Key: "some-hot-key", Limit: l, Cost: 1}}, make([]weir.Decision, 1)
		for more() {
			if err := s.Do(ctx, batch, out); err != nil {
				b.Error(err)
			}
		}
	}
	b.ReportAllocs()
	if parallel {
		b.RunParallel(func(pb *testing.PB) { take(pb.Next) })
	} else {
		take(b.Loop)
	}
	b.ReportMetric(float64(s.Stats().RoundTrips)/b.Elapsed().Seconds(), "roundtrips/s")
}

func BenchmarkTake(b *testing.B)         { bench(b, plenty, false) }
func BenchmarkTakeParallel(b *testing.B) { bench(b, plenty, true) }

// BenchmarkRefused takes a thousand times the tokens that a key has.
func BenchmarkRefused(b *testing.B) {
	bench(b, weir.TokenBucket{Rate: weir.PerSecond(10_000), Burst: 10_000}, false)
}

func BenchmarkRefusedParallel(b *testing.B) {
	bench(b, weir.TokenBucket{Rate: weir.PerSecond(10_000), Burst: 10_000}, true)
}

// BenchmarkKeyed does the same in process, without a store.
func BenchmarkKeyed(b *testing.B) {
	k, err := keyed.New[string](plenty, keyed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	for b.Loop() {
		k.Take("some-hot-key", 1)
	}
}

func BenchmarkKeyedParallel(b *testing.B) {
	k, err := keyed.New[string](plenty, keyed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			k.Take("some-hot-key", 1)
		}
	})
}

// BenchmarkShared uses a Shared over leases.
func BenchmarkShared(b *testing.B) {
	s, err := lease.New(weirtest.NewStore(nil), lease.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l, err := weir.NewShared(plenty, s, weir.Named("l"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := l.Allow(b.Context(), "some-hot-key"); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
