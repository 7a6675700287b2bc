package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// LeakyBucket releases work at a constant spacing. Work that comes too early waits in a queue of at
// most Queue units, and is refused if the queue is full. DelayAfter units of the queue pass without
// delay. This is the "leaky bucket as a queue". With DelayAfter equal to Queue nothing is ever
// delayed, and it is the "leaky bucket as a meter".
//
// In any interval of length D it releases at most DelayAfter + the largest cost + Rate*D. Reserve,
// Wait and Join use the queue; Take and Allow admit only what may go at once.
//
// It is nginx's limit_req: burst=b is Queue b, delay=n is DelayAfter n, and nodelay is DelayAfter
// equal to Queue. From idle, b+1 requests are accepted at once. State: one number, as
// TokenBucket's.
type LeakyBucket struct {
	Rate       Rate  // how fast work is released
	Queue      int64 // how many units may wait; 0 or more
	DelayAfter int64 // how many units of the queue pass without delay; 0 to Queue
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (l LeakyBucket) Validate() error {
	const name = "LeakyBucket"
	if err := l.Rate.validate(); err != nil {
		return field(name, "Rate", err)
	}
	switch {
	case l.Queue < 0 || l.Queue == math.MaxInt64:
		return field(name, "Queue", fmt.Errorf("%d is not a length: it must be at least 0 and below %d", l.Queue, int64(math.MaxInt64)))
	case !rules.Rate(l.Rate).FillsInTime(l.Queue + 1):
		return field(name, "Queue", fmt.Errorf("a queue of %d takes more than 100 years to drain at %v", l.Queue, l.Rate))
	case l.DelayAfter < 0 || l.DelayAfter > l.Queue:
		return field(name, "DelayAfter", fmt.Errorf("%d is not within 0 and the queue of %d", l.DelayAfter, l.Queue))
	}
	return nil
}

// parameters is the limit as package rules compiles it.
func (l LeakyBucket) parameters() rules.LeakyBucket {
	return rules.LeakyBucket{Rate: rules.Rate(l.Rate), Queue: l.Queue, DelayAfter: l.DelayAfter}
}

func (l LeakyBucket) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("LeakyBucket")(l.parameters().Compile(unit))
}

func (l LeakyBucket) normal() Limit {
	l.Rate = Rate(rules.Rate(l.Rate).Normal())
	return l
}
