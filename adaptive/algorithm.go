package adaptive

import (
	"fmt"

	"github.com/weirflow/weir"
)

// An Algorithm says how the limit is found: Knee, AIMD, Vegas, Gradient2 or BBR. Each is a plain struct,
// and a field that is 0 has the default that its comment names.
type Algorithm interface {
	// Validate returns an error if a parameter is invalid. The error names the field.
	Validate() error

	// begin returns a controller, and the plan of its first period.
	begin(draw func() float64) (controller, plan)
}

// A controller changes the limit at the end of each period. The limiter never calls it
// concurrently.
type controller interface {
	next(p *period) plan

	// leastLatency is that of a request that does not wait for others, in nanoseconds; 0 if the algorithm
	// does not know it
	leastLatency() float64
}

// A period is what was measured between two changes of the limit.
type period struct {
	limit    int64
	samples  []sample // of finished requests; the controller may reorder them
	drops    int      // requests that were dropped and had begun under this limit, as many as were measured
	refused  bool     // whether a caller found no place
	inFlight int      // how many samples the requests that are now in flight will give
}

// A sample is a finished request. An ignored request gives none.
type sample struct {
	latency  int64 // nanoseconds, at least 1
	inFlight int64 // how many requests were in flight when it began, itself included; for Knee, or when it ended, if those were more
	dropped  bool
}

// A plan says what the next period is like.
type plan struct {
	limit int64
	skip  int // how many samples to pass over first: those of requests that began before
	need  int // how many samples the period has, at most maxSamples
	drops int // how many drops end the period early, of those that are measured; 0: none do
}

// mostInFlight is the largest limit: the limiter's word has no room for more.
const mostInFlight = 1<<21 - 1

// invalid returns the error for a field.
func invalid(algorithm, field, format string, args ...any) error {
	return &weir.FieldError{Limit: "adaptive." + algorithm, Field: field, Err: fmt.Errorf(format, args...)}
}

// bounds completes and checks the fields that all algorithms have. A default gives way to what the
// caller has set.
func bounds(algorithm string, initial, lowest, most *int64, defaults [3]int64) error {
	if *most == 0 {
		*most = max(defaults[2], *lowest, *initial)
	}
	if *lowest == 0 {
		// at least 1, so that an error is about the field that the caller has set
		if *lowest = max(min(defaults[1], *most), 1); *initial != 0 {
			*lowest = max(min(*lowest, *initial), 1)
		}
	}
	if *initial == 0 {
		*initial = min(max(defaults[0], *lowest), *most)
	}
	switch {
	case *lowest < 1:
		return invalid(algorithm, "Min", "%d lets nothing pass: it must be at least 1", *lowest)
	case *most > mostInFlight || *most < *lowest:
		return invalid(algorithm, "Max", "%d is not within Min (%d) and %d", *most, *lowest, int64(mostInFlight))
	case *initial < *lowest || *initial > *most:
		return invalid(algorithm, "Initial", "%d is not within Min (%d) and Max (%d)", *initial, *lowest, *most)
	}
	return nil
}

// eachSample is a controller for algorithms that react to each finished request. The limiter hands
// samples over in small batches.
type eachSample struct {
	update func(s sample) // changes the estimate
	limit  func() int64
	least  func() float64 // nil for none
}

// batch is the number of samples that such algorithms get at once: so few that the limit lags by
// less than a round trip.
const batch = 8

func (c eachSample) plan() plan { return plan{limit: c.limit(), need: batch} }

func (c eachSample) leastLatency() float64 {
	if c.least == nil {
		return 0
	}
	return c.least()
}

func (c eachSample) next(p *period) plan {
	for _, s := range p.samples {
		c.update(s)
	}
	return c.plan()
}
