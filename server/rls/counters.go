package rls

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/server/envoy"
)

// counters counts hits as envoyproxy/ratelimit does: in windows that begin at multiples of their length
// since 1970, and hits that are refused, too. So a counter is a FixedWindow that admits far more than
// any rule, and what was used of it is compared with the rule. A key has one counter for each unit,
// whatever the rule says, as it has there.
type counters struct {
	memory [len(protoUnits)]*keyed.Limiter[string]
	pool   sync.Pool // of *batch
}

// far is what a counter admits: more than any rule, whose requests have 32 bits. More hits than mostHits
// at once are over any rule, too.
const (
	far      = 1 << 33
	mostHits = 1 << 32
)

// window returns the counter of a unit as a limit.
func window(u envoy.Unit) weir.FixedWindow {
	return weir.FixedWindow{Limit: far, Window: u.Length()}
}

// stateNames are the names of the counters in stores. No limit of a policy can have such a name.
var stateNames = func() (names [len(protoUnits)]string) {
	for _, u := range envoy.Units() {
		names[u] = "envoy/" + u.String()
	}
	return names
}()

// open makes the counters in memory, each with room for so many keys; 0 for the default.
func (c *counters) open(maxKeys int) (err error) {
	for _, u := range envoy.Units() {
		if c.memory[u], err = keyed.New[string](window(u), keyed.Options{MaxKeys: maxKeys, Keys: true}); err != nil {
			return err
		}
	}
	return nil
}

func (c *counters) close() (err error) {
	for _, u := range envoy.Units() {
		if c.memory[u] != nil {
			err = errors.Join(err, c.memory[u].Close())
		}
	}
	return err
}

// A hit is the hits of one descriptor on its counter, and what was counted.
type hit struct {
	unit     envoy.Unit
	key      string
	requests uint32 // of the rule
	hits     uint64
	gives    bool // negative hits: they are given back, and refuse nothing

	used  uint64        // after the hits
	over  bool          // more than the rule allows
	reset time.Duration // until the window ends; 0 if that is not known
}

// count counts hits in their order.
func (c *counters) count(ctx context.Context, r *rules, all []hit) error {
	if r.store != nil {
		return c.countStored(ctx, r, all)
	}
	for i := range all {
		c.countHere(&all[i], all[i].requests)
	}
	return nil
}

// countHere counts hits in memory. requests is what this process may admit.
func (c *counters) countHere(h *hit, requests uint32) {
	cost := int64(min(h.hits, mostHits))
	if h.gives {
		d, _ := c.memory[h.unit].GiveBack(h.key, cost) // a FixedWindow supports it
		h.set(d, requests)
		return
	}
	h.set(c.memory[h.unit].Take(h.key, cost), requests)
}

// set compares what was used of a counter with a rule.
func (h *hit) set(d weir.Decision, requests uint32) {
	h.used, h.reset = uint64(d.Limit-d.Remaining), d.ResetAfter
	h.over = !h.gives && (!d.Allowed || h.used > uint64(requests))
}

// batch is the charges of one request. They are reused, as a store does not touch them after it has
// returned.
type batch struct {
	charges []weir.Charge
	out     []weir.Decision
}

// countStored counts hits in a store, in one round trip. While the store is down, its on_failure
// decides: all are within their limit, or all over, or this process counts alone and has its share
// of each rule.
func (c *counters) countStored(ctx context.Context, r *rules, all []hit) error {
	b, _ := c.pool.Get().(*batch)
	if b == nil {
		b = new(batch)
	}
	defer func() {
		clear(b.charges)
		b.charges, b.out = b.charges[:0], b.out[:0]
		c.pool.Put(b)
	}()
	for i := range all {
		h := &all[i]
		b.charges = append(b.charges, weir.Charge{Name: stateNames[h.unit], Key: h.key, Limit: window(h.unit), Cost: int64(min(h.hits, mostHits))})
		if h.gives {
			b.charges[i].Op = weir.OpGiveBack
		}
		b.out = append(b.out, weir.Decision{})
	}
	if err := r.store.Do(ctx, b.charges, b.out); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	nodes := uint32(max(1, r.nodes()))
	for i := range all {
		h := &all[i]
		switch d := b.out[i]; {
		case d.Source == weir.SourceAllow:
		case d.Source == weir.SourceDeny:
			h.over = !h.gives
		case d.Source == weir.SourceShare || b.charges[i].Err != nil:
			c.countHere(h, max(min(h.requests, 1), h.requests/nodes))
		default:
			h.set(d, h.requests)
		}
	}
	return nil
}

// appendKey appends the key of a counter. Each part has its length in front, so that no two descriptors
// share one. shared has the wildcards that take the place of values.
func appendKey(buf []byte, domain string, entries []*ratelimit.RateLimitDescriptor_Entry, shared []string) []byte {
	part := func(text string) {
		buf = binary.AppendUvarint(buf, uint64(len(text)))
		buf = append(buf, text...)
	}
	part(domain)
	for i, e := range entries {
		part(e.GetKey())
		if shared != nil && shared[i] != "" {
			part(shared[i])
			continue
		}
		part(e.GetValue())
	}
	return buf
}
