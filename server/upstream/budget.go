package upstream

import (
	"sync/atomic"

	"github.com/weirflow/weir"
)

// budget bounds how many requests are sent again, as a part of all requests. It is a token bucket whose clock counts requests: each hundred
// of them bring in so many tokens.
type budget struct {
	requests atomic.Int64
	limiter  *weir.Limiter
}

// burst is how many retries there may be at once: of what was under way at a target that dies.
const burst = 100

func newBudget(percent int) (b *budget, err error) {
	b = &budget{}
	b.limiter, err = weir.New(weir.TokenBucket{Rate: weir.Rate{N: int64(percent), Per: 100}, Burst: burst}, weir.WithClock(b.requests.Load))
	return b, err
}

// request counts a request.
func (b *budget) request() { b.requests.Add(1) }

// spend reports whether one more retry fits.
func (b *budget) spend() bool { return b.limiter.Allow() }
