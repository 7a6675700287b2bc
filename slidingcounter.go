package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// SlidingCounter is a FixedWindow whose boundary is smoothed: what was counted in the window before still counts, for the part of it that
// a window sliding along with time would still cover.
//
// In any interval of length D it admits at most Limit*(1 + D/Window); in one of Window, that is up to 2*Limit - 1 where all of it comes at
// the wrong moments. It cannot book ahead: Reserve succeeds only where nothing has to be delayed; Wait queues. State: three words, for
// any Limit, which is what it has over SlidingLog.
type SlidingCounter struct {
	Limit  int64         // how many over the window; at least 1
	Window time.Duration // how long it is
}

// Validate reports what is wrong with the numbers.
func (l SlidingCounter) Validate() error {
	const name = "SlidingCounter"
	switch {
	case l.Limit < 1:
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	case l.Window < 1 || l.Window > rules.MaxSpan:
		return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l SlidingCounter) parameters() rules.SlidingCounter {
	return rules.SlidingCounter(l)
}

func (l SlidingCounter) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("SlidingCounter")(l.parameters().Compile(unit))
}

func (l SlidingCounter) normal() Limit { return l }
