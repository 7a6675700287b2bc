package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// SlidingLog remembers each charge and is exact: never more than Limit in any interval shorter than Window, and in a closed interval of
// length D at most Limit*(floor(D/Window)+1). A charge leaves at exactly its time plus Window.
//
// It takes two words for each charge within the window, up to MaxEntries of them; where there are more, the oldest two become one that
// leaves with the later of them: still never over, but late. Where work is reserved ahead, as many again are remembered that have left by
// the time promised but have not left yet. TokenBucket and SlidingCounter take less.
type SlidingLog struct {
	Limit      int64         // how many in any window; at least 1
	Window     time.Duration // how long it is
	MaxEntries int           // how many charges are remembered; 0 for Limit, or 4096 where that is less
}

// Validate reports what is wrong with the numbers.
func (l SlidingLog) Validate() error {
	const name = "SlidingLog"
	switch {
	case l.Limit < 1:
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	case l.Window < 1 || l.Window > rules.MaxSpan:
		return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
	case l.MaxEntries < 0 || l.MaxEntries == 1 || l.MaxEntries > 1<<24:
		return field(name, "MaxEntries", fmt.Errorf("%d is not within 2 and %d, nor 0", l.MaxEntries, 1<<24))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l SlidingLog) parameters() rules.SlidingLog {
	return rules.SlidingLog(l)
}

func (l SlidingLog) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("SlidingLog")(l.parameters().Compile(unit))
}

func (l SlidingLog) normal() Limit { return SlidingLog(l.parameters().Normal()) }
