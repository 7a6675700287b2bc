package weirkv

import (
	"context"
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/pause"
)

// mostBeats bounds the list of nodes.
const mostBeats = 1 << 12

// Ping tests whether the store would carry out charges: it writes a key, which a store without a quorum or
// with a full disk does not. It charges nothing.
func (s *Store) Ping(ctx context.Context) error {
	key := s.o.Prefix + "=ping"
	item, err := s.kv.Get(ctx, key)
	if err == nil {
		_, _, err = s.kv.CompareAndSwap(ctx, key, item.Revision, []byte{1}, time.Minute) // of two at once, one is enough
	}
	if p, ok := s.kv.(Prober); ok && err == nil {
		err = p.Probe(ctx)
	}
	s.heard(err, true)
	if err != nil {
		return fmt.Errorf("weirkv: %w", err)
	}
	return nil
}

// A Prober is a driver that charges in other ways than by Get and CompareAndSwap.
type Prober interface {
	// Probe reports whether it could. It charges nothing.
	Probe(ctx context.Context) error
}

// Connected reports whether the store responded to the latest call.
func (s *Store) Connected() bool { return s.responds.Load() }

// Ready waits until the store can be used. The error says why it cannot when the context ends.
func (s *Store) Ready(ctx context.Context) error {
	for {
		if ctx.Err() == nil && s.Ping(ctx) == nil {
			return nil
		}
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return s.because(ctx.Err())
		}
	}
}

// Beat is a heartbeat of the node of that id, which counts for ttl. It returns how many nodes are alive,
// this one included. A node that stops sends a ttl of 0. An id has at most 128 bytes.
func (s *Store) Beat(ctx context.Context, id string, ttl time.Duration) (nodes int, err error) {
	if id == "" || len(id) > 128 || ttl < 0 {
		return 0, fmt.Errorf("weirkv: %q for %v is no node: an id has 1 to 128 bytes, and its time is not below 0", id, ttl)
	}
	key := s.o.Prefix + "=nodes"
	for range s.o.Attempts {
		item, err := s.kv.Get(ctx, key)
		if err != nil {
			return 0, fmt.Errorf("weirkv: %w", err)
		}
		value, n, keep := beaten(item.Value, id, s.clock.now(), int64(ttl/unit))
		_, swapped, err := s.kv.CompareAndSwap(ctx, key, item.Revision, value, time.Duration(keep)*unit+time.Minute)
		switch {
		case err != nil:
			return 0, fmt.Errorf("weirkv: %w", err)
		case swapped:
			return n, nil
		}
		if err := pause.For(ctx, jitter(shortPause)); err != nil {
			return 0, err
		}
	}
	return 0, errStale
}

// beaten is a list of nodes with one more heartbeat, how many are alive, and for how long the list counts. A
// list that cannot be read is that of no nodes.
func beaten(list []byte, id string, now, ttl int64) (next []byte, alive int, keep int64) {
	r := packed.NewReader(list)
	type beat struct {
		id   string
		ends int64
	}
	var all []beat
	for range r.Count(mostBeats) {
		b := beat{string(r.Bytes()), r.Int()}
		if r.Err() == nil && b.id != id && b.ends > now && len(all) < mostBeats-1 {
			all = append(all, b)
		}
	}
	if ttl > 0 {
		all = append(all, beat{id, now + ttl})
	}
	next = packed.Uint(nil, uint64(len(all)))
	for _, b := range all {
		next = packed.Int(packed.Bytes(next, b.id), b.ends)
		keep = max(keep, b.ends-now)
	}
	return next, len(all), keep
}
