package adaptive_test

import (
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
)

// BenchmarkBBR is what a request pays for BBR, beside Knee: without an overload, with one, and
// refused.
func BenchmarkBBR(b *testing.B) {
	at := func(level float64) signals.Source {
		r := &signals.Reading{}
		r.Set(signals.CPU, level, "a benchmark")
		return source(func() *signals.Reading { return r })
	}
	for name, o := range map[string]adaptive.Options{
		"Knee":     {},
		"calm":     {Algorithm: adaptive.BBR{}, Signals: at(0.5)},
		"overload": {Algorithm: adaptive.BBR{}, Signals: at(0.9)},
	} {
		b.Run(name, func(b *testing.B) {
			l, err := adaptive.New(o)
			if err != nil {
				b.Fatal(err)
			}
			var refused atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if h, ok := l.TryEnter(); ok {
						h.Done(weir.OK)
					} else {
						refused.Add(1)
					}
				}
			})
			b.ReportMetric(float64(refused.Load())/float64(b.N), "refused")
		})
	}
}
