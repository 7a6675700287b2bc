package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// NginxBucket decides exactly as nginx's limit_req does, bit for bit: it counts in thousandths of a
// request and in milliseconds, and truncates the rest. It is for migrations from nginx that must
// not change a single decision. All others should use LeakyBucket, which is the same limit with the
// same parameters in exact arithmetic. Two examples of nginx's truncation: 10/m becomes 0.166 a
// second; and of two requests in one millisecond, the second finds nothing drained.
//
// Take admits what nginx admits: Queue + 1 at once from idle (burst=Queue). Delay returns how long
// nginx would delay an admitted request; the caller has to wait for that long. DelayAfter is
// nginx's delay=, and nodelay is DelayAfter equal to Queue. NginxBucket cannot charge ahead:
// Reserve succeeds only if nothing has to be delayed. Wait queues.
//
// In any interval of length D it admits at most Queue + 1 + r*(D + 1 ms), where r is the rate in
// whole thousandths a second. State: two words.
//
// Only the last 64 charges can be given back: of 100 outstanding reservations that are all cancelled,
// the first 36 stay charged.
type NginxBucket struct {
	Rate       Rate  // whole requests a second or a minute, as in nginx
	Queue      int64 // nginx's burst=; 0 or more
	DelayAfter int64 // nginx's delay=: how many units of the queue pass without delay; 0 to Queue
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (l NginxBucket) Validate() error {
	const name, most = "NginxBucket", math.MaxInt64 / rules.Thousand
	if err := l.Rate.validate(); err != nil {
		return field(name, "Rate", err)
	}
	switch {
	case l.Rate.Per != time.Second && l.Rate.Per != time.Minute:
		return field(name, "Rate", fmt.Errorf("%v is not a rate of nginx: write requests per second or per minute, like 10/s or 30/m", l.Rate))
	case l.Rate.N > most:
		return field(name, "Rate", fmt.Errorf("%v is more than can be counted in thousandths: it must be at most %d", l.Rate, int64(most)))
	case l.Queue < 0 || l.Queue >= most:
		return field(name, "Queue", fmt.Errorf("%d is not a length: it must be at least 0 and below %d", l.Queue, int64(most)))
	case !l.parameters().DrainsInTime():
		return field(name, "Queue", fmt.Errorf("a queue of %d takes more than 100 years to drain at %v", l.Queue, l.Rate))
	case l.DelayAfter < 0 || l.DelayAfter > l.Queue:
		return field(name, "DelayAfter", fmt.Errorf("%d is not within 0 and the queue of %d", l.DelayAfter, l.Queue))
	}
	return nil
}

// Excess is the excess that nginx logs for a request of that cost and decision: by how much the
// request exceeds the rate, in thousandths.
func (l NginxBucket) Excess(d Decision, cost int64) int64 {
	if d.Allowed {
		return max(d.Level-rules.Thousand, 0)
	}
	return d.Level + (cost-1)*rules.Thousand
}

// Delay is how long nginx delays a request of that cost and decision. It is a whole number of
// milliseconds, and 0 for a request that was refused.
func (l NginxBucket) Delay(d Decision, cost int64) time.Duration {
	if !d.Allowed || cost < 1 || l.Validate() != nil {
		return 0
	}
	return l.parameters().Delay(d.Level, cost)
}

// parameters is the limit as package rules compiles it.
func (l NginxBucket) parameters() rules.NginxBucket {
	return rules.NginxBucket{Rate: rules.Rate(l.Rate), Queue: l.Queue, DelayAfter: l.DelayAfter}
}

func (l NginxBucket) compile(unit time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return compiled("NginxBucket")(l.parameters().Compile(unit))
}

func (l NginxBucket) normal() Limit {
	if l.Validate() == nil {
		l.Rate = Rate(rules.Rate{N: int64(l.parameters().Thousandths()), Per: rules.Thousand * time.Second}.Normal())
	}
	return l
}
