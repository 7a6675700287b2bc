package weirhttp

import "sync/atomic"

// maxBodyMemory is the most memory of all bodies that the limits of a Policy read, in bytes.
const maxBodyMemory = 64 << 20

// bodyMemory is a policy.BodyMemory.
type bodyMemory struct{ used atomic.Int64 }

// Reserve takes memory, if there is enough.
func (m *bodyMemory) Reserve(n int64) bool {
	if m.used.Add(n) <= maxBodyMemory {
		return true
	}
	m.used.Add(-n)
	return false
}

// Free returns how much is left.
func (m *bodyMemory) Free() int64 { return maxBodyMemory - m.used.Load() }

// Refused implements policy.SharedMemory.
func (m *bodyMemory) Refused() {}

// Release gives memory back.
func (m *bodyMemory) Release(n int64) { m.used.Add(-n) }
