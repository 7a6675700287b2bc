package weir

import (
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// SlidingLog remembers each charge, and is exact: it never admits more than Limit in any interval
// shorter than Window. In a closed interval of length D it admits at most
// Limit*(floor(D/Window)+1). A charge expires at exactly its time plus Window.
//
// It takes two words for each charge within the window, up to MaxEntries charges. Beyond that, the
// two oldest charges are merged into one that expires with the later of them: the limit still never
// overshoots, but frees capacity late. While work is reserved ahead, it also remembers up to as
// many charges that will have expired by the promised time, but have not expired yet. TokenBucket
// and SlidingCounter take less memory.
type SlidingLog struct {
	Limit      int64         // the most in any window; at least 1
	Window     time.Duration // the length of the window
	MaxEntries int           // how many charges are remembered; default: Limit, at most 4096
}

// Validate returns an error if a parameter is invalid. The error names the field.
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
