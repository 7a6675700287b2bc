package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// SlidingCounter is a FixedWindow with a smoothed boundary. The count of the previous window still
// counts, in proportion to the part of it that a sliding window would still cover.
//
// In any interval of length D it admits at most Limit*(1 + D/Window). In one Window that is up to
// 2*Limit - 1, if all of it comes at the worst moments. It cannot charge ahead: Reserve succeeds
// only if nothing has to be delayed. Wait queues. State: three words for any Limit, which is its
// advantage over SlidingLog.
type SlidingCounter struct {
	Limit  int64         // the most over a window; at least 1
	Window time.Duration // the length of a window
}

// Validate returns an error if a parameter is invalid. The error names the field.
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
