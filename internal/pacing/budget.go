package pacing

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// A Budget bounds retries to a share of the requests, so that a server that fails does not get a
// multiple of its load. It is a token bucket whose clock is the number of requests: each request
// adds a fraction of a retry, and at most burst retries are saved up. Over any n requests in a row,
// at most burst + n*percent/100 retries are made. It is safe for concurrent use.
type Budget struct {
	requests atomic.Int64
	retries  *weir.Limiter
}

// NewBudget returns a budget of percent retries for each 100 requests. It starts with burst. With 0
// percent, or a burst of 0, it allows no retry.
func NewBudget(percent, burst int64) *Budget {
	b := &Budget{}
	if percent <= 0 || burst <= 0 {
		return b
	}
	// one nanosecond of the clock is one request
	limit := weir.TokenBucket{Rate: weir.Rate{N: min(percent, 100), Per: 100}, Burst: min(burst, 1_000_000)}
	l, err := weir.New(limit, weir.WithClock(b.requests.Load))
	if err != nil {
		panic("pacing: " + err.Error()) // the numbers are bounded above
	}
	b.retries = l
	return b
}

// Request counts a request, which is no retry.
func (b *Budget) Request() { b.requests.Add(1) }

// Retry reports whether a retry may be made, and counts it if so.
func (b *Budget) Retry() bool { return b.retries != nil && b.retries.Allow() }

// Jitter draws a time from 0 to longest, all equally likely.
func Jitter(longest time.Duration) time.Duration {
	if longest <= 0 {
		return 0
	}
	return rand.N(longest + 1)
}

// Backoff draws how long to wait before retry number n, counted from 0: with full jitter, so from 0
// to base doubled n times, and at most longest.
func Backoff(n int, base, longest time.Duration) time.Duration {
	return Jitter(doubled(n, base, longest))
}

// doubled is base doubled n times, and at most longest.
func doubled(n int, base, longest time.Duration) time.Duration {
	for ; n > 0 && base < longest; n-- {
		base *= 2
	}
	return min(base, longest)
}
