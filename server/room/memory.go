package room

import (
	"context"
	"sync"
	"time"
)

// Memory is a Line in the memory of this process: one gateway's. What it keeps is lost with the process; tickets bring it back.
type Memory struct {
	mu    sync.Mutex
	state *state
	clock func() int64
}

// NewMemory returns a Line in memory. The clock is in microseconds since the Unix epoch; nil is that of the process, which only goes forward.
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

// Ask is Line's. It returns no error.
func (m *Memory) Ask(_ context.Context, q Question) (Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.ask(m.clock(), q), nil
}

// Set puts other numbers in force: who waits and who is inside stays.
func (m *Memory) Set(s Spec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.set(m.clock(), s)
}

// Close is Line's.
func (m *Memory) Close() error { return nil }
