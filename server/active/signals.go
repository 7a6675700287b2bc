package active

import (
	"fmt"
	"sync/atomic"

	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/policy"
)

// machine reads the signals of the machine while the active policy has an adaptive limit that needs them. One
// monitor serves all of them.
type machine struct {
	monitor atomic.Pointer[signals.Monitor]
}

// noSignals is the reading while nothing is read.
var noSignals = new(signals.Reading)

// Reading returns the latest reading; one without signals while nothing is read.
func (m *machine) Reading() *signals.Reading {
	if monitor := m.monitor.Load(); monitor != nil {
		return monitor.Reading()
	}
	return noSignals
}

// open begins to read if a policy needs it. One update happens after the other.
func (m *machine) open(p *policy.Policy) error {
	if !p.NeedsSignals() || m.monitor.Load() != nil {
		return nil
	}
	monitor, err := signals.Open(signals.Options{})
	if err != nil {
		return fmt.Errorf("adaptive: { bbr: ... } reads the signals of the machine, which failed: %w; use another algorithm, such as adaptive: {}", err)
	}
	m.monitor.Store(monitor)
	return nil
}

// closeUnless ends the reading if a policy does not need it; nil needs nothing.
func (m *machine) closeUnless(p *policy.Policy) {
	if p != nil && p.NeedsSignals() {
		return
	}
	if monitor := m.monitor.Swap(nil); monitor != nil {
		_ = monitor.Close() // always nil
	}
}

// Signals returns the signals of the machine. There are none while the active policy needs none.
func (p *Policy) Signals() signals.Source { return &p.machine }
