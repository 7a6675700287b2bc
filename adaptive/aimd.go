package adaptive

import "time"

// AIMD raises the limit by 1 with each request that succeeds while at least half the limit is in
// use, and multiplies it by Backoff with each that is dropped or takes longer than Timeout. It hears
// of an overload by drops alone, so it fits services that refuse work themselves; before others it
// fills their queue.
//
// It is AIMDLimit of Netflix's concurrency-limits, with its defaults.
type AIMD struct {
	Initial int64         // the limit at first; default: 20
	Min     int64         // default: 20
	Max     int64         // default: 200
	Backoff float64       // the factor after a drop, from 0.5 up to but not including 1; default: 0.9
	Timeout time.Duration // a request that takes longer counts as dropped; default: 5 s
}

func (a AIMD) complete() (AIMD, error) {
	if err := bounds("AIMD", &a.Initial, &a.Min, &a.Max, [3]int64{20, 20, 200}); err != nil {
		return a, err
	}
	if a.Backoff == 0 {
		a.Backoff = 0.9
	}
	if a.Timeout == 0 {
		a.Timeout = 5 * time.Second
	}
	if !(a.Backoff >= 0.5 && a.Backoff < 1) {
		return a, invalid("AIMD", "Backoff", "%g is not from 0.5 up to but not including 1", a.Backoff)
	}
	if a.Timeout < 0 {
		return a, invalid("AIMD", "Timeout", "%v is not a duration above 0", a.Timeout)
	}
	return a, nil
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (a AIMD) Validate() error {
	_, err := a.complete()
	return err
}

func (a AIMD) begin(func() float64) (controller, plan) {
	a, _ = a.complete() // New has validated it
	limit := a.Initial
	c := eachSample{limit: func() int64 { return limit }, update: func(s sample) { limit = a.step(limit, s) }}
	return c, c.plan()
}

func (a AIMD) step(limit int64, s sample) int64 {
	switch {
	case s.dropped || s.latency > int64(a.Timeout):
		limit = int64(float64(limit) * a.Backoff)
	case s.inFlight*2 >= limit:
		limit++
	}
	return min(max(limit, a.Min), a.Max)
}
