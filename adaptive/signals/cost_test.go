package signals

import (
	"testing"
	"time"
)

// BenchmarkTick is the cost of one reading, of which there are four in a second: 250 µs are 0.1 % of
// a core.
func BenchmarkTick(b *testing.B) {
	m, err := Open(Options{Interval: time.Minute})
	if err != nil {
		b.Skip(err)
	}
	defer m.Close()
	b.ReportAllocs()
	for b.Loop() {
		m.tick()
	}
}
