package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// SlidingWindow counts in slots: at most Limit over the last Slots of them, which make up Window, and at most SlotLimit in each. "100 a
// second, and no more than 20 in any 100 ms" is SlidingWindow{Limit: 100, Window: time.Second, Slots: 10, SlotLimit: 20}.
//
// It admits at most Limit in any interval up to Window less one slot, and at most Limit + SlotLimit (2*Limit without a SlotLimit) in any
// up to Window. For never more than Limit in any Window there is SlidingLog. Slots are aligned to the limiter's clock: an interval as
// long as a slot may hold twice SlotLimit. State: 1 + 2*Slots words.
type SlidingWindow struct {
	Limit     int64         // how many over the window; at least 1
	Window    time.Duration // how long the window is: a whole number of nanoseconds for each slot
	Slots     int           // how many slots it is divided into; 2 to 4096
	SlotLimit int64         // how many in each slot; 0 for as many as Limit
}

// Validate reports what is wrong with the numbers.
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
		return field(name, "Slots", fmt.Errorf("%v cannot be divided into %d slots of whole nanoseconds", l.Window, l.Slots))
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
