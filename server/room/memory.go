package room

import (
	"context"
	"sync"
	"time"
)

// Memory is a Queue in the memory of this process, for one gateway. Its state is lost with the
// process; tickets restore it.
type Memory struct {
	mu    sync.Mutex
	state *state
	clock func() int64
}

// NewMemory returns a Queue in memory. The clock returns microseconds since the Unix epoch.
// default: the process's clock, which only goes forward.
func NewMemory(s Spec, clock func() int64) (*Memory, error) {
	st, err := newState(s)
	if err != nil {
		return nil, err
	}
	if clock == nil {
		start := time.Now()
		clock = func() int64 { return start.UnixMicro() + int64(time.Since(start)/tick) }
	}
	return &Memory{state: st, clock: clock}, nil
}

// Poll implements Queue. It returns no error.
func (m *Memory) Poll(_ context.Context, q Poll) (Standing, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.poll(m.clock(), q), nil
}

// Set changes the parameters. Visitors stay where they are.
func (m *Memory) Set(s Spec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.setSpec(m.clock(), s)
}

// Close implements Queue.
func (m *Memory) Close() error { return nil }
