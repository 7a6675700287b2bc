package kv

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/regions"
	"github.com/weirflow/weir/weirkv"
)

// TestRegions: limits are divided between regions by counts in a store that compares and swaps.
func TestRegions(t *testing.T) {
	for _, start := range []func(*testing.T) *product{memcached, nats} {
		p, mine := start(t), prefix()
		t.Run(p.name, func(t *testing.T) {
			regions.Check(t, func(t *testing.T, name string) weir.Store {
				return p.opened(t, weirkv.Options{Prefix: mine + name + "/"})
			})
		})
	}
}
