package adaptive

import (
	"time"

	"github.com/weirflow/weir/adaptive/signals"
)

// BBR protects the machine: it limits nothing until a signal says that there is an overload, such
// as "cpu 0.93 of 0.8". From then on, and for CoolOff after it, there may be as many requests in
// flight as fill the service: the best throughput times the least latency, as TCP's BBR does it.
// It needs Options.Signals.
//
// It follows the limiters of Sentinel and Kratos, and differs where they fail:
//
//   - Throughput while few requests came is no capacity: it counts only where it exceeds what was
//     measured before. Kratos forgets the best after 10 s, and lets 2 requests in flight pass if the
//     overload begins after an idle time.
//   - Requests that failed or were ignored count neither as throughput nor for the latency.
//   - In an overload, the latencies include the queue, which would be the measure of itself. They do
//     not count, and every Window the limit is lowered for a moment to measure the latency again.
//   - When the signal is gone, the limit rises in steps until it is no longer in use, and only then
//     ends. Kratos counts the cool-off from the first refusal, and then lets all pass.
type BBR struct {
	Window     time.Duration      // how long an overload remembers a throughput; default: 10 s
	Buckets    int                // how many parts that has, at most 1000; default: 100
	CoolOff    time.Duration      // how long the limit holds after the signal at least; default: 1 s
	Thresholds signals.Thresholds // the levels from which on there is an overload
}

func (b BBR) complete() (BBR, error) {
	if b.Window == 0 {
		b.Window = 10 * time.Second
	}
	if b.Buckets == 0 {
		b.Buckets = 100
	}
	if b.CoolOff == 0 {
		b.CoolOff = time.Second
	}
	switch {
	case b.Window < 100*time.Millisecond || b.Window > time.Hour:
		return b, invalid("BBR", "Window", "%v is not within 100ms and 1h", b.Window)
	case b.Buckets < 2 || b.Buckets > 1000:
		return b, invalid("BBR", "Buckets", "%d is not within 2 and 1000", b.Buckets)
	case b.Window/time.Duration(b.Buckets) < time.Millisecond:
		return b, invalid("BBR", "Buckets", "%d parts of %v (Window) are shorter than 1ms each", b.Buckets, b.Window)
	case b.CoolOff < 0 || b.CoolOff > time.Hour:
		return b, invalid("BBR", "CoolOff", "%v is not a duration above 0, of at most 1h", b.CoolOff)
	}
	if err := b.Thresholds.Validate(); err != nil {
		return b, invalid("BBR", "Thresholds", "%w", err)
	}
	return b, nil
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (b BBR) Validate() error {
	_, err := b.complete()
	return err
}

// begin returns a controller that never changes anything: BBR follows the clock, see paced.
func (b BBR) begin(func() float64) (controller, plan) {
	c := same{limit: mostInFlight, need: maxSamples}
	return c, plan(c)
}

// same is a controller that never changes its plan.
type same plan

func (s same) next(*period) plan { return plan(s) }

// leastLatency is 0: see paced.
func (s same) leastLatency() float64 { return 0 }

// Overload returns why the limit of a BBR is in force, such as "cpu 0.93 of 0.8". It is empty while
// there is no limit, and for other algorithms.
func (l *Limiter) Overload() string {
	if l.paced == nil {
		return ""
	}
	if e := l.paced.excess.Load(); e != nil {
		return e.String()
	}
	return ""
}
