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
// at most burst + n*percent/100 retries are made. A floor allows some in each second beside that, for
// clients that send too few requests to earn them. It is safe for concurrent use.
type Budget struct {
	requests atomic.Int64
	retries  *weir.Limiter
	floor    *weir.Limiter // nil without one
}

// NewBudget returns a budget of percent retries for each 100 requests, and floor in each second. It
// starts with burst. With 0 percent, or a burst of 0, it allows no retry beside those of the floor.
func NewBudget(percent, burst, floor int64) *Budget {
	b := &Budget{}
	if floor > 0 {
		floor = min(floor, 1_000_000)
		b.floor = made(weir.New(weir.TokenBucket{Rate: weir.PerSecond(floor), Burst: floor}))
	}
	if percent <= 0 || burst <= 0 {
		return b
	}
	// one nanosecond of the clock is one request
	limit := weir.TokenBucket{Rate: weir.Rate{N: min(percent, 100), Per: 100}, Burst: min(burst, 1_000_000)}
	b.retries = made(weir.New(limit, weir.WithClock(b.requests.Load)))
	return b
}

// made is a limiter whose numbers are bounded.
func made(l *weir.Limiter, err error) *weir.Limiter {
	if err != nil {
		panic("pacing: " + err.Error())
	}
	return l
}

// Request counts a request, which is no retry.
func (b *Budget) Request() { b.requests.Add(1) }

// Retry reports whether a retry may be made, and counts it if so.
func (b *Budget) Retry() bool {
	return b.retries != nil && b.retries.Allow() || b.floor != nil && b.floor.Allow()
}

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
