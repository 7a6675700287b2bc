package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// SlidingWindow counts in slots: it admits at most Limit over the last Slots slots, which make up
// Window, and at most SlotLimit in each slot. "100 a second, and no more than 20 in any 100 ms" is
// SlidingWindow{Limit: 100, Window: time.Second, Slots: 10, SlotLimit: 20}.
//
// It admits at most Limit in any interval up to Window less one slot, and at most Limit + SlotLimit
// (2*Limit without a SlotLimit) in any interval up to Window. For never more than Limit in any
// Window, use SlidingLog. Slots are aligned to the limiter's clock: an interval as long as a slot
// may admit twice SlotLimit. State: 1 + 2*Slots words.
type SlidingWindow struct {
	Limit     int64         // the most over the window; at least 1
	Window    time.Duration // the length of the window: a whole number of nanoseconds for each slot
	Slots     int           // how many slots divide the window; 2 to 4096
	SlotLimit int64         // the most in each slot; default: Limit
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (l SlidingWindow) Validate() error {
	const name = "SlidingWindow"
	switch {
	case l.Limit < 1:
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	case l.Window < 1 || l.Window > rules.MaxSpan:
		return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
	case l.Slots < 2 || l.Slots > rules.MaxSlots:
		return field(name, "Slots", fmt.Errorf("%d is not within 2 and %d (for 1, there is FixedWindow)", l.Slots, rules.MaxSlots))
	case l.Window%time.Duration(l.Slots) != 0:
		return field(name, "Slots", fmt.Errorf("%v cannot be divided into %d slots of equal length", l.Window, l.Slots))
	case l.SlotLimit < 0 || l.SlotLimit > l.Limit:
		return field(name, "SlotLimit", fmt.Errorf("%d is not within 0 and the limit of %d", l.SlotLimit, l.Limit))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l SlidingWindow) parameters() rules.SlidingWindow {
	return rules.SlidingWindow(l)
}

func (l SlidingWindow) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("SlidingWindow")(l.parameters().Compile(unit))
}

func (l SlidingWindow) normal() Limit { return SlidingWindow(l.parameters().Normal()) }
