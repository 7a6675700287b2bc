package weir_test

import (
	"testing"

	"github.com/weirflow/weir"
)

func TestAlgorithm(t *testing.T) {
	for want, l := range map[string]weir.Limit{
		"":             nil,
		"token_bucket": weir.TokenBucket{},
		"sliding_log":  weir.SlidingLog{},
		"concurrency":  weir.Concurrency{},
		"all":          weir.All(weir.TokenBucket{}, weir.FixedWindow{}),
	} {
		if got := weir.Algorithm(l); got != want {
			t.Errorf("Algorithm(%T) = %q, want %q", l, got, want)
		}
	}
}
