package rls

import (
	"context"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/server/envoy"
)

// A fleet is a store that is down after it has reported how many nodes there are.
type fleet struct {
	nodes int
}

func (f *fleet) Close() error { return nil }

func (f *fleet) Nodes() int { return f.nodes }

func (f *fleet) Do(_ context.Context, charges []weir.Charge, out []weir.Decision) error {
	for i := range charges {
		out[i] = weir.Decision{Source: weir.SourceShare}
	}
	return nil
}

// TestShareOfNodes: in an outage, a node admits its share of a rule, for as many nodes as the store has
// reported last, which may change during the outage.
func TestShareOfNodes(t *testing.T) {
	var c counters
	if err := c.open(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close() })
	store := &fleet{nodes: 2}
	r := &rules{store: store}
	admitted := func(key string, requests uint32) (n int) {
		for range 100 {
			h := []hit{{unit: envoy.Units()[len(envoy.Units())-1], key: key, requests: requests, hits: 1}}
			if err := c.count(t.Context(), r, h); err != nil {
				t.Fatal(err)
			}
			if !h[0].over {
				n++
			}
		}
		return n
	}
	if two, none := admitted("a", 20), admitted("none", 0); two != 10 || none != 0 {
		t.Errorf("2 nodes: %d of 20, %d of 0", two, none)
	}
	store.nodes = 5
	if five, least := admitted("b", 20), admitted("c", 3); five != 4 || least != 1 {
		t.Errorf("5 nodes: %d of 20, %d of 3", five, least)
	}
}
