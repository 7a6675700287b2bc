package weirkv

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestSizes: a value is as short as docs/kv-stores.md says.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		limit weir.Limit
		most  int
	}{
		"token_bucket":   {weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200}, 100},
		"fixed_window":   {weir.FixedWindow{Limit: 100, Window: time.Minute}, 100},
		"sliding_window": {weir.SlidingWindow{Limit: 6000, Window: time.Minute, Slots: 60}, 250},
	} {
		kv := new(Memory)
		do(t, open(t, kv, Options{}), weir.Charge{Name: "l", Limit: c.limit, Cost: 1})
		one := len(kv.items["weir:l/k"].Value)
		do(t, open(t, kv, Options{}), weir.Charge{Name: "l", Limit: c.limit, Cost: 1})
		if two := len(kv.items["weir:l/k"].Value); one > c.most || two-one > 18 {
			t.Errorf("%s: %d bytes, and %d with a second node", name, one, two)
		}
	}
}
