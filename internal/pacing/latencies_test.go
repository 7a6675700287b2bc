package pacing_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/seeds"
)

// TestLatencies: the time of a share of the latest requests is right within an eighth, for times of
// all magnitudes, and follows when they change.
func TestLatencies(t *testing.T) {
	rng := seeds.Of(t.Name())
	for _, share := range []float64{0.5, 0.9, 0.95, 0.99} {
		for range 30 {
			l := pacing.NewLatencies(share)
			if _, ok := l.At(); ok {
				t.Fatal("a time of no requests")
			}
			for range 3 {
				scale := math.Pow(10, 4+6*rng.Float64()) // from 10 µs to 10 s
				var all []time.Duration
				for range 1000 {
					d := time.Duration(scale * rng.ExpFloat64())
					all = append(all, d)
					l.Add(d)
				}
				slices.Sort(all)
				at, ok := l.At()
				// the least time that enough of them are within: what is within an eighth of it
				i := int(math.Ceil(share*1000)) - 1
				if !ok || at < all[i] || float64(at) > 1.13*float64(all[i+1])+1024 {
					t.Fatalf("share %v: %v, %v; it is %v", share, at, ok, all[i])
				}
			}
		}
	}
}

// TestLatenciesBounds: no time is out of bounds.
func TestLatenciesBounds(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, 1023, 1024, 1025, time.Hour, math.MaxInt64} {
		l := pacing.NewLatencies(0.95)
		for range 200 {
			l.Add(d)
		}
		if at, ok := l.At(); !ok || at < min(d, time.Hour) || d < 1024 && at > 1024 {
			t.Errorf("%v of %v", at, d)
		}
	}
}
