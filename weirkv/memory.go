package weirkv

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// A Memory is a KV in the memory of this process, for tests. Several Stores can share one. The zero value is
// ready to use.
type Memory struct {
	mu       sync.Mutex
	items    map[string]Item
	ends     map[string]time.Time
	revision uint64
}

// Get implements KV.
func (m *Memory) Get(ctx context.Context, key string) (Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ends, ok := m.ends[key]; ok && !ends.IsZero() && time.Now().After(ends) {
		delete(m.items, key)
		delete(m.ends, key)
	}
	return m.items[key], ctx.Err()
}

// CompareAndSwap implements KV.
func (m *Memory) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (uint64, bool, error) {
	item, err := m.Get(ctx, key)
	if err != nil {
		return 0, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if item = m.items[key]; item.Revision != revision {
		return 0, false, nil
	}
	if m.items == nil {
		m.items, m.ends = map[string]Item{}, map[string]time.Time{}
	}
	m.revision++
	m.items[key], m.ends[key] = Item{bytes.Clone(value), m.revision}, time.Now().Add(ttl)
	return m.revision, true, nil
}

// Len returns how many keys there are.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.items)
}

// Close has nothing to release.
func (m *Memory) Close() error { return nil }
