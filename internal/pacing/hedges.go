package pacing

import (
	"errors"
	"fmt"
	"time"
)

// Hedging says when a second attempt is made beside a first one that is late.
type Hedging struct {
	Delay          time.Duration // 0: it is learned
	Share          float64       // of the requests, whose responses come within the learned delay
	Percent, Burst int           // at most so many second attempts for each 100 requests, and so many more
}

// The defaults of Hedging.
const (
	DefaultShare        = 0.95
	DefaultHedgePercent = 5
	DefaultHedgeBurst   = 10
)

// Complete completes and checks it.
func (h Hedging) Complete() (Hedging, error) {
	switch {
	case h.Delay < 0:
		return h, fmt.Errorf("a Delay of %v: write a time above 0, or 0 to learn it", h.Delay)
	case !(h.Share >= 0 && h.Share < 1):
		return h, fmt.Errorf("a Share of %v: write one above 0 and below 1, like 0.95", h.Share)
	case h.Delay > 0 && h.Share > 0:
		return h, errors.New("a Delay and a Share: the Share is that of the learned delay, so set one of them")
	case h.Percent < 0 || h.Percent > 100:
		return h, fmt.Errorf("a Percent of %d: write 1 to 100, or 0 for the default", h.Percent)
	case h.Burst < 0:
		return h, fmt.Errorf("a Burst of %d: write a number above 0, or 0 for the default", h.Burst)
	}
	if h.Share == 0 {
		h.Share = DefaultShare
	}
	if h.Percent == 0 {
		h.Percent = DefaultHedgePercent
	}
	if h.Burst == 0 {
		h.Burst = DefaultHedgeBurst
	}
	return h, nil
}

// Hedges are the budget of second attempts to a server, and its latencies.
type Hedges struct {
	delay     time.Duration
	budget    *Budget
	latencies *Latencies
}

// NewHedges returns a full budget, and no latencies. h is complete.
func NewHedges(h Hedging) *Hedges {
	return &Hedges{h.Delay, NewBudget(int64(h.Percent), int64(h.Burst), 0), NewLatencies(h.Share)}
}

// Request counts a request that may have a second attempt. It returns how late its response is before
// that is made; false while nothing is known.
func (h *Hedges) Request() (delay time.Duration, ok bool) {
	h.budget.Request()
	if h.delay > 0 {
		return h.delay, true
	}
	return h.latencies.At()
}

// Hedge reports whether a second attempt may be made, and counts it if so.
func (h *Hedges) Hedge() bool { return h.budget.Retry() }

// Measure counts the latency of a first attempt: until its response, or until it was cut short.
func (h *Hedges) Measure(d time.Duration) { h.latencies.Add(d) }
