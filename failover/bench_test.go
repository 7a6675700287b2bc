package failover

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/weirflow/weir"
)

// instant is a store that takes no time, so that the benchmarks measure failover alone.
type instant struct{ err error }

func (i instant) Do(_ context.Context, _ []weir.Charge, out []weir.Decision) error {
	out[0] = weir.Decision{Allowed: true, Source: weir.SourceStore}
	return i.err
}
func (instant) Close() error { return nil }

func benchmark(b *testing.B, store weir.Store, keys int) {
	names := make([]string, keys)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		batch, out := make([]weir.Charge, 1), make([]weir.Decision, 1)
		for i := 0; pb.Next(); i++ {
			batch[0] = weir.Charge{Name: "api", Key: names[i%keys], Limit: perSecond, Cost: 1}
			_ = store.Do(context.Background(), batch, out)
		}
	})
}

// BenchmarkAnswered measures what a Store adds to a call that the store answers.
func BenchmarkAnswered(b *testing.B) {
	for _, callers := range []int{1, 32} {
		for _, c := range []struct {
			name string
			o    *Options
		}{{"store", nil}, {"guarded", &Options{}}, {"direct", &Options{Direct: true}}} {
			b.Run(fmt.Sprintf("%s/callers=%d", c.name, callers), func(b *testing.B) {
				b.SetParallelism(callers)
				store := weir.Store(instant{})
				if c.o != nil {
					s, err := New(store, *c.o)
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					store = s
				}
				benchmark(b, store, 1000)
			})
		}
	}
}

// BenchmarkOpen measures a decision while the breaker is open.
func BenchmarkOpen(b *testing.B) {
	for _, f := range []OnFailure{Deny, Allow, Local} {
		b.Run(f.String(), func(b *testing.B) {
			s, err := New(instant{err: errDown}, Options{OnFailure: f, Nodes: 4})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			batch, out := []weir.Charge{{Name: "api", Limit: perSecond, Cost: 1}}, make([]weir.Decision, 1)
			for s.State() == Closed {
				_ = s.Do(b.Context(), batch, out)
			}
			benchmark(b, s, 1000)
		})
	}
}
